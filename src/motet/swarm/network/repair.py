"""Which rounds of which peers to fetch: those that heartbeats announce and that have not come, or a fair sample of all.

Pushed rounds are fetched only when they seem lost. In a large swarm nothing is pushed: of what is announced, each node
draws as many groups as it wants, in an order that follows from its own name, the seed and the round, and goes over the
peers evenly. How many groups a peer announces is a claim, so those that came are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from statistics import median_low
from typing import Final

from motet.swarm.network.membership import Peer
from motet.swarm.network.shelf import Shelf

_MAX_IN_FLIGHT: Final = 16
_MAX_IN_FLIGHT_OF_A_PEER: Final = 2
_MAX_NOTED: Final = 4096
_FIRST_RETRY_S: Final = 0.25
_LAST_RETRY_S: Final = 5.0
_RETRY_GROWTH: Final = 1.5
_MAX_TRIES_OF_A_DRAW: Final = 3


@dataclass(frozen=True, slots=True)
class Fetch:
    """A question to ask.

    Attributes:
        peer: whose round.
        round: which.
        max_groups: most groups that are kept of it; None for all.
    """

    peer: str
    round: int
    max_groups: int | None = None


@dataclass(slots=True)
class _Tries:
    """When a peer's round is due, and how often it was asked for."""

    due_s: float
    count: int = 0


@dataclass(slots=True)
class _Rest:
    """Until when a peer is left alone that had nothing new to give so many times in a row."""

    until_s: float = float("-inf")
    num_failures: int = 0


@dataclass(slots=True)
class _Draw:
    """What is drawn for one own round."""

    left: int
    finished: dict[tuple[str, int], int] = field(default_factory=dict)
    """Rounds that are not asked for again, and how many groups of each were kept."""


