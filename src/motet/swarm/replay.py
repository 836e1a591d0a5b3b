"""The exchange of a node that learns from stored groups: its peers are archives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.swarm.exchange import Event, Parcel

Payloads = Callable[[int], Sequence[tuple[str, bytes]]]
"""A round to what is stored of it: (peer, payload), by peer and in the order of publishing."""


class ReplayExchange:
    """Implements `Exchange` where nobody else is: what was published once arrives again in the round of its number.

    Nothing is waited for, and what this node publishes reaches nobody. A peer may bear this node's own name: it is the
    node that sampled then. Nothing is kept between two rounds, so that a resumed run needs nothing restored.

    Args:
        name: under which this node would publish.
        peers: who sampled what is stored.
        payloads: what is stored.
    """

    def __init__(self, name: str, *, peers: Sequence[str], payloads: Payloads) -> None:
        self._name = name
        self._peers = sorted(peers)
        self._payloads = payloads
        self._next = 0

    @property
    def name(self) -> str:
        """The name under which this node would publish."""
        return self._name

    def peers(self) -> list[str]:
        """Who sampled what is stored, sorted; nobody once this node has left."""
        return list(self._peers)

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        """Nothing: nobody listens."""

    def waiting_for(self, round: int) -> list[str]:
        """Nobody: all is there."""
        del round
        return []

    def collect(self, round: int, *, deadline_s: float, max_lag: int | None = None) -> list[Parcel]:
        """What is stored of the round, once; under any pace nothing of another one."""
        del deadline_s, max_lag
        if round < self._next or not self._peers:
            return []
        self._next = round + 1
        return [Parcel(peer, round, payload) for peer, payload in self._payloads(round)]

    def num_late(self) -> dict[str, int]:
        """Nothing is ever late."""
        return {}

    def num_refused(self) -> dict[str, dict[str, int]]:
        """Nothing: an archive that cannot be read is an error."""
        return {}

    def events(self) -> list[Event]:
        """Nothing happens besides."""
        return []

    def close(self) -> None:
        """Leave. Calling it twice is harmless."""
        self._peers = []
