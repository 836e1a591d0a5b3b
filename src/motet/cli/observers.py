"""Several observers of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.simulation import Event, Observer


class Several:
    """Passes everything on to each of them, in order. Implements `motet.simulation.Observer`."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.started(nodes=nodes, first_round=first_round, num_rounds=num_rounds)

    def phase(self, node: str, phase: str, *, round: int, waiting_for: Sequence[str]) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.phase(node, phase, round=round, waiting_for=waiting_for)

    def evaluating(self, node: str, *, round: int) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.evaluating(node, round=round)

    def happened(self, node: str, event: Event) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.happened(node, event)

    def round_done(self, row: Mapping[str, object]) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.round_done(row)