class Wants:
    """Decides what to fetch. Callers hold a lock of their own.

    Args:
        name: of this node.
        seed: of the run.
        max_lag: free pace: oldest round that is still wanted, counted back from the current one; None is lockstep.
        max_foreign_groups: groups to draw in a round; None if rounds are pushed.
        grace_s: how long an announced round may be under way before it seems lost.
    """

    def __init__(
        self, *, name: str, seed: int, max_lag: int | None, max_foreign_groups: int | None, grace_s: float
    ) -> None:
        self._name = name
        self._seed = seed
        self._max_lag = max_lag
        self._max_foreign_groups = max_foreign_groups
        self._grace_s = grace_s
        self._current = -1
        self._has_begun = False
        self._is_open = max_lag is not None
        self._draw = _Draw(max_foreign_groups or 0)
        self._tries: dict[tuple[str, int], _Tries] = {}
        self._in_flight: dict[tuple[str, int], int] = {}
        self._rests: dict[str, _Rest] = {}

    def advance(self, round: int) -> None:
        """This node is in a round now: a new draw. An earlier round, or the same again, changes nothing."""
        if round <= self._current and self._has_begun:
            return
        is_first = not self._has_begun
        self._current = max(round, self._current)
        self._has_begun = True
        self._is_open = self._max_lag is not None
        finished = {key: kept for key, kept in self._draw.finished.items() if key[1] >= self._oldest()}
        drawn_before = sum(finished.values()) + sum(self._in_flight.values()) if is_first else 0
        self._draw = _Draw((self._max_foreign_groups or 0) - drawn_before, finished)
        self._tries = {key: tries for key, tries in self._tries.items() if key[1] >= self._oldest()}
        self._in_flight = dict.fromkeys(self._in_flight, 0)  # paid for by the round in which they were asked for

    def set_pace(self, max_lag: int | None) -> None:
        """Free pace with this lag, or lockstep."""
        if max_lag != self._max_lag:
            self._max_lag = max_lag
            self._is_open = max_lag is not None

    def open_draw(self, round: int, now_s: float) -> None:
        """Lockstep: whoever was to announce the round has done so, or half of the time is over: fetch it now."""
        if round == self._current:
            self._is_open = True
        for key, tries in self._tries.items():
            if key[1] == round and tries.count == 0:
                tries.due_s = now_s

    def is_settled(self, peers: Sequence[Peer], shelf: Shelf, *, all_have_announced: bool) -> bool:
        """True if nothing is under way, and the draw is full or everything that there is has been drawn."""
        if not self._is_open or self._in_flight:
            return False
        return self._draw.left <= 0 or (all_have_announced and not self._missing(peers, shelf, self._current))

    def is_idle(self, peers: Sequence[Peer], shelf: Shelf, now_s: float) -> bool:
        """True if nothing is under way, and the draw is full or there is nothing to ask for at this moment."""
        if self._in_flight:
            return False
        missing = self._missing(peers, shelf, self._oldest())
        return self._draw.left <= 0 or not any(self._is_rested(name, now_s) for name, _, _ in missing)

    def next(self, peers: Sequence[Peer], shelf: Shelf, now_s: float) -> list[Fetch]:
        """What to fetch now; each must be reported as `done`.

        Args:
            peers: the live ones.
            shelf: what has come.
            now_s: time.
        """
        oldest = self._oldest() if self._has_begun else self._oldest_before_begin(peers)
        if self._max_foreign_groups is not None and self._has_begun and not self._is_open:
            return []
        missing = self._missing(peers, shelf, oldest)
        self._forget_all_but(missing)
        ready = [one for one in missing if (one[0], one[1]) not in self._in_flight and self._is_rested(one[0], now_s)]
        if self._max_foreign_groups is None:
            return self._lost(ready, peers, now_s)
        return self._drawn(ready)

    def done(self, fetch: Fetch, *, num_messages: int, num_groups: int, is_complete: bool, now_s: float) -> None:
        """A fetch has ended.

        Args:
            fetch: which.
            num_messages: messages of it that were new and right.
            num_groups: groups in them that were kept.
            is_complete: all messages of the round are here.
            now_s: time.
        """
        key = (fetch.peer, fetch.round)
        charged = self._in_flight.pop(key, 0)
        rest = self._rests.setdefault(fetch.peer, _Rest())
        rest.num_failures = 0 if num_messages else rest.num_failures + 1
        pause_s = _FIRST_RETRY_S * _RETRY_GROWTH ** min(rest.num_failures - 1, 10) if rest.num_failures else 0.0
        rest.until_s = now_s + min(pause_s, _LAST_RETRY_S)
        tries = self._tries.setdefault(key, _Tries(now_s))
        tries.count += 1
        if fetch.max_groups is not None:
            self._draw.left += max(charged - num_groups, 0)
            if is_complete or num_groups >= fetch.max_groups or tries.count >= _MAX_TRIES_OF_A_DRAW:
                self._draw.finished[key] = num_groups

    def _oldest(self) -> int:
        return max(self._current - (self._max_lag or 0), 0)

    def _oldest_before_begin(self, peers: Sequence[Peer]) -> int:
        """The swarm's own rounds, so that a node that joins sees that the swarm is where it says."""
        rounds = [peer.round for peer in peers if peer.round >= 0]
        return max(median_low(rounds) - (self._max_lag or 0), 0) if rounds else 0

    def _missing(self, peers: Sequence[Peer], shelf: Shelf, oldest: int) -> list[tuple[str, int, int]]:
        """(peer, round, groups) that are announced, wanted and not here."""
        is_of_one_round = self._max_foreign_groups is not None and self._max_lag is None and self._has_begun
        newest = self._current if is_of_one_round else None
        return [
            (peer.name, round, held.num_groups)
            for peer in peers
            for round, held in peer.held.items()
            if round >= oldest
            and (newest is None or round <= newest)
            and not shelf.has_all(peer.name, round)
            and (peer.name, round) not in self._draw.finished
        ]

    def _lost(self, ready: Sequence[tuple[str, int, int]], peers: Sequence[Peer], now_s: float) -> list[Fetch]:
        """Of pushed rounds those that have been announced for long enough, or were sent before we listened."""
        before = {peer.name: peer.round_at_first for peer in peers}
        fetches = []
        for name, round, _ in self._evenly(ready):
            wait_s = 0.0 if round <= before[name] else self._grace_s
            if now_s >= self._tries.setdefault((name, round), _Tries(now_s + wait_s)).due_s and self._has_room(name):
                self._in_flight[name, round] = 0
                fetches.append(Fetch(name, round))
        return fetches

    def _drawn(self, ready: Sequence[tuple[str, int, int]]) -> list[Fetch]:
        """As many of the announced rounds as cover what is left to draw."""
        claims = [min(claim, self._draw.left) for _, _, claim in ready if claim]
        most = median_low(claims) if sum(claims) > self._draw.left else self._draw.left
        fetches = []
        for name, round, claim in self._evenly(ready):
            groups = min(claim, most, self._draw.left)
            if claim == 0:
                self._draw.finished[name, round] = 0
            elif groups > 0 and self._has_room(name):
                self._draw.left -= groups
                self._in_flight[name, round] = groups
                fetches.append(Fetch(name, round, groups))
        return fetches

    def _has_room(self, peer: str) -> bool:
        of_peer = sum(name == peer for name, _ in self._in_flight)
        return of_peer < _MAX_IN_FLIGHT_OF_A_PEER and len(self._in_flight) < _MAX_IN_FLIGHT

    def _is_rested(self, peer: str, now_s: float) -> bool:
        rest = self._rests.get(peer)
        return rest is None or now_s >= rest.until_s

    def _forget_all_but(self, missing: Sequence[tuple[str, int, int]]) -> None:
        """Keep no note of rounds that a peer announced once and does not any more: they may be made up."""
        if len(self._tries) + len(self._draw.finished) > _MAX_NOTED + len(missing):
            announced = {(name, round) for name, round, _ in missing} | set(self._in_flight)
            self._tries = {key: tries for key, tries in self._tries.items() if key in announced}
            self._draw.finished = dict(list(self._draw.finished.items())[-_MAX_NOTED // 2 :])

    def _evenly(self, wanted: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """In the order of the draw: one round of each peer, then a second one of each, and so on."""
        turn: dict[str, int] = {}
        ordered = []
        for one in sorted(wanted, key=lambda one: self._rank(one[0], one[1])):
            ordered.append((turn.setdefault(one[0], 0), one))
            turn[one[0]] += 1
        return [one for _, one in sorted(ordered, key=lambda pair: pair[0])]

    def _rank(self, peer: str, round: int) -> bytes:
        text = f"{self._seed}\n{self._name}\n{self._current}\n{peer}\n{round}"
        return blake2b(text.encode(), digest_size=16, person=b"motet.draw").digest()
