"""The named options of the method, and the check that a given name is one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from torch import Tensor

Scale = Literal["std", "none"]
"""Group advantages: centred rewards divided by the group's standard deviation, or centred only."""

WeightKind = Literal["none", "vanilla", "truncated"]
"""Importance weight: 1 (NoIS), pi_old/pi_gen (VIS), or min(pi_old/pi_gen, cap) (TIS)."""

Level = Literal["token", "sequence"]
"""One weight for each token, or one for each completion."""

Rule = Literal["either", "both", "off"]
"""The filter drops external samples with A <= 0 *or* KL > limit, with A < 0 *and* KL > limit, or none."""

WeightFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A weight of one's own: f(logp_old_BT, logp_gen_BT, mask_BT) -> weights (B, T)   (`motet.core.own_functions`)"""

RuleFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A filter of one's own: f(advantage_B, kl_B, is_external_B) -> true where kept (B,)   (`motet.core.own_functions`)"""

Estimator = Literal["k1", "k2", "k3"]
"""Estimator of KL(pi_gen || pi_old) from samples of pi_gen."""

Reduction = Literal["sum", "mean"]
"""KL of a completion: sum or mean over its tokens."""


def require_choice(name: str, value: str, options: Any) -> None:
    """Raise `ValueError` unless `value` is one of the names of a `Literal`.

    >>> require_choice("rule", "neither", Rule)
    Traceback (most recent call last):
    ValueError: rule is 'neither'; allowed: 'either', 'both', 'off'
    """
    allowed = get_args(options)
    if value not in allowed:
        msg = f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}"
        raise ValueError(msg)
