"""What must not change the loss, and what it must reduce to."""

from __future__ import annotations

import pytest
import torch

from motet.core import DropReason, ftis_loss

ALL_WEIGHTS = ["none", "vanilla", "truncated"]


def plain_grpo(batch, epsilon: float = 0.2) -> torch.Tensor:
    """GRPO with one policy, a mean over samples of means over tokens; neither weights nor filter."""
    ratio_BT = torch.exp(batch.theta_BT - batch.old_BT)
    advantage_B1 = batch.advantage_B[:, None]
    token_BT = torch.min(ratio_BT * advantage_B1, ratio_BT.clamp(1 - epsilon, 1 + epsilon) * advantage_B1)
    sample_B = (token_BT * batch.mask_BT).sum(1) / batch.mask_BT.sum(1)
    return -sample_B.mean()


@pytest.mark.parametrize("weights", ALL_WEIGHTS)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("rule", ["either", "both", "off"])
def test_own_samples_alone_are_plain_grpo_bit_for_bit(make_batch, weights, level, rule):
    batch = make_batch()
    batch.gen_BT = batch.old_BT.clone()
    batch.external_B = torch.zeros(16, dtype=torch.bool)
    loss = batch.loss(weights=weights, level=level, rule=rule).loss
    expected = plain_grpo(batch)
    assert torch.equal(loss, expected)
    (gradient_BT,) = torch.autograd.grad(loss, batch.theta_BT)
    (expected_BT,) = torch.autograd.grad(expected, batch.theta_BT)
    assert torch.equal(gradient_BT, expected_BT)


def test_without_weights_and_filter_external_samples_are_plain_grpo_too(make_batch):
    batch = make_batch()
    assert torch.equal(batch.loss(weights="none", rule="off").loss, plain_grpo(batch))
    assert not torch.equal(batch.loss(rule="off").loss, plain_grpo(batch))


def test_at_the_first_update_the_gradient_is_the_policy_gradient(make_batch):
    batch = make_batch()
    batch.theta_BT = batch.old_BT.clone().requires_grad_()
    batch.external_B = torch.zeros(16, dtype=torch.bool)
    expected_BT = -(batch.advantage_B / batch.mask_BT.sum(1) / 16)[:, None] * batch.mask_BT
    torch.testing.assert_close(batch.gradient(weights="none"), expected_BT, rtol=0, atol=1e-15)


@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_order_of_samples_does_not_matter(make_batch, weights):
    batch = make_batch()
    order_B = torch.randperm(16, generator=torch.Generator().manual_seed(5))
    shuffled = batch.rows(order_B)
    torch.testing.assert_close(shuffled.loss(weights=weights).loss, batch.loss(weights=weights).loss)
    torch.testing.assert_close(
        shuffled.gradient(weights=weights), batch.gradient(weights=weights)[order_B], rtol=0, atol=0
    )


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("pad", [0.0, float("nan"), float("inf"), float("-inf")])
def test_padding_does_not_matter(make_batch, level, pad):
    batch = make_batch()
    wider = batch.rows(slice(None))
    for name in ("old_BT", "gen_BT"):
        narrow_BT = getattr(batch, name).masked_fill(~batch.mask_BT, pad)
        setattr(wider, name, torch.nn.functional.pad(narrow_BT, (0, 3), value=pad))
    theta_BT = torch.nn.functional.pad(batch.theta_BT.detach().masked_fill(~batch.mask_BT, pad), (0, 3), value=pad)
    wider.theta_BT = theta_BT.requires_grad_()
    wider.mask_BT = torch.nn.functional.pad(batch.mask_BT, (0, 3), value=False)
    torch.testing.assert_close(wider.loss(level=level).loss, batch.loss(level=level).loss, rtol=0, atol=1e-14)
    gradient_BT = wider.gradient(level=level)
    torch.testing.assert_close(gradient_BT[:, :7], batch.gradient(level=level), rtol=0, atol=1e-14)
    assert torch.equal(gradient_BT[:, 7:], torch.zeros(16, 3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float32])
def test_the_dtype_of_mask_and_flags_does_not_matter(make_batch, dtype):
    batch = make_batch()
    expected = batch.loss().loss
    batch.mask_BT, batch.external_B = batch.mask_BT.to(dtype), batch.external_B.to(dtype)
    assert torch.equal(batch.loss().loss, expected)


@pytest.mark.parametrize("sizes", [[16], [8, 8], [1, 5, 10], [1] * 16])
def test_micro_batches_add_up_to_the_batch(make_batch, sizes):
    batch = make_batch()
    expected_BT = batch.gradient()
    parts = [batch.rows(index_B) for index_B in torch.arange(16).split(sizes)]
    losses = [part.loss(denominator=16).loss for part in parts]
    torch.testing.assert_close(torch.stack(losses).sum(), batch.loss().loss)
    gradients = [part.gradient(denominator=16) for part in parts]
    torch.testing.assert_close(torch.cat(gradients), expected_BT, rtol=0, atol=1e-15)


def test_samples_without_advantage_can_be_left_out_of_the_backward_pass(make_batch):
    batch = make_batch()
    result = batch.loss()
    alive_B = result.keep_B & (batch.advantage_B != 0)
    assert 0 < alive_B.sum() < 16
    alive = batch.rows(alive_B)
    torch.testing.assert_close(alive.loss(denominator=16).loss, result.loss)
    gradient_BT = batch.gradient()
    torch.testing.assert_close(alive.gradient(denominator=16), gradient_BT[alive_B], rtol=0, atol=1e-15)
    assert not gradient_BT[~alive_B].any()


def test_dropped_samples_count_in_the_denominator(make_batch):
    batch = make_batch()
    result = batch.loss()
    assert not result.keep_B.all()
    kept = batch.rows(result.keep_B)
    torch.testing.assert_close(kept.loss().loss * result.keep_B.sum() / 16, result.loss)


def test_everything_dropped_gives_zero_and_a_backward_that_works(make_batch):
    batch = make_batch()
    batch.external_B = torch.ones(16, dtype=torch.bool)
    result = batch.loss(kl_limit_nats=1e-12)
    assert not result.keep_B.any()
    assert set(result.reason_B.tolist()) <= {DropReason.KL, DropReason.ADVANTAGE_AND_KL}
    assert result.loss.item() == 0
    result.loss.backward()
    assert torch.equal(batch.theta_BT.grad, torch.zeros(16, 7, dtype=torch.float64))


def test_empty_completions_contribute_nothing_but_count(make_batch):
    batch = make_batch()
    batch.mask_BT[2] = False
    batch.advantage_B[2] = 3.0
    others = batch.rows(torch.arange(16) != 2)
    torch.testing.assert_close(batch.loss().loss, others.loss(denominator=16).loss)
    assert not batch.gradient()[2].any()
    nothing_BT = torch.zeros(2, 0, requires_grad=True)
    result = ftis_loss(nothing_BT, nothing_BT, nothing_BT, nothing_BT, torch.ones(2), torch.tensor([True, False]))
    result.loss.backward()
    assert result.loss.item() == 0


def test_arguments_are_not_changed(make_batch):
    batch = make_batch()
    copies = [tensor.detach().clone() for tensor in vars(batch).values()]
    batch.loss().loss.backward()
    assert all(torch.equal(copy, tensor) for copy, tensor in zip(copies, vars(batch).values(), strict=True))
