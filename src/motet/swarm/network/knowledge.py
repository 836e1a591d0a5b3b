"""What a node knows of its swarm at a moment, under one lock."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import Final

from motet.swarm.identity.credentials import Roster
from motet.swarm.network.membership import MARK_BYTES, MAX_REFUSED, Membership, Peer
from motet.swarm.network.options import Clock, NetworkOptions
from motet.swarm.network.repair import Wants
from motet.swarm.network.shelf import Shelf
from motet.swarm.network.status import EventLog, Refusals

MOST_OVERDUE: Final = 3
"""A peer that has missed so many deadlines in a row is not waited for again before it is in time."""


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
        overdue: deadlines that a peer has missed in a row.
        differences: in what the cards of peers of other runs differ from ours, for people.
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
        self.overdue: Counter[str] = Counter()
        self.differences: dict[str, str] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._max_lag = options.max_lag
        self._options = options
        self._clock = clock

    def live(self) -> list[Peer]:
        """Live peers, by name."""
        return self.membership.live(self._clock.monotonic_s())

    def missing(self, round: int) -> list[str]:
        """Live peers whose groups are to be waited for in a round of this node and have not all come, by name.

        In lockstep those of the round itself. At free pace the round from which on a node still learns must have been
        published by most of the swarm, this node among them: else it would run away from the others and be alone.
        """
        waited_for = [peer for peer in self.live() if self.overdue[peer.name] < MOST_OVERDUE]
        if self._max_lag is None:
            return [peer.name for peer in waited_for if self._holds_up(peer, round)]
        settled = [peer for peer in waited_for if peer.is_founder or not peer.is_joining]
        behind = [peer.name for peer in settled if self._holds_up(peer, round)]
        num_with_it = len(settled) - len(behind) + 1
        return behind if 2 * num_with_it <= len(settled) + 1 else []

    def end_wait(self, round: int, *, is_over: bool) -> list[str]:
        """The wait for a round has ended; returns peers that will not be waited for any more until they are in time.

        Args:
            round: which.
            is_over: the deadline is over: whoever is missing has missed it.
        """
        given_up = []
        for peer in self.live():
            if not self._holds_up(peer, round):
                self.overdue.pop(peer.name, None)
            elif is_over:
                self.overdue[peer.name] += 1
                if self.overdue[peer.name] == MOST_OVERDUE:
                    given_up.append(peer.name)
        return given_up

    def note_refused(self, key: bytes) -> None:
        """A key whose credential is not believed; its holder is told so in heartbeats."""
        with self.changed:
            mark = key[:MARK_BYTES]
            self._refused.pop(mark, None)
            self._refused[mark] = None
            while len(self._refused) > MAX_REFUSED:
                self._refused.popitem(last=False)

    def refused_marks(self) -> tuple[bytes, ...]:
        """Marks of the keys that were refused last."""
        return tuple(self._refused)

    def is_refused_by_all(self, key: bytes) -> bool:
        """True if every live peer says that it does not believe this key, and all were here before this node.

        None being there is no refusal, and a newcomer cannot send away those that it finds.
        """
        live = self.live()
        return bool(live) and all(peer.is_founder and key[:MARK_BYTES] in peer.refuses for peer in live)

    def other_swarm(self) -> tuple[str, str] | None:
        """A peer of another run that was here before this node, where nobody is of this one; and what differs."""
        now_s = self._clock.monotonic_s()
        if self.membership.live(now_s):
            return None
        there = (
            peer.name
            for peer in self.membership.all()
            if peer.is_founder and not peer.is_same_run and not peer.has_left and self.membership.is_fresh(peer, now_s)
        )
        return next(((name, self.differences[name]) for name in there if name in self.differences), None)

    def swarm_round(self) -> int | None:
        """The round that the swarm has reached; see `Membership.swarm_round`."""
        return self.membership.swarm_round(
            self._clock.monotonic_s(), num_rounds=self._options.num_rounds, verified_round=self.shelf.verified_round
        )

    @property
    def is_free(self) -> bool:
        """True at free pace, false in lockstep."""
        return self._max_lag is not None

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
        """Messages for rounds before this one are late."""
        return max(self.current - (self._max_lag or 0) - self._options.keep_rounds, 0)

    def _holds_up(self, peer: Peer, round: int) -> bool:
        """True if the peer takes part in the round, and what this node needs of it to go on is not there."""
        needed = round - (self._max_lag or 0)
        return needed >= 0 and peer.takes_part_in(needed) and not self._is_here(peer, needed)

    def _is_here(self, peer: Peer, round: int) -> bool:
        """True if all that will come of a peer's round has come, or can be fetched."""
        if peer.round < round:
            return False
        if not self._options.is_pushed or self.shelf.has_all(peer.name, round):
            return True
        was_skipped = peer.announced >= round and round not in peer.held
        return was_skipped and not self.shelf.has_some(peer.name, round)

    def _is_known(self, name: str) -> bool:
        return self.membership.peer(name) is not None or self.roster.is_member(name)
