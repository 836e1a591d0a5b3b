"""The F-TIS loss. If you read one file of motet, read this one.

From "F-TIS: Harnessing Diverse Models in Collaborative GRPO", arXiv 2605.22537:

    L = -(1/B) sum_i (1/|a_i|) sum_t  w_it * min( R_it * A'_i, clip(R_it, 1 - epsilon, 1 + epsilon_high) * A'_i )

    R_it = pi_theta/pi_old     our policy now over our policy when the batch began: the only factor with a gradient
    w_it = pi_old/pi_gen       our policy over the one that sampled, capped; a constant   (`motet.core.importance`)
    A'_i = A_i, or 0 if sample i is dropped by the filter                                 (`motet.core.filters`)

Dropped samples still count in B, and their rewards in their group's mean. Own samples carry a weight too (the sampler
may differ in precision or age) and are never filtered. There is no KL term to a reference policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core.choices import Estimator, Level, Reduction, Rule, RuleFunction, WeightFunction, WeightKind
from motet.core.divergence import kl_gen_old
from motet.core.filters import DropReason, drop_reasons
from motet.core.importance import bounded_exp, importance_weights, is_known, log_ratio, require_same_shape


@dataclass(frozen=True, slots=True, eq=False)
class FtisLoss:
    """The loss and what went into it. All but `loss` are constants without a graph.

    Attributes:
        loss: scalar; call `.backward()` on it.
        keep_B: true for samples that were learned from.
        weight_BT: importance weights, 0 on padding. Dropped samples have theirs too.
        kl_B: KL(pi_gen || pi_old) of each completion, nats; +inf where a log-prob is not finite.
        reason_B: `DropReason` of each sample, int8.
        clipped_BT: true where the clip took the token's gradient away.
    """

    loss: Tensor
    keep_B: Tensor
    weight_BT: Tensor
    kl_B: Tensor
    reason_B: Tensor
    clipped_BT: Tensor


def ftis_loss(  # noqa: PLR0913 - the method's settings, one by one
    logp_theta_BT: Tensor,
    logp_old_BT: Tensor,
    logp_gen_BT: Tensor,
    mask_BT: Tensor,
    advantage_B: Tensor,
    is_external_B: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    weights: WeightKind | WeightFunction = "truncated",
    cap: float = 2.0,
    level: Level = "token",
    rule: Rule | RuleFunction = "either",
    kl_limit_nats: float = 50.0,
    kl_estimator: Estimator = "k3",
    kl_reduction: Reduction = "sum",
    denominator: int | None = None,
) -> FtisLoss:
    """The formula above, on completions padded to T tokens.

    A sample with a log-prob or an advantage that is not finite is dropped with reason NON_FINITE, be it a peer's or
    our own, so that one bad row never makes the loss or its gradient NaN. Log-ratios are clamped to +-20. Computed
    in the dtype given, at least float32.

    Args:
        logp_theta_BT: log-probs under the policy being trained, nats, shape (B, T); carries the gradient.
        logp_old_BT: the same at the beginning of the batch (at the first update equal in value to logp_theta).
        logp_gen_BT: log-probs that the sampler reported.
        mask_BT: true (or 1) on completion tokens. Padding may hold anything, and an empty row contributes 0.
        advantage_B: advantage within the group (`group_advantages`), shape (B,).
        is_external_B: true for samples of peers, shape (B,).
        epsilon: clip range of R below 1, and above unless `epsilon_high` is given.
        epsilon_high: clip range of R above 1.
        weights: "none" (NoIS), "vanilla" (VIS), "truncated" (TIS), or a function (`motet.core.own_functions`).
        cap: largest weight under "truncated".
        level: one weight for each "token" or for each "sequence".
        rule: which external samples are dropped: "either" (A <= 0 or KL > limit), "both" (A < 0 and so), "off";
            or a function that says which are kept.
        kl_limit_nats: that limit.
        kl_estimator: estimator of the filter's KL.
        kl_reduction: sum or mean over a completion's tokens.
        denominator: B of the whole batch when this is one micro-batch of it; losses of micro-batches then add up.

    Raises:
        ValueError: shapes differ, an option is unknown, the denominator is below 1, or a function returns something
            else than weights or booleans.

    Example:
        Two own samples at the first update (R = w = 1): the loss is -(2 + -1) / 2.

        >>> logp = torch.full((2, 3), -1.0, requires_grad=True)
        >>> own = torch.tensor([False, False])
        >>> ftis_loss(logp, logp.detach(), logp.detach(), torch.ones(2, 3), torch.tensor([2.0, -1.0]), own).loss
        tensor(-0.5000, grad_fn=<NegBackward0>)
    """
    require_same_shape(logp_theta_BT, logp_old_BT, logp_gen_BT, mask_BT)
    mask_BT, logp_old_BT, logp_gen_BT = mask_BT.bool(), logp_old_BT.detach(), logp_gen_BT.detach()
    num_samples = len(mask_BT) if denominator is None else denominator
    if num_samples < 1:
        msg = f"the loss is a mean over {num_samples} samples; it needs at least 1"
        raise ValueError(msg)

    known_BT = is_known(mask_BT, logp_theta_BT, logp_old_BT, logp_gen_BT)
    finite_B = (known_BT == mask_BT).all(dim=1) & torch.isfinite(advantage_B)
    weight_BT = importance_weights(logp_old_BT, logp_gen_BT, mask_BT, kind=weights, cap=cap, level=level)
    kl_B = kl_gen_old(logp_old_BT, logp_gen_BT, mask_BT, estimator=kl_estimator, reduction=kl_reduction)
    reason_B = drop_reasons(advantage_B, kl_B, is_external_B, rule=rule, kl_limit_nats=kl_limit_nats, finite_B=finite_B)
    keep_B = reason_B == int(DropReason.KEPT)

    ratio_BT = bounded_exp(log_ratio(logp_theta_BT, logp_old_BT, known_BT))
    clipped_ratio_BT = ratio_BT.clamp(1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high))
    kept_advantage_B1 = torch.where(keep_B, advantage_B.detach(), 0.0).to(ratio_BT.dtype)[:, None]
    plain_BT, clipped_BT = ratio_BT * kept_advantage_B1, clipped_ratio_BT * kept_advantage_B1
    token_BT = weight_BT * torch.minimum(plain_BT, clipped_BT)  # 0 on padding, as the weight is
    sample_B = token_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
    return FtisLoss(
        loss=-(sample_B.sum() / num_samples),
        keep_B=keep_B,
        weight_BT=weight_BT,
        kl_B=kl_B,
        reason_B=reason_B,
        clipped_BT=clipped_BT.detach() < plain_BT.detach(),
    )
