"""Rows of a study by pair, arm and node: means over seeds, and differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from motet.study.intervals import Mean
from motet.study.rows import Row

Measure = Callable[[Row], float | None]
CLOSE_ENOUGH: Final = 0.01
"""Accuracy below the baseline's end that counts as having reached it."""


class Table:
    """All rows of a study.

    Args:
        rows: of finished runs.
        baseline: the arm that others are compared with.
    """

    def __init__(self, rows: Iterable[Row], *, baseline: str) -> None:
        self.rows = tuple(rows)
        self.baseline = baseline
        self._cells: dict[tuple[str, str, str], dict[int, Row]] = {}
        for row in self.rows:
            self._cells.setdefault((row.pair, row.arm, row.node), {})[row.seed] = row

    @property
    def pairs(self) -> list[str]:
        """Names of pairs, in order of appearance."""
        return list(dict.fromkeys(row.pair for row in self.rows))

    @property
    def arms(self) -> list[str]:
        """Names of arms, the baseline first."""
        names = dict.fromkeys(row.arm for row in self.rows)
        return sorted(names, key=lambda arm: arm != self.baseline)

    def arms_of(self, pair: str) -> list[str]:
        """Arms that a pair was trained under."""
        here = {row.arm for row in self.rows if row.pair == pair}
        return [arm for arm in self.arms if arm in here]

    def nodes(self, pair: str) -> list[str]:
        """Names of a pair's nodes."""
        return list(dict.fromkeys(row.node for row in self.rows if row.pair == pair))

    def members(self, *arms: str) -> list[tuple[str, str]]:
        """(pair, node) of all that were trained under each of these arms."""
        return [
            (pair, node)
            for pair in self.pairs
            for node in self.nodes(pair)
            if all((pair, arm, node) in self._cells for arm in arms)
        ]

    def cell(self, pair: str, arm: str, node: str) -> list[Row]:
        """The rows of all seeds, in order of seeds."""
        return [row for _, row in sorted(self._cells.get((pair, arm, node), {}).items())]

    def mean(self, pair: str, arm: str, node: str, measure: Measure) -> Mean | None:
        """Mean of a measure over seeds; None where nothing was measured."""
        values = [value for row in self.cell(pair, arm, node) if (value := measure(row)) is not None]
        return Mean.of(values) if values else None

    def difference(self, pair: str, node: str, arm: str, minus: str, measure: Measure) -> Mean | None:
        """Mean over shared seeds of a measure under one arm minus that under another; None without a shared seed."""
        of_arm, of_minus = (self.shared(pair, node, *arms, measure) for arms in ((arm, minus), (minus, arm)))
        values = [first - second for first, second in zip(of_arm, of_minus, strict=True)]
        return Mean.of(values) if values else None

    def shared(self, pair: str, node: str, arm: str, other: str, measure: Measure) -> list[float]:
        """A measure of an arm by seed, for those seeds in which it was taken under another arm too."""
        its, others = (self._cells.get((pair, name, node), {}) for name in (arm, other))
        return [
            value
            for seed in sorted(its.keys() & others.keys())
            if (value := measure(its[seed])) is not None and measure(others[seed]) is not None
        ]

    def start(self, pair: str, node: str, split: str) -> Mean | None:
        """Mean over seeds of the accuracy before training, which all arms of a seed share."""
        rows = {row.seed: row for row in self.rows if (row.pair, row.node) == (pair, node) and split in row.start}
        return Mean.of([row.start[split] for row in rows.values()]) if rows else None

    def weaker(self, pair: str) -> str | None:
        """The node of a pair with the lowest accuracy at the end of the baseline; None without the baseline."""
        ends = self._ends(pair)
        return min(ends, key=ends.__getitem__, default=None)

    def stronger(self, pair: str) -> str | None:
        """The node of a pair with the highest accuracy at the end of the baseline; None without the baseline."""
        ends = self._ends(pair)
        return max(ends, key=ends.__getitem__, default=None)

    def _ends(self, pair: str) -> dict[str, float]:
        """Held-out accuracy of a pair's nodes at the end of the baseline."""
        means = {node: self.mean(pair, self.baseline, node, accuracy("test")) for node in self.nodes(pair)}
        return {node: mean.value for node, mean in means.items() if mean is not None}

    def collapsed(self, arm: str) -> tuple[int, int]:
        """How many of an arm's rows end below their start, by more than chance, and how many rows there are."""
        rows = [row for row in self.rows if row.arm == arm]
        return sum(map(has_collapsed, rows)), len(rows)

    def to_baseline(self, pair: str, node: str, arm: str) -> tuple[Mean | None, Mean | None, int]:
        """Rounds, and seconds of the node's own work, until an arm reaches the baseline's mean end.

        Reached: within a point of it. Means are over the seeds that reach it, so they flatter an arm with few of them.

        Returns:
            Rounds, seconds, and how many seeds reach it at all.
        """
        ends = self._ends(pair)
        if node not in ends:
            return None, None, 0
        target = ends[node] - CLOSE_ENOUGH
        reached = [point for row in self.cell(pair, arm, node) if (point := _first_at(row, target)) is not None]
        if not reached:
            return None, None, 0
        rounds, seconds = zip(*reached, strict=True)
        return Mean.of(rounds), Mean.of(seconds), len(reached)


def accuracy(split: str) -> Measure:
    """Accuracy of a split at the end."""
    return lambda row: row.accuracy.get(split)


def gain(row: Row) -> float:
    """Held-out accuracy at the end minus at the start."""
    return row.accuracy["test"] - row.start["test"]


def has_collapsed(row: Row) -> bool:
    """True if a row ends below its start on held-out prompts by more than two standard errors of the difference.

    Both are shares of finitely many prompts: a node that learned nothing ends below its start half of the time.
    """
    start, end = row.start["test"], row.accuracy["test"]
    error = math.sqrt((start * (1 - start) + end * (1 - end)) / row.num_prompts)
    return start - end > 2 * error


def drop_from_peak(row: Row) -> float:
    """How far held-out accuracy ends below its highest point."""
    return max(row.curve.test) - row.curve.test[-1]


def accuracy_at(split: str, share: float) -> Measure:
    """Accuracy of a split at the evaluation nearest to this share of the rounds."""

    def measure(row: Row) -> float | None:
        values = row.curve.of(split)
        if not values:
            return None
        nearest = min(range(len(values)), key=lambda index: abs(row.curve.rounds[index] - share * row.rounds))
        return values[nearest]

    return measure


def _first_at(row: Row, target: float) -> tuple[float, float] | None:
    """Rounds and seconds at which the curve first reaches a height, on the straight line between two points."""
    curve = row.curve
    points: Sequence[tuple[int, float, float]] = list(zip(curve.rounds, curve.seconds, curve.test, strict=True))
    if not points:
        return None
    if points[0][2] >= target:
        return float(points[0][0]), points[0][1]
    for (round_a, second_a, low), (round_b, second_b, high) in pairwise(points):
        if low < target <= high:
            part = (target - low) / (high - low)
            return round_a + part * (round_b - round_a), second_a + part * (second_b - second_a)
    return None
