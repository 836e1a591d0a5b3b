"""The Exchange protocol: how a node's groups reach the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Parcel:
    """One encoded group under way.

    Attributes:
        peer: who published it, as established by the exchange (not by the payload).
        round: the round it was published for.
        payload: bytes of `records.wire`; not parsed by the exchange.
    """

    peer: str
    round: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a node besides its rounds.

    Attributes:
        kind: one word for programs, such as "joined", "silent", "refused".
        peer: whom it is about; empty for the node itself.
        text: one line for people; what strangers wrote is escaped.
    """

    kind: str
    peer: str
    text: str


class Exchange(Protocol):
    """Moves parcels. Every implementation between live nodes passes `tests/contract/test_exchange.py`.

    - MUST deliver to a node nothing that the node itself published.
    - MUST deliver each parcel at most once to each node, whole and unaltered, or not at all.
    - MUST return from `collect` no later than `deadline_s` after the call, with what has arrived; an empty list is a
      normal result, never an error.
    - MUST return parcels in an order that depends on their content only (peer, then round, then order of publishing).
    - MUST NOT parse payloads, and MUST NOT let a peer's payload raise.
    - MUST NOT make the publisher wait for a receiver.
    - A node that has left (`close`) is no longer waited for.
    """

    @property
    def name(self) -> str:
        """The name under which this node publishes."""
        ...

    def peers(self) -> list[str]:
        """Names of the other live nodes, sorted. Being alone gives an empty list."""
        ...

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        """Hand over all of this node's groups of a round, at once (an empty sequence says: nothing this round)."""
        ...

    def waiting_for(self, round: int) -> list[str]:
        """Live peers that have not yet published this round, sorted: for whom a lockstep node waits.

        Where nodes at free pace wait as well (see `collect`): for whom.
        """
        ...

    def collect(self, round: int, *, deadline_s: float, max_lag: int | None = None) -> list[Parcel]:
        """Parcels of the others.

        Args:
            round: the round to collect for.
            deadline_s: longest wait, in seconds.
            max_lag: None is lockstep: wait until every live peer has published `round`, and return that round only;
                whatever is older is discarded. A number is free pace: return all that has arrived, from rounds
                `round - max_lag` and later; older parcels are discarded. It returns at once if most of the swarm has
                published `round - max_lag`; if not, an exchange between machines waits for that: a node that runs
                away from the others learns alone. (Within one process whoever drives the nodes keeps them together.)
        """
        ...

    def num_late(self) -> dict[str, int]:
        """Parcels per peer that were discarded as too old since the last call."""
        ...

    def num_refused(self) -> dict[str, dict[str, int]]:
        """Messages that were refused before they were opened, per peer and reason, since the last call.

        Where all nodes belong to one owner nothing is refused.
        """
        ...

    def events(self) -> list[Event]:
        """What has happened since the last call. Where all nodes belong to one owner: nothing that they do not know."""
        ...

    def close(self) -> None:
        """Leave. Afterwards the others do not wait for this node. Calling it twice is harmless."""
        ...
