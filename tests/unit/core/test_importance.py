from __future__ import annotations

import math

import pytest
import torch

from motet.core import importance_weights

OLD_BT = torch.tensor([[-1.0, -2.0, -1.5], [-1.0, -3.0, -9.0]], dtype=torch.float64)
GEN_BT = torch.tensor([[-1.5, -1.0, -1.5], [-3.0, -2.0, -1.0]], dtype=torch.float64)
MASK_BT = torch.tensor([[1, 1, 1], [1, 1, 0]])
# log-ratios: 0.5, -1, 0 (sum -0.5) and 2, -1 (sum 1)


@pytest.mark.parametrize(
    ("kind", "level", "expected_BT"),
    [
        ("none", "token", [[1, 1, 1], [1, 1, 0]]),
        ("none", "sequence", [[1, 1, 1], [1, 1, 0]]),
        ("vanilla", "token", [[math.exp(0.5), math.exp(-1), 1], [math.exp(2), math.exp(-1), 0]]),
        ("truncated", "token", [[1.5, math.exp(-1), 1], [1.5, math.exp(-1), 0]]),
        ("vanilla", "sequence", [[math.exp(-0.5)] * 3, [math.e, math.e, 0]]),
        ("truncated", "sequence", [[math.exp(-0.5)] * 3, [1.5, 1.5, 0]]),
    ],
)
def test_by_hand(kind, level, expected_BT):
    weight_BT = importance_weights(OLD_BT, GEN_BT, MASK_BT, kind=kind, cap=1.5, level=level)
    torch.testing.assert_close(weight_BT, torch.tensor(expected_BT, dtype=torch.float64), rtol=0, atol=1e-12)


def test_equal_log_probs_weigh_exactly_one():
    weight_BT = importance_weights(OLD_BT, OLD_BT.clone(), torch.ones(2, 3), kind="vanilla")
    assert torch.equal(weight_BT, torch.ones_like(OLD_BT))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("pad", [math.nan, math.inf, -math.inf, 1e30])
def test_whatever_stands_in_the_padding_has_no_effect(level, pad):
    clean_BT = importance_weights(OLD_BT, GEN_BT, MASK_BT, level=level)
    dirty_BT = importance_weights(
        OLD_BT.masked_fill(MASK_BT == 0, pad), GEN_BT.masked_fill(MASK_BT == 0, -pad), MASK_BT, level=level
    )
    assert torch.equal(clean_BT, dirty_BT)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["old", "gen"])
def test_a_log_prob_that_is_no_number_weighs_nothing(bad, which):
    old_BT, gen_BT = OLD_BT.clone(), GEN_BT.clone()
    (old_BT if which == "old" else gen_BT)[0, 1] = bad
    token_BT = importance_weights(old_BT, gen_BT, MASK_BT, kind="vanilla")
    assert (token_BT[0] > 0).tolist() == [True, False, True]
    sequence_BT = importance_weights(old_BT, gen_BT, MASK_BT, kind="vanilla", level="sequence")
    assert (sequence_BT > 0).tolist() == [[False, False, False], [True, True, False]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_log_ratios_do_not_overflow(dtype):
    far_BT = torch.tensor([[-1000.0, 0.0]], dtype=dtype)
    weight_BT = importance_weights(far_BT, far_BT.flip(1), torch.ones(1, 2), kind="vanilla")
    torch.testing.assert_close(weight_BT.double(), torch.tensor([[-20.0, 20.0]]).exp().double(), rtol=1e-6, atol=0)


def test_low_precision_is_computed_in_single_precision():
    weight_BT = importance_weights(OLD_BT.bfloat16(), GEN_BT.bfloat16(), MASK_BT, kind="vanilla")
    assert weight_BT.dtype == torch.float32
    assert weight_BT[0, 0].item() == pytest.approx(math.exp(0.5), rel=1e-6)


def test_weights_carry_no_gradient():
    old_BT, gen_BT = OLD_BT.clone().requires_grad_(), GEN_BT.clone().requires_grad_()
    for kind in ("none", "vanilla", "truncated"):
        assert not importance_weights(old_BT, gen_BT, MASK_BT, kind=kind).requires_grad


def test_malformed_arguments_raise():
    with pytest.raises(ValueError, match=r"got \(2, 3\), \(2, 3\), \(2, 1\)"):
        importance_weights(OLD_BT, GEN_BT, MASK_BT[:, :1])
    with pytest.raises(ValueError, match=r"one shape \(B, T\)"):
        importance_weights(OLD_BT[0], GEN_BT[0], MASK_BT[0])
    with pytest.raises(ValueError, match="cap is 0"):
        importance_weights(OLD_BT, GEN_BT, MASK_BT, cap=0)
