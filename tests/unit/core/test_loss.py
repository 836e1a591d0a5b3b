"""The loss against numbers by hand, a naive reference, and the closed form of its gradient."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.core import DropReason, ftis_loss


def test_by_hand():
    """Three samples, epsilon 0.2, cap 2, limit 1 nat; every factor once.

    own       A = 1    R = 1.1  w = 1.5      1.5 * 1.1                       = 1.65
                       R = 1.5  w = 1        clipped: 1 * 1.2                = 1.2     mean 1.425
    external  A = -1   (dropped: not better than its group)                            mean 0
    external  A = 2    R = 0.9  w = 3 -> 2   2 * 0.9 * 2                     = 3.6     mean 3.6
              KL: exp(d) - 1 - d with exp(d) = 3: 3 - 1 - log 3              = 0.9014  kept
    loss = -(1.425 + 0 + 3.6) / 3 = -1.675
    gradients = -(1/3)(1/length) w R A:  -(1/6) 1.65 = -0.275, 0 (clipped), 0, 0, -(1/3) 3.6 = -1.2
    """
    log = math.log
    old_BT = torch.tensor([[-1.0, -2.0], [-1.0, -1.0], [-1.0, 0.0]], dtype=torch.float64)
    theta_BT = old_BT + torch.tensor([[log(1.1), log(1.5)], [0.3, 0.1], [log(0.9), 0.0]], dtype=torch.float64)
    gen_BT = old_BT - torch.tensor([[log(1.5), 0.0], [0.2, 0.2], [log(3), 0.0]], dtype=torch.float64)
    theta_BT.requires_grad_()
    mask_BT = torch.tensor([[1, 1], [1, 1], [1, 0]])
    advantage_B = torch.tensor([1.0, -1.0, 2.0])
    result = ftis_loss(
        theta_BT, old_BT, gen_BT, mask_BT, advantage_B, torch.tensor([False, True, True]), kl_limit_nats=1.0
    )
    assert result.loss.item() == pytest.approx(-1.675, abs=1e-12)
    assert result.keep_B.tolist() == [True, False, True]
    assert result.reason_B.tolist() == [DropReason.KEPT, DropReason.ADVANTAGE, DropReason.KEPT]
    assert result.kl_B[2].item() == pytest.approx(2 - log(3), abs=1e-12)
    assert result.clipped_BT.tolist() == [[False, True], [False, False], [False, False]]
    expected_BT = torch.tensor([[1.5, 1.0], [math.exp(0.2), math.exp(0.2)], [2.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(result.weight_BT, expected_BT, rtol=0, atol=1e-12)
    result.loss.backward()
    expected_BT = torch.tensor([[-0.275, 0.0], [0.0, 0.0], [-1.2, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(theta_BT.grad, expected_BT, rtol=0, atol=1e-12)


def test_clip_has_two_sides():
    """A > 0 is clipped above 1 + epsilon_high only, A < 0 below 1 - epsilon only: the pessimistic one of the two."""
    ratio_BT = torch.tensor([[0.5, 0.95, 1.25, 1.5]] * 2, dtype=torch.float64)
    theta_BT = ratio_BT.log().requires_grad_()
    zero_BT = torch.zeros(2, 4, dtype=torch.float64)
    result = ftis_loss(
        theta_BT, zero_BT, zero_BT, zero_BT == 0, torch.tensor([1.0, -1.0]), zero_BT[:, 0] == 1,
        epsilon=0.1, epsilon_high=0.3,
    )  # fmt: skip
    assert result.clipped_BT.tolist() == [[False, False, False, True], [True, False, False, False]]
    # (0.5 + 0.95 + 1.25 + 1.3)/4 = 1 and -(0.9 + 0.95 + 1.25 + 1.5)/4 = -1.15
    assert result.loss.item() == pytest.approx(-(1.0 - 1.15) / 2, abs=1e-12)
    result.loss.backward()
    expected_BT = torch.tensor([[0.5, 0.95, 1.25, 0], [0, -0.95, -1.25, -1.5]], dtype=torch.float64) / -8
    torch.testing.assert_close(theta_BT.grad, expected_BT, rtol=0, atol=1e-12)


def test_gradient_is_weight_times_ratio_times_advantage(make_batch):
    """Closed form in the unclipped region; a weight that is not detached would change it."""
    batch = make_batch()
    result = batch.loss(rule="off", epsilon=0.99, epsilon_high=1e6, weights="vanilla")
    length_B = batch.mask_BT.sum(1)
    ratio_BT = (batch.theta_BT - batch.old_BT).detach().exp()
    weight_BT = (batch.old_BT - batch.gen_BT).exp()
    scale_B = batch.advantage_B / (length_B * 16)
    expected_BT = -scale_B[:, None] * weight_BT * ratio_BT * batch.mask_BT
    (gradient_BT,) = torch.autograd.grad(result.loss, batch.theta_BT)
    torch.testing.assert_close(gradient_BT, expected_BT, rtol=0, atol=1e-12)


def test_gradient_agrees_with_finite_differences(make_batch):
    batch = make_batch(seed=3)
    gradient_BT = batch.gradient(rule="off")
    step = 1e-6
    for row, column in [(0, 0), (5, 0), (9, 0), (12, 0)]:
        shift_BT = torch.zeros_like(batch.old_BT)
        shift_BT[row, column] = step
        up = batch.rows(slice(None))
        up.theta_BT = batch.theta_BT.detach() + shift_BT
        down = batch.rows(slice(None))
        down.theta_BT = batch.theta_BT.detach() - shift_BT
        slope = (up.loss(rule="off").loss - down.loss(rule="off").loss) / (2 * step)
        assert slope.item() == pytest.approx(gradient_BT[row, column].item(), abs=1e-8)


LOGP = st.floats(-6, 0).map(lambda x: round(x, 3))
TOKENS = st.lists(st.tuples(LOGP, st.floats(-2, 2), st.floats(-0.5, 0.5)), min_size=0, max_size=5)
SAMPLES = st.lists(
    st.tuples(TOKENS, st.sampled_from([-1.3, -0.4, 0.0, 0.7, 1.9]), st.booleans()), min_size=1, max_size=6
)
SETTINGS = st.builds(
    reference.Settings,
    epsilon=st.sampled_from([0.1, 0.2, 0.5]),
    epsilon_high=st.sampled_from([0.15, 0.25, 1.0]),
    weights=st.sampled_from(["none", "vanilla", "truncated"]),
    cap=st.sampled_from([0.5, 1.5, 3.0]),
    level=st.sampled_from(["token", "sequence"]),
    rule=st.sampled_from(["either", "both", "off"]),
    kl_limit_nats=st.sampled_from([0.1, 1.0, 5.0]),
    kl_estimator=st.sampled_from(["k1", "k2", "k3"]),
    kl_reduction=st.sampled_from(["sum", "mean"]),
)


def to_samples(drawn) -> list[reference.Sample]:
    samples = []
    for tokens, advantage, is_external in drawn:
        gen = [token[0] for token in tokens]
        old = [gen_t + token[1] for gen_t, token in zip(gen, tokens, strict=True)]
        theta = [old_t + token[2] for old_t, token in zip(old, tokens, strict=True)]
        samples.append(reference.Sample(theta, old, gen, advantage, is_external))
    return samples


def padded(rows: list[list[float]], pad: float) -> torch.Tensor:
    longest = max(map(len, rows)) + 1
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows], dtype=torch.float64)


@given(SAMPLES, SETTINGS, st.sampled_from([0.0, -1.0, math.nan, -math.inf, math.inf]))
def test_agrees_with_the_naive_reference(drawn, settings, pad):
    samples = to_samples(drawn)
    theta_BT = padded([sample.theta for sample in samples], pad).requires_grad_()
    mask_BT = padded([[1.0] * len(sample.theta) for sample in samples], 0.0)
    result = ftis_loss(
        theta_BT,
        padded([sample.old for sample in samples], pad),
        padded([sample.gen for sample in samples], pad),
        mask_BT,
        torch.tensor([sample.advantage for sample in samples], dtype=torch.float64),
        torch.tensor([sample.is_external for sample in samples]),
        **vars(settings),
    )
    result.loss.backward()
    loss, gradient = reference.loss_and_gradient(samples, settings)
    assert result.loss.item() == pytest.approx(loss, abs=1e-9)
    torch.testing.assert_close(theta_BT.grad, padded(gradient, 0.0), rtol=0, atol=1e-9)
    assert result.keep_B.tolist() == [reference.is_kept(sample, settings) for sample in samples]
    expected_BT = padded([reference.weights(sample.old, sample.gen, settings) for sample in samples], 0.0)
    torch.testing.assert_close(result.weight_BT, expected_BT, rtol=0, atol=1e-9)
    expected_B = torch.tensor([reference.kl(s.old, s.gen, settings) for s in samples], dtype=torch.float64)
    torch.testing.assert_close(result.kl_B, expected_B, rtol=0, atol=1e-9)


def test_malformed_arguments_raise(make_batch):
    batch = make_batch()
    column_B1 = batch.advantage_B[:, None]
    with pytest.raises(ValueError, match=r"got \(16, 1\)"):
        ftis_loss(batch.theta_BT, batch.old_BT, batch.gen_BT, batch.mask_BT, column_B1, batch.external_B)
    with pytest.raises(ValueError, match=r"\(16, 6\)"):
        ftis_loss(batch.theta_BT, batch.old_BT[:, 1:], batch.gen_BT, batch.mask_BT, column_B1[:, 0], batch.external_B)
    with pytest.raises(ValueError, match="a mean over 0 samples"):
        batch.loss(denominator=0)
    with pytest.raises(ValueError, match="a mean over 0 samples"):
        batch.rows(slice(0, 0)).loss()


@pytest.mark.parametrize(
    ("given_dtype", "computed"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_computes_in_the_dtype_given_but_at_least_in_single_precision(make_batch, given_dtype, computed):
    batch = make_batch(dtype=given_dtype)
    result = batch.loss()
    assert (result.loss.dtype, result.weight_BT.dtype, result.kl_B.dtype) == (computed, computed, computed)
    result.loss.backward()
    assert batch.theta_BT.grad.dtype == given_dtype


def test_only_the_loss_has_a_graph(make_batch):
    batch = make_batch()
    batch.old_BT.requires_grad_()
    batch.gen_BT.requires_grad_()
    batch.advantage_B.requires_grad_()
    result = batch.loss()
    assert not any(x.requires_grad for x in (result.keep_B, result.weight_BT, result.kl_B, result.reason_B))
    assert not result.clipped_BT.requires_grad
    result.loss.backward()
    assert batch.old_BT.grad is None
    assert batch.gen_BT.grad is None
    assert batch.advantage_B.grad is None
