"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from motet.swarm import Event


class Observer(Protocol):
    """Told of everything that a person may want to see; must return quickly."""

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """The run begins, or continues, at `first_round`."""
        ...

    def phase(self, node: str, phase: str, *, round: int, waiting_for: Sequence[str]) -> None:
        """A node is about to begin a phase of `motet.node.Phase`; `waiting_for` names the peers that it still lacks."""
        ...

    def evaluating(self, node: str, *, round: int) -> None:
        """A node is being examined."""
        ...

    def happened(self, node: str, event: Event) -> None:
        """Something happened to a node besides its rounds: a peer joined, was refused, fell silent."""
        ...

    def round_done(self, row: Mapping[str, object]) -> None:
        """One node's row of the journal, with "round", "node" and metrics."""
        ...


class Quiet:
    """An observer that looks away."""

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """Ignore it."""

    def phase(self, node: str, phase: str, *, round: int, waiting_for: Sequence[str]) -> None:
        """Ignore it."""

    def evaluating(self, node: str, *, round: int) -> None:
        """Ignore it."""

    def happened(self, node: str, event: Event) -> None:
        """Ignore it."""

    def round_done(self, row: Mapping[str, object]) -> None:
        """Ignore it."""
