"""Mistakes that are easy to make in this loss, each by name."""

from __future__ import annotations

import math

import pytest
import torch

from motet.core import DropReason, ftis_loss, group_advantages

BAD = [math.nan, math.inf, -math.inf]


def external(theta, old, gen, **settings):
    """Loss of one external sample with advantage 1 and the given token log-probs."""
    theta_BT = torch.tensor([theta]).requires_grad_()
    old_BT, gen_BT = torch.tensor([old]), torch.tensor([gen])
    result = ftis_loss(
        theta_BT, old_BT, gen_BT, torch.ones_like(old_BT), torch.ones(1), torch.tensor([True]), **settings
    )
    result.loss.backward()
    return result, theta_BT.grad


def test_kl_sign():
    """A sampler sure of what we find unlikely is far away: sum(logp_old - logp_gen) = -60 never exceeds 50."""
    # d = -6 at each token: k3 = e^-6 - 1 + 6 = 5.0025, so 9 tokens stay below 50 nats and 10 do not.
    result, _ = external([-6.1] * 9, [-6.1] * 9, [-0.1] * 9)
    assert result.kl_B.item() == pytest.approx(9 * (math.exp(-6) + 5), rel=1e-6)
    assert result.reason_B.tolist() == [DropReason.KEPT]
    result, _ = external([-6.1] * 10, [-6.1] * 10, [-0.1] * 10)
    assert result.reason_B.tolist() == [DropReason.KL]


def test_sum_against_mean():
    """50 nats is a limit on the completion. As a limit on the mean of a token it would drop nothing."""
    far = ([-4.0] * 40, [-4.0] * 40, [-1.0] * 40)
    result, _ = external(*far)
    assert result.keep_B.tolist() == [False]
    result, _ = external(*far, kl_reduction="mean")
    assert result.keep_B.tolist() == [True]
    assert result.kl_B.item() == pytest.approx(math.exp(-3) + 2, rel=1e-6)


@pytest.mark.parametrize("kind", ["vanilla", "truncated"])
def test_weight_is_detached_even_if_old_is_theta_itself(kind):
    """At the first update people pass the same tensor as theta and old: the gradient must not double."""
    theta_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    gen_BT = torch.tensor([[-1.5, -1.0]])
    own_B = torch.tensor([False])
    ftis_loss(theta_BT, theta_BT, gen_BT, torch.ones(1, 2), torch.ones(1), own_B, weights=kind).loss.backward()
    torch.testing.assert_close(theta_BT.grad, -torch.tensor([[math.exp(0.5), math.exp(-1)]]) / 2)


