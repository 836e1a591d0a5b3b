"""Shares and means with their intervals, and pass@k. Plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

Z_95 = NormalDist().inv_cdf(0.975)
"""Standard errors on either side of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A mean over prompts with its 95 % interval.

    Attributes:
        value: mean over the prompts.
        se: its standard error over the prompts (0 if there is one prompt only).
        num_prompts: how many there were.
        low: lower end of the interval.
        high: its upper end.
        interval: "wilson" where every prompt counts 0 or 1; else "normal", mean -+ 1.96 standard errors.
    """

    value: float
    se: float
    num_prompts: int
    low: float
    high: float
    interval: Literal["wilson", "normal"]

    @classmethod
    def of(cls, values: Sequence[float]) -> Accuracy:
        """Mean, standard error and interval of one number for each prompt.

        >>> accuracy = Accuracy.of([1.0, 0.0, 1.0, 1.0])
        >>> accuracy.value, accuracy.se, accuracy.num_prompts, accuracy.interval
        (0.75, 0.25, 4, 'wilson')

        Raises:
            ValueError: without any number.
        """
        if not values:
            raise ValueError("an accuracy needs at least one prompt")
        n = len(values)
        mean = sum(values) / n
        variance = sum((value - mean) ** 2 for value in values) / (n - 1) if n > 1 else 0.0
        se = math.sqrt(variance / n)
        if all(value in (0.0, 1.0) for value in values):
            low, high = wilson(round(sum(values)), n)
            return cls(mean, se, n, low, high, "wilson")
        return cls(mean, se, n, mean - Z_95 * se, mean + Z_95 * se, "normal")


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share: (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with p = successes/n.

    Unlike p -+ z sqrt(p(1-p)/n) it never leaves 0..1, and has a width at p = 0 and p = 1 too.

    >>> [round(end, 4) for end in wilson(10, 10)]
    [0.7225, 1.0]

    Raises:
        ValueError: unless 0 <= successes <= n and n >= 1.
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} of {n} is no share")
    share, z2 = successes / n, Z_95**2
    middle = share + z2 / (2 * n)
    half = Z_95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return (0.0 if successes == 0 else low, 1.0 if successes == n else high)


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """Chance that at least one of k completions, drawn without replacement from those sampled, solves the prompt.

    1 - C(n-c, k) / C(n, k) with n sampled and c solved: an unbiased estimate of 1 - (1 - p)^k. The quotient is
    computed as a product of k factors below 1, so no large number arises.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 2), pass_at_k(4, 3, 2)
    (0.25, 0.5, 1.0)

    Raises:
        ValueError: unless 1 <= k <= num_samples and 0 <= num_solved <= num_samples.
    """
    if not 1 <= k <= num_samples or not 0 <= num_solved <= num_samples:
        raise ValueError(f"pass@{k} of {num_solved} solved in {num_samples} is undefined")
    missed = num_samples - num_solved
    if missed < k:
        return 1.0
    none = 1.0
    for drawn in range(k):
        none *= (missed - drawn) / (num_samples - drawn)
    return 1.0 - none
