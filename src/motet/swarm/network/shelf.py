"""Verified groups that wait to be collected: each message at most once, bounded for each peer and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from motet.swarm.exchange import Parcel

Objection = Literal["duplicate", "inconsistent", "too_many_bytes"]

_BYTES_PER_ROUND: Final = 1024
_BYTES_PER_PAYLOAD: Final = 64


@dataclass(slots=True)
class _Round:
    """One peer's round: which of its messages have come, and what of them has not been collected."""

    boot: int
    count: int
    seen: int = 0
    """One bit for each message."""
    num_seen: int = 0
    num_bytes: int = 0
    is_taken: bool = False
    waiting: dict[int, Sequence[bytes]] = field(default_factory=dict)
    waiting_bytes: int = _BYTES_PER_ROUND

    def num_groups(self) -> int:
        return sum(map(len, self.waiting.values()))


@dataclass(slots=True)
class _Board:
    """What is here of one peer."""

    rounds: dict[int, _Round] = field(default_factory=dict)
    floor: int = 0
    """Rounds before this one had to make room: nothing of them is taken in."""
    verified: int = -1
    num_bytes: int = 0


class Shelf:
    """Groups by peer, round and message. Callers hold a lock of their own.

    Args:
        max_bytes_per_round: of one peer's messages for one round.
        max_bytes: of all that waits; beyond it, the peer with the most loses its oldest round, counted as late.

    >>> shelf = Shelf(max_bytes_per_round=1000, max_bytes=10_000)
    >>> shelf.put("bob", boot=1, round=0, index=0, count=1, payloads=[b"group"], num_bytes=5)
    >>> shelf.put("bob", boot=1, round=0, index=0, count=1, payloads=[b"group"], num_bytes=5)
    'duplicate'
    >>> shelf.take(0, None)
    [Parcel(peer='bob', round=0, payload=b'group')]
    """

    def __init__(self, *, max_bytes_per_round: int, max_bytes: int) -> None:
        self._max_bytes_per_round = max_bytes_per_round
        self._max_bytes = max_bytes
        self._boards: dict[str, _Board] = {}
        self._late: Counter[str] = Counter()
        self._floor = 0
        self._num_bytes = 0

    def objection(
        self, peer: str, *, boot: int, round: int, index: int, count: int, num_bytes: int
    ) -> Objection | None:
        """Why a message cannot be taken in, whoever signed it; None if it can, or is late."""
        board = self._boards.get(peer)
        if board is None:
            return None if num_bytes <= self._max_bytes_per_round else "too_many_bytes"
        known = board.rounds.get(round)
        if known is None or self._is_superseded(known, boot):
            return None if num_bytes <= self._max_bytes_per_round else "too_many_bytes"
        if known.boot != boot or known.seen >> index & 1:
            return "duplicate"
        if known.count != count:
            return "inconsistent"
        return "too_many_bytes" if known.num_bytes + num_bytes > self._max_bytes_per_round else None

    def put(
        self, peer: str, *, boot: int, round: int, index: int, count: int, payloads: Sequence[bytes], num_bytes: int
    ) -> Objection | None:
        """Take in a verified message.

        Returns:
            Why it was not; None if it was, or if its round is over and its groups have been counted as late.
        """
        objection = self.objection(peer, boot=boot, round=round, index=index, count=count, num_bytes=num_bytes)
        if objection is not None:
            return objection
        if self.is_over(peer, round):
            self._late[peer] += len(payloads)
            return None
        board = self._boards.setdefault(peer, _Board())
        known = board.rounds.get(round)
        if known is None or self._is_superseded(known, boot):
            if known is not None:
                self._release(board, known)
            known = board.rounds[round] = _Round(boot, count)
            self._charge(board, _BYTES_PER_ROUND)
        known.seen |= 1 << index
        known.num_seen += 1
        known.num_bytes += num_bytes
        if payloads:
            size = sum(map(len, payloads)) + _BYTES_PER_PAYLOAD * len(payloads)
            known.waiting[index] = payloads
            known.waiting_bytes += size
            self._charge(board, size)
        board.verified = max(board.verified, round)
        while self._num_bytes > self._max_bytes and self._evict():
            pass
        return None

    def is_over(self, peer: str, round: int) -> bool:
        """True if messages of the peer's round are not taken in any more."""
        board = self._boards.get(peer)
        return round < max(self._floor, 0 if board is None else board.floor)

    def has_all(self, peer: str, round: int) -> bool:
        """True if every message of the peer's round has come."""
        known = self._round(peer, round)
        return known is not None and known.num_seen == known.count

    def has_some(self, peer: str, round: int) -> bool:
        """True if a message of the peer's round has come."""
        return self._round(peer, round) is not None

    def verified_round(self, peer: str) -> int:
        """The latest round of which a message of the peer's has come; -1 before."""
        board = self._boards.get(peer)
        return -1 if board is None else board.verified

    def take(self, oldest: int, newest: int | None, *, is_late: Callable[[int], bool] = lambda _: True) -> list[Parcel]:
        """What waits of the rounds from `oldest` to `newest`, by peer, round and order of publishing.

        Older rounds are discarded, and counted as late where `is_late` says so of the round.
        """
        parcels: list[Parcel] = []
        for peer in sorted(self._boards):
            board = self._boards[peer]
            for round in sorted(board.rounds):
                known = board.rounds[round]
                if round < oldest:
                    if is_late(round):
                        self._late[peer] += known.num_groups()
                elif newest is None or round <= newest:
                    parcels += [Parcel(peer, round, one) for _, some in sorted(known.waiting.items()) for one in some]
                else:
                    continue
                known.is_taken = True
                self._release(board, known, keep_bytes=_BYTES_PER_ROUND)
                known.waiting = {}
        return parcels

    def forget_before(self, round: int) -> None:
        """Rounds before this one are over: messages for them are late from now on."""
        self._floor = max(self._floor, round)
        for peer, board in self._boards.items():
            for old in [old for old in board.rounds if old < round]:
                self._discard(peer, board, old)

    def drop(self, peer: str) -> None:
        """Throw away what waits of a peer that is not believed any more."""
        board = self._boards.pop(peer, None)
        if board is not None:
            self._num_bytes -= board.num_bytes

    def drain_late(self) -> dict[str, int]:
        """Groups per peer that were discarded as too old since the last call."""
        late = {peer: count for peer, count in sorted(self._late.items()) if count}
        self._late.clear()
        return late

    def _round(self, peer: str, round: int) -> _Round | None:
        board = self._boards.get(peer)
        return None if board is None else board.rounds.get(round)

    @staticmethod
    def _is_superseded(known: _Round, boot: int) -> bool:
        """True if a newer process of the peer's publishes a round anew of which the older one has sent a part only."""
        return boot > known.boot and known.num_seen < known.count and not known.is_taken

    def _charge(self, board: _Board, num_bytes: int) -> None:
        board.num_bytes += num_bytes
        self._num_bytes += num_bytes

    def _release(self, board: _Board, known: _Round, *, keep_bytes: int = 0) -> None:
        self._charge(board, keep_bytes - known.waiting_bytes)
        known.waiting_bytes = keep_bytes

    def _discard(self, peer: str, board: _Board, round: int) -> None:
        known = board.rounds.pop(round)
        self._late[peer] += known.num_groups()
        self._release(board, known)

    def _evict(self) -> bool:
        """Throw away the oldest round of the peer that takes up the most; False if nothing can go."""
        peer, board = max(self._boards.items(), key=lambda item: item[1].num_bytes)
        if not board.rounds:
            return False
        oldest = min(board.rounds)
        self._discard(peer, board, oldest)
        board.floor = max(board.floor, oldest + 1)
        return True
