"""Which of several models to keep: the best of those that are, with confidence, nowhere worse than a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from motet.tasks import Split

Solved = Mapping[Split, Sequence[float]]
"""For each split, the share of its completions that solve each prompt. All models are asked the same prompts."""
FEWEST_PROMPTS = 20
"""Below that an interval of a mean of zeros and ones is too narrow: nothing is shown to be no worse."""
_TAIL = 0.05


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better a candidate does than the reference on one split.

    Attributes:
        value: mean over the prompts, paired; a share.
        se: its standard error over the prompts.
        bound: the one-sided 95 % bound: with that confidence, widened for the number of candidates, it is above this.
    """

    value: float
    se: float
    bound: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What to keep.

    Attributes:
        taken: index of the candidate; None for the reference.
        differences: of each candidate from the reference, by split.
        is_safe: of each candidate, whether it is no worse on any split.
    """

    taken: int | None
    differences: Sequence[Mapping[Split, Difference]]
    is_safe: Sequence[bool]


def choose(reference: Solved, candidates: Sequence[Solved], *, margin: float) -> Choice:
    """The best candidate, or the reference.

    A candidate is safe if on every split its one-sided 95 % bound is above -margin (a test of non-inferiority; the
    bounds are widened for the number of candidates by Bonferroni's correction), and each split has 20 prompts or more.
    Of the safe ones that do better than the reference on the first split the one that does best there is taken. If
    there is none, it is the reference.

    Args:
        reference: of the model that is kept otherwise, such as the one that trained alone.
        candidates: of the others, with the same splits and prompts.
        margin: how much worse, as a share, still counts as no worse.

    Raises:
        ValueError: splits or numbers of prompts differ, or there is no candidate, split or prompt.

    >>> alone, swarm = {"test": [0.0, 1.0] * 500}, {"test": [1.0, 1.0] * 500}
    >>> choose(alone, [swarm], margin=0.02).taken
    0
    >>> choose(swarm, [alone], margin=0.02).taken is None
    True
    """
    if not candidates or not reference:
        raise ValueError("a choice needs a candidate, and a split to compare on")
    z = NormalDist().inv_cdf(1 - _TAIL / len(candidates))
    differences = [_differences(reference, candidate, z) for candidate in candidates]
    enough = all(len(shares) >= FEWEST_PROMPTS for shares in reference.values())
    is_safe = [enough and all(one.bound > -margin for one in by_split.values()) for by_split in differences]
    first = next(iter(reference))
    better = [index for index, safe in enumerate(is_safe) if safe and differences[index][first].value > 0]
    taken = max(better, key=lambda index: differences[index][first].value, default=None)
    return Choice(taken, differences, is_safe)


def _differences(reference: Solved, candidate: Solved, z: float) -> dict[Split, Difference]:
    if candidate.keys() != reference.keys():
        raise ValueError("reference and candidate must be asked on the same splits")
    return {split: _difference(reference[split], candidate[split], z) for split in reference}


def _difference(reference: Sequence[float], candidate: Sequence[float], z: float) -> Difference:
    if len(reference) != len(candidate) or not reference:
        raise ValueError("reference and candidate must be asked the same prompts, at least one")
    n = len(reference)
    values = [ours - theirs for ours, theirs in zip(candidate, reference, strict=True)]
    mean = math.fsum(values) / n
    # one prompt more that goes either way: where all agree by chance, the error is not 0
    variance = (math.fsum((value - mean) ** 2 for value in values) + 1.0) / n
    se = math.sqrt(variance / n)
    return Difference(mean, se, mean - z * se)
