"""The gradient of a micro-batch: one forward pass, the filter's verdict, the loss, one backward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from motet.core import DropReason, backward_through_head, ftis_loss
from motet.learner.batch import Batch
from motet.learner.layout import Layout, lay_out
from motet.learner.method import Method
from motet.models import Policy

_WORTH_ANOTHER_FORWARD = 2 / 3
"""Backward costs two forwards: below this share of kept tokens, forward and backward of those alone cost less."""


@dataclass(slots=True)
class Judged:
    """What became of the rows of a micro-batch, in their order.

    Attributes:
        logp_old_nT: log-probs under the policy when the batch began, 0 behind a completion's end.
        reason_n: `DropReason` of each.
        loss: their part of the batch's loss.
        num_clipped: tokens whose ratio was clipped.
    """

    logp_old_nT: torch.Tensor
    reason_n: torch.Tensor
    loss: float = 0.0
    num_clipped: int = 0


def backward_rows(
    policy: Policy, batch: Batch, rows: torch.Tensor, method: Method, *, denominator: int, scale: float = 1.0
) -> Judged:
    """Judge external rows by the filter and add the gradient of what it keeps to the policy's parameters.

    There is one step to a batch, so logp_old is logp_theta: its very numbers, not those of an earlier pass that bf16
    may have rounded otherwise. Loss and filter of a completion are computed while its logits are there.

    Args:
        policy: the model.
        batch: the whole batch.
        rows: row numbers of the micro-batch, rows of one prompt together.
        method: the loss.
        denominator: completions that the loss is a mean over, those without a gradient included.
        scale: what the gradient is multiplied by.
    """
    device = policy.device
    mask_nT = batch.mask_BT[rows].to(device)
    logp_gen_nT, advantage_n, is_external_n = (
        tensor[rows].to(device) for tensor in (batch.logp_gen_BT, batch.advantage_B, batch.is_external_B)
    )
    judged = Judged(torch.zeros_like(logp_gen_nT), torch.zeros(len(rows), dtype=torch.int8, device=device))

    def gradient_of(first: int, last: int, logp_m: torch.Tensor) -> torch.Tensor | None:
        mask, part = mask_nT[first:last], slice(first, last)
        logp_theta = torch.zeros(mask.shape, device=device, dtype=logp_m.dtype).masked_scatter(mask, logp_m)
        judged.logp_old_nT[part] = logp_theta
        logp_theta.requires_grad_()
        with torch.enable_grad():
            result = ftis_loss(
                logp_theta,
                logp_theta.detach(),
                logp_gen_nT[part],
                mask,
                advantage_n[part],
                is_external_n[part],
                epsilon=method.epsilon,
                epsilon_high=method.epsilon_high,
                weights=method.weights,
                cap=method.cap,
                level=method.level,
                rule=method.rule,
                kl_limit_nats=method.kl_limit_nats,
                kl_estimator=method.kl_estimator,
                kl_reduction=method.kl_reduction,
                denominator=denominator,
            )
            judged.reason_n[part] = result.reason_B
            judged.loss += float(result.loss.detach())
            judged.num_clipped += int(result.clipped_BT.sum())
            if not bool((result.keep_B & (advantage_n[part] != 0)).any()):
                return None
            (gradient,) = torch.autograd.grad(result.loss, logp_theta)
        return gradient[mask] * scale

    layout = lay_out(batch, rows, packed=policy.takes_plans, device=device)
    hidden_MD = _predictors(policy, layout)
    grad_MD = backward_through_head(
        hidden_MD.detach(),
        policy.head,
        layout.target_M,
        batch.temperature_B[rows].to(device)[:, None].expand_as(mask_nT)[mask_nT],
        batch.length_B[rows].tolist(),
        gradient_of,
        vocab_size=policy.vocab_size,
        softcap=policy.softcap,
    )
    kept_n = judged.reason_n == int(DropReason.KEPT)
    kept_share = float(batch.length_B[rows][kept_n.cpu()].sum() / batch.length_B[rows].sum())
    if kept_share == 0:
        return judged
    if kept_share < _WORTH_ANOTHER_FORWARD:
        grad_MD = grad_MD[kept_n[:, None].expand_as(mask_nT)[mask_nT]]
        del hidden_MD
        hidden_MD = _predictors(policy, lay_out(batch, rows[kept_n.cpu()], packed=policy.takes_plans, device=device))
    if hidden_MD.requires_grad:  # not if nothing below the output layer is trained
        hidden_MD.backward(grad_MD)
    return judged


def _predictors(policy: Policy, layout: Layout) -> torch.Tensor:
    with torch.enable_grad():
        return layout.hidden_states(policy).index_select(0, layout.predictor_M)
