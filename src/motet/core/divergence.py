"""How far our policy is from the one that sampled, measured on its completions."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.core.choices import Estimator, Reduction, require_choice
from motet.core.importance import MAX_LOG_RATIO, is_known, log_ratio, require_same_shape


def kl_gen_old(
    logp_old_BT: Tensor,
    logp_gen_BT: Tensor,
    mask_BT: Tensor,
    *,
    estimator: Estimator = "k3",
    reduction: Reduction = "sum",
) -> Tensor:
    """KL(pi_gen || pi_old) of each completion, estimated on its own tokens, in nats (no graph).

    With d = logp_old - logp_gen at each token:

        k1   -d                  unbiased, but negative for a sampler that claims too low log-probs
        k2   d^2 / 2             never negative, biased
        k3   exp(d) - 1 - d      never negative, unbiased

    The direction matters. The tokens were sampled by pi_gen, so the mean of -d is +KL and the mean of d is -KL: a
    limit on the sum of d would never be reached. k3 with the sign of d turned estimates nothing.

    Args:
        logp_old_BT: log-probs under our policy when the batch began, nats, shape (B, T).
        logp_gen_BT: log-probs under the policy that sampled, nats, shape (B, T).
        mask_BT: true (or 1) on completion tokens, shape (B, T). Padding may hold anything.
        estimator: which estimator.
        reduction: sum or mean over the tokens of the completion.

    Returns:
        Shape (B,); 0 for an empty completion, +inf where a token's log-prob is not finite, so that every limit is
        exceeded. In k3, d is clamped to at most 20 (exp would overflow, and e^20 nats exceed any limit); d below is
        not clamped, since there the estimate grows as -d and a clamp would hide a far policy.

    Raises:
        ValueError: shapes differ, or an option is unknown.

    Example:
        d = 1 and -1, so k3 = (e - 2) + (1/e) = 0.7183 + 0.3679:

        >>> kl_gen_old(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -1.0]]), torch.ones(1, 2))
        tensor([1.0862])
    """
    require_choice("estimator", estimator, Estimator)
    require_choice("reduction", reduction, Reduction)
    require_same_shape(logp_old_BT, logp_gen_BT, mask_BT)
    mask_BT = mask_BT.bool()
    logp_old_BT, logp_gen_BT = logp_old_BT.detach(), logp_gen_BT.detach()
    known_BT = is_known(mask_BT, logp_old_BT, logp_gen_BT)
    d_BT = log_ratio(logp_old_BT, logp_gen_BT, known_BT)
    if estimator == "k1":
        kl_BT = -d_BT
    elif estimator == "k2":
        kl_BT = d_BT.square() / 2
    else:
        d_BT = d_BT.clamp(max=MAX_LOG_RATIO)
        kl_BT = torch.expm1(d_BT) - d_BT
    kl_BT = torch.where(known_BT == mask_BT, kl_BT, torch.inf)
    kl_B = kl_BT.sum(dim=1)
    return kl_B if reduction == "sum" else kl_B / mask_BT.sum(dim=1).clamp(min=1)
