"""Importance weights: how much likelier a token is under our policy than under the one that sampled it."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.core.choices import Level, WeightFunction, WeightKind, require_choice
from motet.core.own_functions import own_weights

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before `exp`: e^20 = 4.9e8 still fits every dtype, its square too."""


def is_known(mask_BT: Tensor, *logps_BT: Tensor) -> Tensor:
    """True on completion tokens whose log-probs are all finite; shape (B, T), bool.

    >>> is_known(torch.tensor([[1, 1, 0]]), torch.tensor([[-1.0, -torch.inf, -1.0]]))
    tensor([[ True, False, False]])
    """
    known_BT = mask_BT.bool()
    for logp_BT in logps_BT:
        known_BT = known_BT & torch.isfinite(logp_BT)
    return known_BT


def log_ratio(logp_upper_BT: Tensor, logp_lower_BT: Tensor, known_BT: Tensor) -> Tensor:
    """log(upper/lower) where `known_BT`, and 0 elsewhere; not clamped; at least float32.

    The mask is applied to the inputs, not to the difference: whatever stands in the padding, neither the value nor
    the gradient sees it.

    >>> log_ratio(torch.tensor([[-1.0, torch.nan]]), torch.tensor([[-3.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([[2., 0.]])
    """
    upper_BT, lower_BT = (
        torch.where(known_BT, logp_BT, 0.0).to(torch.promote_types(logp_BT.dtype, torch.float32))
        for logp_BT in (logp_upper_BT, logp_lower_BT)
    )
    return upper_BT - lower_BT


def bounded_exp(log_ratio_BT: Tensor) -> Tensor:
    """exp of a log-ratio clamped to +-20; within that range value and gradient are those of exp.

    >>> bounded_exp(torch.tensor([0.0, 1e9]))
    tensor([1.0000e+00, 4.8517e+08])
    """
    return log_ratio_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def importance_weights(
    logp_old_BT: Tensor,
    logp_gen_BT: Tensor,
    mask_BT: Tensor,
    *,
    kind: WeightKind | WeightFunction = "truncated",
    cap: float = 2.0,
    level: Level = "token",
) -> Tensor:
    """Weight of each token; a constant of the loss (no graph).

        none        1                              (NoIS: off-policy samples taken as if on-policy)
        vanilla     pi_old/pi_gen                  (VIS)
        truncated   min(pi_old/pi_gen, cap)        (TIS)
        a function  what it says of (logp_old_BT, logp_gen_BT, mask_BT), whatever cap and level are

    At level "sequence" the ratio is that of the whole completion, exp(sum_t logp_old - logp_gen), capped once and
    given to each of its tokens. Log-ratios are clamped to +-20.

    Args:
        logp_old_BT: log-probs under our policy when the batch began, nats, shape (B, T).
        logp_gen_BT: log-probs under the policy that sampled, nats, shape (B, T).
        mask_BT: true (or 1) on completion tokens, shape (B, T). Padding may hold anything.
        kind: which weight, or a function that gives it (`motet.core.own_functions`).
        cap: largest weight under "truncated"; the other kinds ignore it.
        level: one ratio for each token or for each completion.

    Returns:
        Weights, shape (B, T), 0 on padding. A token with a log-prob that is not finite gets 0 under the kinds that
        need it, and at level "sequence" so does its whole completion.

    Raises:
        ValueError: shapes differ, an option is unknown, or a function returns something else than weights.

    Example:
        Ratios e^0 = 1 and e^1 = 2.718, the latter capped:

        >>> importance_weights(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2))
        tensor([[1., 2.]])
    """
    if not callable(kind):
        require_choice("kind", kind, WeightKind)
    require_choice("level", level, Level)
    require_same_shape(logp_old_BT, logp_gen_BT, mask_BT)
    if cap <= 0:
        msg = f"cap is {cap}; it must be above 0"
        raise ValueError(msg)
    mask_BT = mask_BT.bool()
    logp_old_BT, logp_gen_BT = logp_old_BT.detach(), logp_gen_BT.detach()
    known_BT = is_known(mask_BT, logp_old_BT, logp_gen_BT)
    if not isinstance(kind, str):
        return own_weights(kind, logp_old_BT, logp_gen_BT, known_BT)
    log_ratio_BT = log_ratio(logp_old_BT, logp_gen_BT, known_BT)
    if kind == "none":
        return mask_BT.to(log_ratio_BT.dtype)
    if level == "sequence":
        known_BT = mask_BT & (known_BT == mask_BT).all(dim=1, keepdim=True)
        log_ratio_BT = log_ratio_BT.sum(dim=1, keepdim=True).expand_as(log_ratio_BT)
    weight_BT = bounded_exp(log_ratio_BT)
    if kind == "truncated":
        weight_BT = weight_BT.clamp(max=cap)
    return torch.where(known_BT, weight_BT, 0.0)


def require_same_shape(first_BT: Tensor, *others_BT: Tensor) -> None:
    """Raise `ValueError` unless all are (B, T) of one shape: broadcasting would hide a mistake.

    >>> require_same_shape(torch.zeros(2, 3), torch.zeros(2, 1))
    Traceback (most recent call last):
    ValueError: tensors must share one shape (B, T); got (2, 3), (2, 1)
    """
    shapes = [tuple(tensor.shape) for tensor in (first_BT, *others_BT)]
    if first_BT.ndim != 2 or len(set(shapes)) != 1:
        msg = f"tensors must share one shape (B, T); got {', '.join(map(str, shapes))}"
        raise ValueError(msg)
