"""Means, standard errors and differences of accuracies, and when a difference counts as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SEPARATION = 2.0
"""Standard errors by which two accuracies must differ to be called different."""
LEVEL_WITHIN = 0.03
"""Accuracies that are not separated and lie this close are called level."""

Standing = Literal["above", "below", "level", "unclear", "unknown"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard error.

    Attributes:
        value: an accuracy in 0..1, or a difference of two.
        se: one standard error; None if the run did not write one.
        over: what the error is over: the prompts of one evaluation, or the seeds of several runs.
        n: how many prompts or seeds; None if unknown.
    """

    value: float
    se: float | None
    over: Literal["prompts", "seeds"] = "prompts"
    n: int | None = None


def over_seeds(estimates: Sequence[Estimate]) -> Estimate | None:
    """Mean over seeds with its standard error; one seed keeps the error of its evaluation, none gives None.

    The standard error of n >= 2 seeds is sqrt(sum (x - mean)^2 / (n - 1)) / sqrt(n). Seeds that agree to the last
    digit are one measurement (such as the same model before training, on the same prompts), which keeps its error.

    >>> two = over_seeds([Estimate(0.40, 0.01), Estimate(0.44, 0.01)])
    >>> round(two.value, 3), round(two.se, 3), two.over, two.n
    (0.42, 0.02, 'seeds', 2)
    """
    if not estimates:
        return None
    if len({estimate.value for estimate in estimates}) == 1:
        return estimates[0]
    n = len(estimates)
    mean = math.fsum(estimate.value for estimate in estimates) / n
    variance = math.fsum((estimate.value - mean) ** 2 for estimate in estimates) / (n - 1)
    return Estimate(mean, math.sqrt(variance / n), "seeds", n)


def difference(first: Mapping[int, Estimate], second: Mapping[int, Estimate]) -> Estimate | None:
    """`first` minus `second`, paired by seed; None without a shared seed.

    Several seeds: mean and standard error of the differences. One seed: sqrt(se1^2 + se2^2), which takes the two
    evaluations as independent.

    >>> difference({0: Estimate(0.5, 0.03)}, {0: Estimate(0.4, 0.04)})
    Estimate(value=0.1, se=0.05, over='prompts', n=None)
    """
    seeds = sorted(first.keys() & second.keys())
    return over_seeds([_difference_of_two(first[seed], second[seed]) for seed in seeds])


def _difference_of_two(first: Estimate, second: Estimate) -> Estimate:
    value = round(first.value - second.value, 12)
    if first.se is None or second.se is None:
        return Estimate(value, None)
    return Estimate(value, round(math.hypot(first.se, second.se), 12))


def standing(difference: Estimate) -> Standing:
    """Where the first of two stands to the second.

    "above" and "below" need more than two standard errors; "level" is within two and within 3 points; "unclear" is
    further apart, but not by two standard errors; "unknown" has no standard error.

    >>> standing(Estimate(-0.05, 0.02)), standing(Estimate(-0.02, 0.02)), standing(Estimate(-0.05, 0.03))
    ('below', 'level', 'unclear')
    """
    if difference.se is None:
        return "unknown"
    if abs(difference.value) > SEPARATION * difference.se:
        return "above" if difference.value > 0 else "below"
    return "level" if abs(difference.value) <= LEVEL_WITHIN else "unclear"


def as_percent(estimate: Estimate | None) -> str:
    """An accuracy for people.

    >>> as_percent(Estimate(0.4312, None)), as_percent(None)
    ('43.1 %', '-')
    """
    if estimate is None:
        return "-"
    error = "" if estimate.se is None else f" \u00b1 {100 * estimate.se:.1f}"
    return f"{100 * estimate.value:.1f}{error} %"


def as_points(estimate: Estimate | None) -> str:
    """A difference of accuracies for people, in percentage points.

    >>> as_points(Estimate(0.0312, None))
    '+3.1 points'
    """
    if estimate is None:
        return "-"
    error = "" if estimate.se is None else f" \u00b1 {100 * estimate.se:.1f}"
    return f"{round(100 * estimate.value, 1) + 0.0:+.1f}{error} points"
