"""Weights and rules that are not ours, where `motet.core` takes one of its own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from motet.core import DropReason, drop_reasons, ftis_loss, importance_weights, keep_mask, loss_diagnostics


def truncated(logp_old_BT: Tensor, logp_gen_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return (logp_old_BT - logp_gen_BT).clamp(-20, 20).exp().clamp(max=2.0) * mask_BT


def either(advantage_B: Tensor, kl_B: Tensor, is_external_B: Tensor) -> Tensor:
    return (advantage_B > 0) & (kl_B <= 1.0)  # of own samples too, which are kept all the same


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_own_functions_equal_to_ours_give_the_same_bits(make_batch, dtype):
    batch = make_batch(dtype=dtype)
    ours = batch.loss(weights="truncated", rule="either", kl_limit_nats=1.0)
    own = batch.loss(weights=truncated, rule=either)
    assert 0 < (ours.keep_B & batch.external_B).sum() < batch.external_B.sum()
    for name in ("loss", "keep_B", "weight_BT", "kl_B", "clipped_BT"):
        assert torch.equal(getattr(own, name), getattr(ours, name)), name
    assert own.weight_BT.dtype == dtype
    gradient_BT = batch.gradient(weights=truncated, rule=either)
    assert torch.equal(gradient_BT, batch.gradient(weights="truncated", rule="either", kl_limit_nats=1.0))


def test_what_an_own_rule_drops_has_a_reason_of_its_own():
    advantage_B, kl_B = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0]), torch.tensor([0.0, 0.0, 9.0, 0.0, 0.0])
    external_B, finite_B = torch.tensor([1, 1, 1, 0, 1]), torch.tensor([True, True, True, True, False])
    reason_B = drop_reasons(advantage_B, kl_B, external_B, rule=either, finite_B=finite_B)
    kept, rule = DropReason.KEPT, DropReason.RULE
    assert reason_B.tolist() == [kept, rule, rule, kept, DropReason.NON_FINITE]
    assert reason_B.dtype == torch.int8


def test_own_samples_are_kept_by_any_rule():
    def never(_advantage_B: Tensor, _kl_B: Tensor, is_external_B: Tensor) -> Tensor:
        return torch.zeros_like(is_external_B)

    assert keep_mask(torch.ones(2), torch.zeros(2), torch.tensor([True, False]), rule=never).tolist() == [False, True]


def test_a_function_sees_copies_and_no_padding(make_batch):
    batch, seen = make_batch(), []

    def spoils(old_BT: Tensor, gen_BT: Tensor, mask_BT: Tensor) -> Tensor:
        seen.append((bool(old_BT[~mask_BT].any()), old_BT.requires_grad, mask_BT.dtype))
        weight_BT = torch.where(mask_BT, 1.0, torch.nan)
        for given in (old_BT, gen_BT, mask_BT):
            given.zero_()
        return weight_BT

    def spoils_too(advantage_B: Tensor, kl_B: Tensor, is_external_B: Tensor) -> Tensor:
        keep_B = torch.ones_like(is_external_B)
        for given in (advantage_B, kl_B, is_external_B):
            given.zero_()
        return keep_B

    batch.old_BT[~batch.mask_BT] = math.nan
    own = batch.loss(weights=spoils, rule=spoils_too)
    assert torch.equal(own.loss, batch.loss(weights="none", rule="off").loss)
    assert seen[0] == (False, False, torch.bool)


def test_a_token_without_a_log_prob_weighs_nothing():
    old_BT, gen_BT = torch.tensor([[-1.0, math.nan, -1.0]]), torch.full((1, 3), -2.0)
    weight_BT = importance_weights(old_BT, gen_BT, torch.tensor([[1, 1, 0]]), kind=lambda old, gen, _: old - gen)
    assert weight_BT.tolist() == [[1.0, 0.0, 0.0]]


def test_own_weights_carry_no_gradient(make_batch):
    batch, factor = make_batch(), torch.tensor(2.0, requires_grad=True)

    def weighs(old_BT: Tensor, gen_BT: Tensor, mask_BT: Tensor) -> Tensor:
        return factor * mask_BT

    assert not batch.loss(weights=weighs).weight_BT.requires_grad
    assert torch.equal(batch.gradient(weights=weighs, rule="off"), 2 * batch.gradient(weights="none", rule="off"))


def test_diagnostics_take_own_weights(make_batch):
    batch = make_batch()
    reason_B = drop_reasons(batch.advantage_B, torch.zeros(16), batch.external_B)
    given = (batch.old_BT, batch.gen_BT, batch.mask_BT, batch.advantage_B, batch.external_B, reason_B)
    group_B = torch.arange(16) // 4
    assert loss_diagnostics(*given, group_B, weights=truncated) == loss_diagnostics(
        *given, group_B, weights="truncated"
    )


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda *_: None, "returned NoneType; a weight needs a tensor"),
        (lambda old, *_: old.sum(dim=1), r"returned shape \(2,\); a weight needs \(2, 3\), one for each token"),
        (lambda _old, _gen, mask: mask, "returned torch.bool; a weight needs floats"),
        (lambda old, *_: old / 0.0, "returned a weight that is not finite"),
        (lambda old, *_: old, "returned a weight of -1; a weight needs 0 or more"),
        (lambda *_: torch.empty(2, 3, device="meta"), "on meta; a weight needs one on cpu"),
    ],
)
def test_what_is_no_weight_is_refused_by_name(returned, words):
    returned.__name__ = "mine.py:weights"
    logp_BT = -torch.ones(2, 3)
    with pytest.raises(ValueError, match=f"mine.py:weights .*{words}"):
        importance_weights(logp_BT, logp_BT, torch.ones(2, 3), kind=returned)
    with pytest.raises(ValueError, match=r"mine\.py:weights"):
        ftis_loss(logp_BT, logp_BT, logp_BT, torch.ones(2, 3), torch.ones(2), torch.ones(2), weights=returned)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda *_: True, "returned bool; a rule needs a tensor"),
        (lambda _advantage, _kl, external: external[:1], r"returned shape \(1,\); a rule needs \(2,\)"),
        (lambda advantage, *_: advantage, "returned torch.float32; a rule needs torch.bool"),
    ],
)
def test_what_is_no_verdict_is_refused_by_name(returned, words):
    with pytest.raises(ValueError, match=f"<lambda> {words}"):
        keep_mask(torch.ones(2), torch.ones(2), torch.ones(2), rule=returned)
