"""Means over seeds with their intervals, and when a node has left no worse. Plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Quantiles of Student's t for 1 to 30 degrees of freedom; beyond, the normal's differ by less than 0.05.
_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_T_95: Final = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
_Z_975, _Z_95 = 1.960, 1.645


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

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, by Student's t; infinite with one seed.

        >>> round(Mean(0.0, 1.0, 5).half_width, 3)
        2.776
        """
        return math.inf if self.se is None else self.se * _quantile(_T_975, _Z_975, self.n - 1)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.value + self.half_width

    @property
    def lower_bound(self) -> float:
        """The one-sided 95 % bound: with 95 % confidence the true mean is above it."""
        return -math.inf if self.se is None else self.value - self.se * _quantile(_T_95, _Z_95, self.n - 1)

    def is_no_worse(self, margin: float) -> bool:
        """True if a difference of this mean is, with 95 % confidence, above -margin (a non-inferiority test)."""
        return self.lower_bound > -margin

    def is_level(self, margin: float) -> bool:
        """True if the whole 95 % interval of a difference lies within +-margin."""
        return -margin < self.low and self.high < margin


def _quantile(table: Sequence[float], beyond: float, degrees: int) -> float:
    return table[degrees - 1] if degrees <= len(table) else beyond
