"""Padding: correct completions that are long for no reason make everybody's completions long, and slow.

A soft check. Models differ in how much they write, so a group is compared and not judged, until the mean length of its
correct completions is beyond FAR_OUTSIDE times what 95 % of our own correct ones keep to. Completions that are not
correct teach no length: the filter drops them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import fmean

from motet.admission.structure import Finding
from motet.records import Group

FAR_OUTSIDE = 4.0
"""Times as long as our own, and longer: rejected."""
_SOLVED = 1.0  # a reward of 1 or more, as in accuracy/test
_KEPT = 512
_ENOUGH = 64


class OwnLengths:
    """Lengths of this node's own correct completions, the last 512 of them."""

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=_KEPT)
        self._mean = self._long = 0.0

    def note(self, groups: Iterable[Group]) -> None:
        """Remember a round's own groups."""
        for group in groups:
            self._lengths.extend(_correct_lengths(group))
        self._measure()

    def ratio(self, group: Group) -> float:
        """Mean length of the group's correct completions by that of ours; 0 if either has too few."""
        theirs = _correct_lengths(group)
        return fmean(theirs) / self._mean if theirs and self._mean else 0.0

    def check(self, group: Group) -> Finding | None:
        """A finding if the correct completions of a group, scored by us, are far longer than ours."""
        theirs = _correct_lengths(group)
        if not theirs or not self._long or fmean(theirs) <= FAR_OUTSIDE * self._long:
            return None
        return Finding(
            "padded", f"correct completions of {fmean(theirs):.0f} tokens; 95 % of ours have {self._long:.0f} or less"
        )

    def to_list(self) -> list[int]:
        """Plain data for a checkpoint."""
        return list(self._lengths)

    def restore(self, lengths: Sequence[int]) -> None:
        """Take over what `to_list` returned. Raises TypeError or ValueError for anything but numbers."""
        self._lengths = deque(map(int, lengths), maxlen=_KEPT)
        self._measure()

    def _measure(self) -> None:
        if len(self._lengths) >= _ENOUGH:
            self._mean = fmean(self._lengths)
            self._long = float(sorted(self._lengths)[int(0.95 * len(self._lengths))])


def _correct_lengths(group: Group) -> list[int]:
    return [len(rollout.token_ids) for rollout in group.rollouts if rollout.reward >= _SOLVED]
