"""How cost grows: the exponent of a power law, by least squares on logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exponent:
    """cost ~ size ** value.

    Attributes:
        value: slope of log(cost) on log(size).
        se: its standard error; None with two points, which any line fits.
        last: slope between the last two points, where fixed costs weigh least.
    """

    value: float
    se: float | None
    last: float


def fit_exponent(sizes: Sequence[float], costs: Sequence[float]) -> Exponent:
    """The exponent, from two points or more.

    Raises:
        ValueError: fewer than two points, a number not above 0, or two equal sizes.

    >>> fit_exponent([1, 2, 4], [3, 12, 48])
    Exponent(value=2.0, se=0.0, last=2.0)
    """
    if len(sizes) != len(costs) or len(sizes) < 2 or min(*sizes, *costs) <= 0 or len(set(sizes)) < len(sizes):
        msg = "an exponent needs two or more points of different sizes and numbers above 0"
        raise ValueError(msg)
    x = [math.log2(size) for size in sizes]
    y = [math.log2(cost) for cost in costs]
    n = len(x)
    x_mean, y_mean = sum(x) / n, sum(y) / n
    spread = sum((a - x_mean) ** 2 for a in x)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - y_mean - slope * (a - x_mean)) ** 2 for a, b in zip(x, y, strict=True))
    se = round(math.sqrt(rest / (n - 2) / spread), 6) if n > 2 else None
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return Exponent(round(slope, 6), se, round(last, 6))
