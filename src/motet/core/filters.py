"""The filter of F-TIS: which external samples are learned from, and why the others are not."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from motet.core.choices import Rule, RuleFunction, require_choice
from motet.core.own_functions import own_keeps


class DropReason(IntEnum):
    """Why a sample is not learned from. Every dropped sample has exactly one."""

    KEPT = 0
    """Not dropped."""
    ADVANTAGE = 1
    """External, and not better than its group: A <= 0."""
    KL = 2
    """External, and too far from our policy: KL > limit."""
    ADVANTAGE_AND_KL = 3
    """External, and both."""
    NON_FINITE = 4
    """A log-prob or the advantage is not a finite number; own samples too, and whatever the rule."""
    RULE = 5
    """External, and a rule of one's own did not keep it."""


def drop_reasons(
    advantage_B: Tensor,
    kl_B: Tensor,
    is_external_B: Tensor,
    *,
    rule: Rule | RuleFunction = "either",
    kl_limit_nats: float = 50.0,
    finite_B: Tensor | None = None,
) -> Tensor:
    """`DropReason` of each sample.

        either      dropped if A <= 0 or  KL > limit
        both        dropped if A <  0 and KL > limit
        off         never dropped
        a function  dropped, for reason RULE, where it says false of (advantage_B, kl_B, is_external_B)

    Only external samples are filtered. A NaN counts as a bad advantage and as a KL over the limit. (A = 0 adds nothing
    to the loss either way; "both" drops what pushes away from text that our policy would hardly write.)

    Args:
        advantage_B: advantages, shape (B,).
        kl_B: KL(pi_gen || pi_old) of each completion in nats, shape (B,).
        is_external_B: true for samples of peers, shape (B,).
        rule: which samples are dropped, or a function that says which are kept (`motet.core.own_functions`).
        kl_limit_nats: the limit; a KL equal to it is kept. Functions have their own.
        finite_B: false for samples with numbers that are not finite, shape (B,); without it: all true.

    Returns:
        Codes, shape (B,), int8.

    Raises:
        ValueError: shapes differ, the rule is unknown, or a function returns something else than booleans.

    Example:
        >>> drop_reasons(torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([0.0, 0.0, 60.0, 0.0]),
        ...              torch.tensor([True, True, True, False]))
        tensor([0, 1, 2, 0], dtype=torch.int8)
    """
    if not callable(rule):
        require_choice("rule", rule, Rule)
    shapes = [tuple(tensor.shape) for tensor in (advantage_B, kl_B, is_external_B)]
    if advantage_B.ndim != 1 or len(set(shapes)) != 1:
        msg = f"tensors must share one shape (B,); got {', '.join(map(str, shapes))}"
        raise ValueError(msg)
    no_better_B = ~(advantage_B > 0)
    too_far_B = ~(kl_B <= kl_limit_nats)
    code_B = no_better_B * int(DropReason.ADVANTAGE) + too_far_B * int(DropReason.KL)
    if not isinstance(rule, str):
        dropped_B = is_external_B.bool() & ~own_keeps(rule, advantage_B, kl_B, is_external_B)
        code_B = torch.full_like(code_B, int(DropReason.RULE))
    elif rule == "either":
        dropped_B = is_external_B.bool()
    elif rule == "both":
        dropped_B = is_external_B.bool() & ~(advantage_B >= 0) & too_far_B
    else:
        dropped_B = torch.zeros_like(no_better_B)
    code_B = torch.where(dropped_B, code_B, int(DropReason.KEPT))
    if finite_B is not None:
        code_B = torch.where(finite_B.bool(), code_B, int(DropReason.NON_FINITE))
    return code_B.to(torch.int8)


def keep_mask(
    advantage_B: Tensor,
    kl_B: Tensor,
    is_external_B: Tensor,
    *,
    rule: Rule | RuleFunction = "either",
    kl_limit_nats: float = 50.0,
) -> Tensor:
    """True for samples that the filter keeps; shape (B,), bool. Own samples always are.

    Arguments and errors as in `drop_reasons`.

    >>> keep_mask(torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3), torch.tensor([True, True, False]))
    tensor([ True, False,  True])
    """
    reason_B = drop_reasons(advantage_B, kl_B, is_external_B, rule=rule, kl_limit_nats=kl_limit_nats)
    return reason_B == int(DropReason.KEPT)
