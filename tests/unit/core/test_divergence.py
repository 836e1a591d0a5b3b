from __future__ import annotations

import math

import pytest
import torch

from motet.core import kl_gen_old

OLD_BT = torch.tensor([[-1.0, -2.0, -1.5], [-1.0, -3.0, -9.0]], dtype=torch.float64)
GEN_BT = torch.tensor([[-1.5, -1.0, -1.5], [-3.0, -2.0, -1.0]], dtype=torch.float64)
MASK_BT = torch.tensor([[1, 1, 1], [1, 1, 0]])
# d = logp_old - logp_gen: 0.5, -1, 0 and 2, -1


@pytest.mark.parametrize(
    ("estimator", "expected_B"),
    [
        ("k1", [-0.5 + 1 - 0, -2 + 1]),
        ("k2", [0.125 + 0.5, 2 + 0.5]),
        ("k3", [(math.exp(0.5) - 1.5) + math.exp(-1), (math.exp(2) - 3) + math.exp(-1)]),
    ],
)
def test_by_hand(estimator, expected_B):
    expected_B = torch.tensor(expected_B, dtype=torch.float64)
    sum_B = kl_gen_old(OLD_BT, GEN_BT, MASK_BT, estimator=estimator)
    torch.testing.assert_close(sum_B, expected_B, rtol=0, atol=1e-12)
    mean_B = kl_gen_old(OLD_BT, GEN_BT, MASK_BT, estimator=estimator, reduction="mean")
    torch.testing.assert_close(mean_B, expected_B / torch.tensor([3, 2]), rtol=0, atol=1e-12)


def test_sign_on_samples_of_the_generator():
    """On samples of pi_gen, k1 and k3 both average to KL(pi_gen || pi_old), and d = logp_old - logp_gen to -KL."""
    gen_V = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    old_V = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    exact = (gen_V * (gen_V / old_V).log()).sum().item()
    token_N = torch.tensor([0] * 7 + [1] * 2 + [2])  # exactly the shares in which pi_gen draws them
    old_NT, gen_NT = old_V.log()[token_N, None], gen_V.log()[token_N, None]
    for estimator in ("k1", "k3"):
        kl_N = kl_gen_old(old_NT, gen_NT, torch.ones(10, 1), estimator=estimator)
        assert kl_N.mean().item() == pytest.approx(exact, rel=1e-12)
    assert exact > 0 > (old_NT - gen_NT).mean()


def test_lying_log_probs_make_k1_negative_and_k3_large():
    """A sampler that claims too low log-probs gets under every limit with k1, and under none with k3."""
    old_BT = torch.full((1, 10), -1.0)
    forged_BT = torch.full((1, 10), -4.0)
    assert kl_gen_old(old_BT, forged_BT, torch.ones(1, 10), estimator="k1").item() == pytest.approx(-30)
    assert kl_gen_old(old_BT, forged_BT, torch.ones(1, 10)).item() == pytest.approx(10 * (math.exp(3) - 4), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("forged", [-1e3, -1e9, -1e30])
def test_very_low_forged_log_probs_do_not_turn_k3_negative(forged, dtype):
    kl_B = kl_gen_old(torch.tensor([[-1.0]], dtype=dtype), torch.tensor([[forged]], dtype=dtype), torch.ones(1, 1))
    assert kl_B.item() == pytest.approx(math.exp(20) - 21, rel=1e-6)


def test_a_token_that_we_would_never_write_is_not_hidden_by_a_clamp():
    # d = -60: k3 = e^-60 - 1 + 60 = 59, above the limit of 50; with d clamped at -20 it would be 19.
    kl_B = kl_gen_old(torch.tensor([[-60.5]]), torch.tensor([[-0.5]]), torch.ones(1, 1))
    assert kl_B.item() == pytest.approx(59)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_padding_and_empty_completions(reduction):
    mask_BT = torch.tensor([[1, 1, 0], [0, 0, 0]])
    bad_BT = OLD_BT.masked_fill(mask_BT == 0, math.nan)
    kl_B = kl_gen_old(bad_BT, GEN_BT.masked_fill(mask_BT == 0, -math.inf), mask_BT, reduction=reduction)
    assert torch.equal(kl_B[:1], kl_gen_old(OLD_BT[:1, :2], GEN_BT[:1, :2], mask_BT[:1, :2], reduction=reduction))
    assert kl_B[1] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_log_prob_that_is_no_number_exceeds_every_limit(bad, estimator, reduction):
    for old, gen in ((bad, -1.0), (-1.0, bad), (bad, bad)):
        old_BT, gen_BT = torch.tensor([[-1.0, old]]), torch.tensor([[-1.0, gen]])
        kl_B = kl_gen_old(old_BT, gen_BT, torch.ones(1, 2), estimator=estimator, reduction=reduction)
        assert kl_B.item() == math.inf


def test_carries_no_gradient_and_keeps_the_dtype():
    old_BT, gen_BT = OLD_BT.clone().requires_grad_(), GEN_BT.clone().requires_grad_()
    kl_B = kl_gen_old(old_BT, gen_BT, MASK_BT)
    assert not kl_B.requires_grad
    assert kl_B.dtype == torch.float64
    assert kl_gen_old(OLD_BT.half(), GEN_BT.half(), MASK_BT).dtype == torch.float32