@pytest.mark.parametrize("rule", ["either", "both", "off"])
@pytest.mark.parametrize("weights", ["none", "vanilla", "truncated"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("which", ["theta_BT", "old_BT", "gen_BT", "advantage_B"])
def test_one_row_that_is_not_finite_harms_no_other(make_batch, which, bad, level, weights, rule):
    """Own (row 0) and external (row 4) alike: dropped with their reason, and the others as if the rows were empty."""
    settings = {"rule": rule, "weights": weights, "level": level}
    batch = make_batch(seed=1)
    rows = [0, 4]
    batch.mask_BT[rows] = True
    others = batch.rows([row for row in range(16) if row not in rows])
    with torch.no_grad():
        if which == "advantage_B":
            batch.advantage_B[rows] = bad
        else:
            getattr(batch, which)[rows, 2] = bad
    result = batch.loss(**settings)
    assert result.reason_B[rows].tolist() == [DropReason.NON_FINITE] * 2
    assert not result.keep_B[rows].any()
    assert (result.reason_B == DropReason.NON_FINITE).sum() == 2
    torch.testing.assert_close(result.loss, others.loss(denominator=16, **settings).loss)
    gradient_BT = batch.gradient(**settings)
    assert torch.isfinite(gradient_BT).all()
    assert not gradient_BT[rows].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("gap", [-1e30, -200.0, 200.0, 1e30])
def test_log_ratios_do_not_overflow(dtype, advantage, gap):
    """theta far from old and old far from gen: exp overflows, and inf * 0 in the branch not taken would be NaN."""
    for theta_gap, gen_gap in [(gap, 0.0), (0.0, gap), (gap, gap), (gap, -gap)]:
        theta_BT = torch.tensor([[theta_gap, -1.0]], dtype=dtype, requires_grad=True)
        old_BT = torch.tensor([[0.0, -1.0]], dtype=dtype)
        gen_BT = torch.tensor([[gen_gap, -1.0]], dtype=dtype)
        for weights in ("vanilla", "truncated"):
            for rule in ("off", "either"):
                result = ftis_loss(
                    theta_BT, old_BT, gen_BT, torch.ones(1, 2), torch.tensor([advantage]), torch.tensor([True]),
                    weights=weights, rule=rule,
                )  # fmt: skip
                (gradient_BT,) = torch.autograd.grad(result.loss, theta_BT)
                assert torch.isfinite(result.loss)
                assert torch.isfinite(gradient_BT).all()


def test_the_clamp_changes_nothing_within_its_range():
    """Value and gradient at log-ratios of 19.9, where a clamp at a smaller bound would show."""
    theta_BT = torch.tensor([[19.9]], dtype=torch.float64, requires_grad=True)
    zero_BT = torch.zeros(1, 1, dtype=torch.float64)
    result = ftis_loss(theta_BT, zero_BT, zero_BT, zero_BT + 1, -torch.ones(1), torch.tensor([False]))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(math.exp(19.9), rel=1e-12)
    assert theta_BT.grad.item() == pytest.approx(math.exp(19.9), rel=1e-12)


def test_forged_low_log_probs_gain_no_more_than_the_cap():
    """logp_gen far below the truth makes the ratio huge: k3 drops it, and without the filter the cap holds it."""
    forged = ([-1.0, -1.0], [-1.0, -1.0], [-100.0, -100.0])
    result, gradient_BT = external(*forged)
    assert result.reason_B.tolist() == [DropReason.KL]
    assert not gradient_BT.any()
    result, gradient_BT = external(*forged, rule="off")
    assert result.weight_BT.tolist() == [[2.0, 2.0]]
    assert gradient_BT.tolist() == [[-1.0, -1.0]]


def test_lying_log_probs_pass_k1_and_not_k3():
    lying = ([-1.0] * 20, [-1.0] * 20, [-3.0] * 20)  # k1 = -40 nats, k3 = 20 (e^2 - 3) = 87.8 nats
    result, _ = external(*lying, kl_estimator="k1")
    assert result.keep_B.tolist() == [True]
    result, _ = external(*lying)
    assert result.reason_B.tolist() == [DropReason.KL]


def test_group_of_one_and_zero_variance_teach_nothing():
    reward_B = torch.tensor([1.0, 0.1, 0.1, 0.1])
    advantage_B = group_advantages(reward_B, torch.tensor([0, 1, 1, 1]))
    logp_BT = torch.full((4, 3), -1.0, requires_grad=True)
    result = ftis_loss(logp_BT, logp_BT, logp_BT, torch.ones(4, 3), advantage_B, torch.tensor([True, False] * 2))
    result.loss.backward()
    assert result.loss.item() == 0
    assert not logp_BT.grad.any()


def test_sequence_weight_is_one_for_the_completion_and_capped_once():
    """Ratios e^3 and e^-3 cancel over the completion; capped token by token they would not."""
    result, _ = external([-1.0, -4.0], [-1.0, -4.0], [-4.0, -1.0], level="sequence")
    assert result.weight_BT.tolist() == [[1.0, 1.0]]
    result, _ = external([-1.0, -4.0], [-1.0, -4.0], [-4.0, -1.0])
    assert result.weight_BT[0].tolist() == pytest.approx([2.0, math.exp(-3)])


def test_the_weight_multiplies_after_the_clip():
    """w * clip(R): with the weight inside the clip, w R = 1.9 would have been clipped to 1.2."""
    result, _ = external([0.0], [0.0], [-math.log(1.9)], kl_limit_nats=10)
    assert result.loss.item() == pytest.approx(-1.9, rel=1e-6)
