"""How far to learn from each peer: as far as its gradient is shown to point where the node's own does.

A node's own groups are split in two halves with gradients u and v of the loss. A peer's gradient e_p agrees with the
node's own by z_p = cos(e_p, v), and the node's own other half by z_0 = cos(u, v): the most that a batch of this size
can show. Both are noisy, so running means over rounds decide, the peer's less one standard error:

    alpha_p = clip( (mean z_p - se z_p) / mean z_0, 0, 1 )
    e'_p    = alpha_p * ( e_p - min(0, <e_p, v>) / <v, v> * v )        scaled down to |e'_p| <= 1/2 |u + v|
    step with u + v + sum_p e'_p

Inner products are those of AdamW's step: <a, b> = sum_k a_k b_k / sqrt(mean square of the gradient's entry k).
A peer of whom less is known than two rounds would tell teaches nothing yet, and nobody does in a round in which the
node's own completions do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

Gradient = Sequence[torch.Tensor]

_DECAY = 0.9
_LEAST_ROUNDS = 2.0
_LARGEST_PART = 0.5
_OWN = ""  # no peer's name


@dataclass(slots=True)
class RunningMean:
    """Mean and standard error of numbers of which older ones count less, by a factor of 0.9 each.

    >>> mean = RunningMean()
    >>> for value in (1.0, 0.0, 0.5):
    ...     mean.add(value)
    >>> round(mean.mean, 3), round(mean.num_effective, 2), round(mean.standard_error, 3)
    (0.483, 2.98, 0.23)

    Attributes:
        weight: sum of the weights.
        weight_sq: sum of their squares.
        total: weighted sum of the numbers.
        total_sq: that of their squares.
    """

    weight: float = 0.0
    weight_sq: float = 0.0
    total: float = 0.0
    total_sq: float = 0.0

    def add(self, value: float) -> None:
        """Take in a number."""
        self.weight = _DECAY * self.weight + 1
        self.weight_sq = _DECAY**2 * self.weight_sq + 1
        self.total = _DECAY * self.total + value
        self.total_sq = _DECAY * self.total_sq + value**2

    @property
    def num_effective(self) -> float:
        """How many equally weighted numbers would say as much."""
        return self.weight**2 / self.weight_sq if self.weight else 0.0

    @property
    def mean(self) -> float:
        """The mean; 0 without a number."""
        return self.total / self.weight if self.weight else 0.0

    @property
    def standard_error(self) -> float:
        """Of the mean; infinite without a number."""
        if not self.weight:
            return math.inf
        return math.sqrt(max(0.0, self.total_sq / self.weight - self.mean**2) / self.num_effective)


class GradientTrust:
    """Agreement of each peer's gradients with the node's own, over the rounds, and the steps that follow from it."""

    def __init__(self) -> None:
        self._agreement: dict[str, RunningMean] = {}

    def share(self, peer: str) -> float:
        """alpha of one peer; 0 while too little is known of it."""
        own, theirs = (self._agreement.get(name, RunningMean()) for name in (_OWN, peer))
        if min(own.num_effective, theirs.num_effective) < _LEAST_ROUNDS:
            return 0.0
        proven = theirs.mean - theirs.standard_error
        if proven <= 0:
            return 0.0
        return min(1.0, proven / own.mean) if own.mean > 0 else 1.0

    def combine(
        self, halves: tuple[Gradient, Gradient], peers: Iterable[tuple[str, Gradient]], rates: Gradient
    ) -> Gradient:
        """The gradient to step with; notes how far all agree.

        However many the peers are, one of their gradients is held at a time.

        Args:
            halves: u and v.
            peers: each peer's name and e_p; drawn one after the other.
            rates: 1 / sqrt(mean square) of each entry.
        """
        first, second = halves
        total = [u + v for u, v in zip(first, second, strict=True)]
        limit = _LARGEST_PART * math.sqrt(_inner(total, total, rates))
        self._note(_OWN, first, second, rates)
        for peer, theirs in peers:
            self._note(peer, theirs, second, rates)
            share = self.share(peer)
            if share > 0 and limit > 0:
                _add(total, theirs, second, rates, share=share, limit=limit)
            del theirs  # before the next one is computed
        return total

    def _note(self, name: str, gradient: Gradient, other: Gradient, rates: Gradient) -> None:
        """Take in a cosine, if there is one."""
        mean = self._agreement.setdefault(name, RunningMean())
        squared = _inner(gradient, gradient, rates) * _inner(other, other, rates)
        if squared > 0 and math.isfinite(squared):
            mean.add(_inner(gradient, other, rates) / math.sqrt(squared))

    def state(self) -> dict[str, list[float]]:
        """Plain data for a checkpoint."""
        return {name: [m.weight, m.weight_sq, m.total, m.total_sq] for name, m in self._agreement.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Take over the data of a checkpoint. Raises TypeError or ValueError if they are not such."""
        self._agreement = {name: RunningMean(*map(float, numbers)) for name, numbers in state.items()}


def _add(total: Gradient, theirs: Gradient, second: Gradient, rates: Gradient, *, share: float, limit: float) -> None:
    """Add e'_p, at most `limit` long, unless it is not finite."""
    length = _inner(theirs, theirs, rates)
    if length == 0 or not math.isfinite(length):
        return
    size = _inner(second, second, rates)
    against = min(0.0, _inner(theirs, second, rates)) / size if size > 0 else 0.0
    along = [share * (e - against * v) for e, v in zip(theirs, second, strict=True)]
    length = math.sqrt(_inner(along, along, rates))
    factor = min(1.0, limit / length) if length > 0 else 0.0
    for sum_, part in zip(total, along, strict=True):
        sum_.add_(part, alpha=factor)


def _inner(first: Gradient, second: Gradient, rates: Gradient) -> float:
    return sum(float((a * b * rate).sum(dtype=torch.float64)) for a, b, rate in zip(first, second, rates, strict=True))
