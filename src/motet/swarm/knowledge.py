"""What a node knows of its swarm at a moment, under one lock."""

from __future__ import annotations

import threading
from collections import Counter

from motet.swarm.credentials import Roster
from motet.swarm.membership import Membership, Peer
from motet.swarm.options import Clock, NetworkOptions
from motet.swarm.repair import Wants
from motet.swarm.shelf import Shelf
from motet.swarm.status import EventLog, Refusals


class Knowledge:
    """Members, groups and wants of a node. Whoever changes something holds `changed` and notifies.

    Attributes:
        changed: the one lock.
        membership: who is there.
        shelf: groups that wait to be collected.
        wants: what to fetch.
        roster: whose key is whose.
        refusals: messages that were refused; has a lock of its own.
        log: what people are told; has a lock of its own.
        current: the round that this node is in; -1 before the first.
        from_round: the first that it takes part in; None while undecided.
        bytes_in: of messages that were not refused, by peer.
        num_repaired: messages that were fetched.
        has_double: somebody else speaks with this node's key.
        is_double: and was there before this node.
        is_closed: this node has left.
    """

    def __init__(self, name: str, digest: bytes, roster: Roster, options: NetworkOptions, clock: Clock) -> None:
        self.changed = threading.Condition()
        self.roster = roster
        self.membership = Membership(digest=digest, heartbeat_s=options.heartbeat_s, fresh_s=options.fresh_s)
        self.shelf = Shelf(max_bytes_per_round=options.max_bytes_per_round, max_bytes=options.max_held_bytes)
        self.wants = Wants(
            name=name,
            seed=options.seed,
            max_lag=options.max_lag,
            max_foreign_groups=options.max_foreign_groups,
            grace_s=options.repair_after_s,
        )
        self.refusals = Refusals(self._is_known)
        self.log = EventLog(clock.monotonic_s)
        self.current = -1
        self.from_round: int | None = None
        self.bytes_in: Counter[str] = Counter()
        self.num_repaired = 0
        self.has_double = False
        self.is_double = False
        self.is_closed = False
        self._max_lag = options.max_lag
        self._options = options
        self._clock = clock

    def live(self) -> list[Peer]:
        """Live peers, by name."""
        return self.membership.live(self._clock.monotonic_s())

    def missing(self, round: int) -> list[str]:
        """Live peers whose groups of the round are to be waited for and have not all come, by name."""
        return [peer.name for peer in self.live() if peer.takes_part_in(round) and not self._is_done(peer, round)]

    def swarm_round(self) -> int | None:
        """The round that the median live peer has published; see `Membership.swarm_round`."""
        return self.membership.swarm_round(
            self._clock.monotonic_s(), num_rounds=self._options.num_rounds, verified_round=self.shelf.verified_round
        )

    def set_pace(self, max_lag: int | None) -> None:
        """Free pace with this lag, or lockstep."""
        self._max_lag = max_lag
        self.wants.set_pace(max_lag)

    def advance(self, round: int) -> None:
        """This node is in a round now, or in a later one already."""
        self.wants.advance(round)
        if round > self.current:
            self.current = round
            self.shelf.forget_before(self.oldest())

    def oldest(self) -> int:
        """Messages for rounds before this one are refused."""
        return max(self.current - (self._max_lag or 0) - self._options.keep_rounds, 0)

    def is_in_window(self, round: int) -> bool:
        """True if messages for the round are taken in."""
        return self.oldest() <= round < self._options.num_rounds

    def _is_done(self, peer: Peer, round: int) -> bool:
        if peer.round < round:
            return False
        if not self._options.is_pushed or self.shelf.has_all(peer.name, round):
            return True
        was_skipped = peer.announced >= round and round not in peer.held
        return was_skipped and not self.shelf.has_some(peer.name, round)

    def _is_known(self, name: str) -> bool:
        return self.membership.peer(name) is not None or self.roster.is_member(name)
