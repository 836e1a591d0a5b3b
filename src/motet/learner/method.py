"""The loss's options in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from motet.core import Estimator, Level, Reduction, Rule, RuleFunction, Scale, WeightFunction, WeightKind


@dataclass(frozen=True, slots=True)
class Method:
    """The loss: arguments of `motet.core.ftis_loss`, and what makes the advantages.

    Under `truncated = "mask"` a completion that was cut at the length limit has advantage 0, whoever sampled it; it
    counts in its group's mean and standard deviation and in the loss's denominator all the same.

    A function for `weights` or `rule` sees some of a batch's completions at a time: what it says of one must not depend
    on the others, nor change from call to call.
    """

    weights: WeightKind | WeightFunction = "truncated"
    rule: Rule | RuleFunction = "either"
    cap: float = 2.0
    level: Level = "token"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    kl_limit_nats: float = 50.0
    kl_estimator: Estimator = "k3"
    kl_reduction: Reduction = "sum"
    scale_rewards: Scale = "std"
    truncated: Literal["score", "mask"] = "score"
