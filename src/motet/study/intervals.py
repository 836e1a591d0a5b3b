"""Means over seeds with their intervals, and when a node has left no worse. Plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

TAIL: Final = 0.025
"""On either side of an interval of 95 %."""
ONE_SIDED_TAIL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds.

    Attributes:
        value: the mean.
        se: its standard error; None with one seed.
        n: seeds.
    """

    value: float
    se: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Mean and standard error of one number for each seed.

        >>> Mean.of([1.0, 3.0])
        Mean(value=2.0, se=1.0, n=2)

        Raises:
            ValueError: without any number.
        """
        if not values:
            raise ValueError("a mean needs at least one number")
        n = len(values)
        mean = math.fsum(values) / n
        if n == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
        return cls(mean, math.sqrt(variance / n), n)

    def half_width(self, tail: float = TAIL) -> float:
        """How far the true mean may lie off to one side with this probability; infinite with one seed.

        >>> round(Mean(0.0, 1.0, 5).half_width(), 3)
        2.776
        """
        return math.inf if self.se is None else self.se * student_t(tail, self.n - 1)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.value - self.half_width()

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.value + self.half_width()

    @property
    def lower_bound(self) -> float:
        """The one-sided 95 % bound: with 95 % confidence the true mean is above it."""
        return self.value - self.half_width(ONE_SIDED_TAIL)

    def is_no_worse(self, margin: float) -> bool:
        """True if a difference of this mean is, with 95 % confidence, above -margin (a non-inferiority test)."""
        return self.lower_bound > -margin

    def is_level(self, margin: float) -> bool:
        """True if the whole 95 % interval of a difference lies within +-margin."""
        return -margin < self.low and self.high < margin

    def is_above(self, limit: float, *, looks: int = 1) -> bool:
        """True if the 95 % interval lies above a limit.

        Args:
            limit: to be above.
            looks: how many means are asked this, where one that says yes decides: Bonferroni's correction.
        """
        return self.value - self.half_width(TAIL / looks) > limit

    def is_below(self, limit: float, *, looks: int = 1) -> bool:
        """True if the 95 % interval lies below a limit; see `is_above`."""
        return self.value + self.half_width(TAIL / looks) < limit


@lru_cache(maxsize=1024)
def student_t(tail: float, degrees: int) -> float:
    """The number that Student's t exceeds with probability `tail` (below 0.5).

    >>> [round(student_t(0.025, degrees), 3) for degrees in (1, 4, 30)]
    [12.706, 2.776, 2.042]
    """
    low, high = 0.0, 1.0
    while _beyond(high, degrees) > tail:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond(middle, degrees) > tail else (low, middle)
    return (low + high) / 2


def _beyond(t: float, degrees: int) -> float:
    """Probability of more than t: the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3-4)."""
    theta = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(theta), math.sin(theta)
    is_odd = degrees % 2 == 1
    term = cosine if is_odd else 1.0
    terms = [term] if degrees > 1 else []
    for step in range(3 if is_odd else 2, degrees - 1, 2):
        term *= cosine**2 * (step - 1) / step
        terms.append(term)
    within = 2 / math.pi * (theta + sine * math.fsum(terms)) if is_odd else sine * math.fsum(terms)
    return (1 - within) / 2
