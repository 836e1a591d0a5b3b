"""Numbers that tell whether off-policy learning is healthy, measured on one batch."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.core.choices import Level, WeightFunction, WeightKind
from motet.core.divergence import kl_gen_old
from motet.core.filters import DropReason
from motet.core.importance import importance_weights, is_known


def loss_diagnostics(
    logp_old_BT: Tensor,
    logp_gen_BT: Tensor,
    mask_BT: Tensor,
    advantage_B: Tensor,
    is_external_B: Tensor,
    reason_B: Tensor,
    group_B: Tensor,
    *,
    weights: WeightKind | WeightFunction = "truncated",
    cap: float = 2.0,
    level: Level = "token",
) -> dict[str, float]:
    """Health of a whole batch, by metric name.

    Of external samples (left out if there are none; samples with a log-prob that is not finite do not count
    in the first six):

        kl_gen_old/token_mean          mean k3 of a token, nats
        kl_gen_old/sum_p50, sum_p95    median and 95th percentile of a completion's summed k3, nats
        weight/mean_before_cap         mean of pi_old/pi_gen over tokens; near 1 if the log-probs mean what they say
        weight/capped_share            share of tokens whose ratio exceeds the cap
        weight/effective_sample_size   (sum w)^2 / (n sum w^2) of the ratios before the cap: 1 on-policy, towards 0 far
        filter/dropped_share           share of samples dropped, and filter/dropped/<reason> for each reason
        external/influence_share       their part of sum_i |A_i| mean_t w_it over kept samples, own ones included

    Of own samples (left out if there are none): self_check/logp_gap_mean and logp_gap_max, |logp_old - logp_gen| of a
    token in nats; self_check/weight_mean, mean of pi_old/pi_gen; self_check/non_finite_share, share of samples with
    numbers that are not finite. A generator and a scorer that agree give 0, 0, 1, 0.

    Of all: group/zero_variance_share, share of groups whose advantages are all 0.

    Args:
        logp_old_BT: log-probs under our policy when the batch began, nats, shape (B, T).
        logp_gen_BT: log-probs under the policy that sampled, nats, shape (B, T).
        mask_BT: true (or 1) on completion tokens, shape (B, T).
        advantage_B: advantages before the filter, shape (B,).
        is_external_B: true for samples of peers, shape (B,).
        reason_B: `DropReason` of each sample, shape (B,).
        group_B: integer labels of the groups, shape (B,).
        weights: kind of weight that the loss uses, or its function.
        cap: cap that the loss uses.
        level: level that the loss uses.

    Example:
        >>> logp_BT = torch.full((2, 3), -1.0)
        >>> numbers = loss_diagnostics(logp_BT, logp_BT, torch.ones(2, 3), torch.tensor([1.0, -1.0]),
        ...                            torch.tensor([True, True]), torch.tensor([0, 1]), torch.tensor([0, 0]))
        >>> numbers["weight/mean_before_cap"], numbers["filter/dropped_share"], numbers["filter/dropped/advantage"]
        (1.0, 0.5, 0.5)
    """
    mask_BT, external_B = mask_BT.bool(), is_external_B.bool()
    known_BT = is_known(mask_BT, logp_old_BT, logp_gen_BT)
    usable_BT = mask_BT & (known_BT == mask_BT).all(dim=1, keepdim=True)
    ratio_BT = importance_weights(logp_old_BT, logp_gen_BT, mask_BT, kind="vanilla", level=level)
    weight_BT = importance_weights(logp_old_BT, logp_gen_BT, mask_BT, kind=weights, cap=cap, level=level)
    kl_B = kl_gen_old(logp_old_BT, logp_gen_BT, mask_BT)

    numbers = {"group/zero_variance_share": _zero_variance_share(advantage_B, group_B)}
    external_BT = usable_BT & external_B[:, None]
    if bool(external_BT.any()):
        numbers |= _kl_numbers(kl_B, external_BT) | _weight_numbers(ratio_BT[external_BT], cap)
    if bool(external_B.any()):
        numbers |= _filter_numbers(reason_B[external_B])
        kept_B = reason_B == int(DropReason.KEPT)
        influence_B = advantage_B.abs() * weight_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
        total = influence_B[kept_B].sum().item()
        numbers["external/influence_share"] = influence_B[kept_B & external_B].sum().item() / total if total else 0.0
    own_BT = usable_BT & ~external_B[:, None]
    if bool((~external_B).any()):
        is_bad_B = reason_B[~external_B] == int(DropReason.NON_FINITE)
        numbers["self_check/non_finite_share"] = is_bad_B.double().mean().item()
    if bool(own_BT.any()):
        gap = (logp_old_BT[own_BT] - logp_gen_BT[own_BT]).abs().float()
        numbers["self_check/logp_gap_mean"] = gap.mean().item()
        numbers["self_check/logp_gap_max"] = gap.max().item()
        numbers["self_check/weight_mean"] = ratio_BT[own_BT].mean().item()
    return numbers


def _zero_variance_share(advantage_B: Tensor, group_B: Tensor) -> float:
    """Share of groups in which every advantage is 0."""
    num_groups = len(torch.unique(group_B))
    num_alive = len(torch.unique(group_B[advantage_B != 0]))
    return 1.0 - num_alive / num_groups if num_groups else 0.0


def _kl_numbers(kl_B: Tensor, usable_BT: Tensor) -> dict[str, float]:
    usable_B = usable_BT.any(dim=1)
    p50, p95 = torch.quantile(kl_B[usable_B], kl_B.new_tensor([0.5, 0.95])).tolist()
    return {
        "kl_gen_old/token_mean": (kl_B[usable_B].sum() / usable_BT.sum()).item(),
        "kl_gen_old/sum_p50": p50,
        "kl_gen_old/sum_p95": p95,
    }


def _weight_numbers(ratio: Tensor, cap: float) -> dict[str, float]:
    return {
        "weight/mean_before_cap": ratio.mean().item(),
        "weight/capped_share": (ratio > cap).double().mean().item(),
        "weight/effective_sample_size": (ratio.sum().square() / (ratio.numel() * ratio.square().sum())).item(),
    }


def _filter_numbers(reason: Tensor) -> dict[str, float]:
    numbers = {"filter/dropped_share": (reason != int(DropReason.KEPT)).double().mean().item()}
    for code in DropReason:
        if code is not DropReason.KEPT:
            numbers[f"filter/dropped/{code.name.lower()}"] = (reason == int(code)).double().mean().item()
    return numbers
