"""The loss's options in one place."""

from __future__ import annotations

from dataclasses import dataclass

from motet.core import Estimator, Level, Reduction, Rule, Scale, WeightKind


@dataclass(frozen=True, slots=True)
class Method:
    """The loss: arguments of `motet.core.ftis_loss`, and the advantages' scale."""

    weights: WeightKind = "truncated"
    rule: Rule = "either"
    cap: float = 2.0
    level: Level = "token"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    kl_limit_nats: float = 50.0
    kl_estimator: Estimator = "k3"
    kl_reduction: Reduction = "sum"
    scale_rewards: Scale = "std"
