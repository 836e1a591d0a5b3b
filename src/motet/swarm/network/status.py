"""How a node's exchange stands, for people: refusals counted, events told at a bearable rate, and one snapshot."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from motet.journal.reasons import refused_for
from motet.swarm.exchange import Event
from motet.swarm.identity.credentials import Reason
from motet.swarm.identity.envelope import EnvelopeFault
from motet.swarm.network.shelf import Objection

STRANGERS: Final = "?"
"""The one account of all names that nobody has proved to be theirs."""

RefusedFor = (
    EnvelopeFault
    | Reason
    | Objection
    | Literal["flood", "foreign_run", "impersonation", "replay", "clock", "other_run", "round", "early"]
)
"""Why a message is refused; `motet.journal.reasons.REFUSED` has the words."""

PeerState = Literal["live", "silent", "left", "refused"]
_MAX_EVENTS: Final = 256
_MAX_REMEMBERED: Final = 4096
_PAUSES_S: Final = (10.0, 60.0, 600.0)
"""Between an account of what was refused and the next one of the same; the last holds from then on."""


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One peer, as this node sees it.

    Attributes:
        name: under which it speaks; "?" stands for all strangers together.
        key: first digits of its public key; empty if it has shown none that is believed.
        heard_s: seconds since its last heartbeat; None if none came.
        round: the latest that it has published; -1 before.
        from_round: the first that it takes part in; -1 before it says so.
        lag: how many rounds it is behind this node; below 0 if it is ahead.
        state: "live"; "silent": no fresh heartbeat; "left": it said so; "refused": of another run, or not let in.
        refused: messages under its name that were refused, by reason, since the start.
        bytes_in: of its messages that were not refused.
    """

    name: str
    key: str
    heard_s: float | None
    round: int
    from_round: int
    lag: int
    state: PeerState
    refused: dict[str, int]
    bytes_in: int


class NeighbourStatus(msgspec.Struct, frozen=True):
    """Somebody at the other end of a connection: where, and the name in its certificate."""

    address: str
    certificate_name: str | None


class SwarmStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The swarm, as one node sees it.

    Attributes:
        name: of the node.
        key: first digits of its public key.
        boot: unix time in ms at which it joined.
        round: the latest that it has published; -1 before.
        current_round: the one that it is in; -1 before the first.
        swarm_round: the one that the median live peer has published; None if nobody is there to say.
        is_alone: no other node is live.
        waiting_for: peers for whose groups it waits now.
        waiting_s: for how long it has waited.
        duplicate_identity: somebody else speaks with this node's key.
        link_fault: why the link does not work; None while it does.
        neighbours: who is connected.
        peers: by name.
        bytes_in: of all messages that arrived.
        bytes_out: of all that were handed to the link.
        dropped: messages that were lost at this node, by reason: not sent because a group was too large, or the link
            too slow, down, or not permitted to; or come and not taken in by the link.
        num_repaired: messages that were fetched because they had not come.
    """

    name: str
    key: str
    boot: int
    round: int
    current_round: int
    swarm_round: int | None
    is_alone: bool
    waiting_for: list[str]
    waiting_s: float
    duplicate_identity: bool
    link_fault: str | None
    neighbours: list[NeighbourStatus]
    peers: list[PeerStatus]
    bytes_in: int
    bytes_out: int
    dropped: dict[str, int]
    num_repaired: int


class Refusals:
    """Messages that were refused, by peer and reason. Safe to use from several threads.

    Args:
        is_known: whether a name has an account of its own; all others share `STRANGERS`.

    >>> refusals = Refusals(lambda name: name == "bob")
    >>> refusals.count("bob", "replay"), refusals.count("mallory", "malformed")
    (None, None)
    >>> refusals.drain()
    {'?': {'malformed': 1}, 'bob': {'replay': 1}}
    """

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._lock = threading.Lock()
        self._new: dict[str, Counter[str]] = {}
        self._total: dict[str, Counter[str]] = {}

    def account(self, name: str) -> str:
        """The name itself, or `STRANGERS`."""
        return name if self._is_known(name) else STRANGERS

    def count(self, name: str, reason: RefusedFor) -> None:
        """One more message under this name refused."""
        account = self.account(name)
        with self._lock:
            for table in (self._new, self._total):
                table.setdefault(account, Counter())[reason] += 1

    def drain(self) -> dict[str, dict[str, int]]:
        """Counts since the last call."""
        with self._lock:
            new, self._new = self._new, {}
        return _plain(new)

    def total(self) -> dict[str, dict[str, int]]:
        """Counts since the start."""
        with self._lock:
            return _plain(self._total)


@dataclass(slots=True)
class _Refused:
    """Messages of one peer that were refused for one reason."""

    words: str
    num_new: int
    last_s: float
    due_s: float = float("-inf")
    num_told: int = 0

    def tell(self, now_s: float) -> str:
        """One line on those that are new; the next one is due later."""
        more, noun = ("" if self.num_told == 0 else "more "), ("message" if self.num_new == 1 else "messages")
        text = f"{self.num_new} {more}{noun} refused: {self.words}"
        self.due_s = now_s + _PAUSES_S[min(self.num_told, len(_PAUSES_S) - 1)]
        self.num_told += 1
        self.num_new = 0
        return text


class EventLog:
    """Events until somebody asks; of one kind about one peer no more than one in a while. Thread-safe.

    Refused messages are told of at once, and then summed up ever more rarely.

    Args:
        clock: in seconds.
        quiet_s: how long the same kind about the same peer is not told again.
    """

    def __init__(self, clock: Callable[[], float], *, quiet_s: float = 10.0) -> None:
        self._clock = clock
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._told: dict[tuple[str, str, str], float] = {}
        self._refused: dict[tuple[str, str], _Refused] = {}

    def tell(self, kind: str, peer: str, text: str, *, subject: str = "", once: bool = False) -> None:
        """Note an event.

        Args:
            kind: one word.
            peer: whom it is about.
            text: one line.
            subject: events of another subject are told although kind and peer are the same.
            once: never tell it again.
        """
        key, now_s = (kind, peer, subject), self._clock()
        with self._lock:
            if now_s < self._told.get(key, float("-inf")):
                return
            self._told[key] = float("inf") if once else now_s + self._quiet_s
            while len(self._told) > _MAX_REMEMBERED:
                del self._told[next(iter(self._told))]
            self._events.append(Event(kind, peer, text))

    def refused(self, peer: str, reason: RefusedFor, words: str = "") -> None:
        """One more message was refused.

        Args:
            peer: under whose name, or `STRANGERS`.
            reason: why.
            words: the same for people, where there is more to say than the reason's own words.
        """
        words = words or refused_for(reason, "" if peer == STRANGERS else peer)
        with self._lock:
            seen = self._refused.setdefault((peer, reason), _Refused(words, 0, 0.0))
            seen.words, seen.last_s = words, self._clock()
            seen.num_new += 1

    def drain(self) -> list[Event]:
        """Events since the last call, oldest first; what was refused stands at the end."""
        now_s = self._clock()
        with self._lock:
            events = list(self._events)
            self._events.clear()
            for (peer, reason), seen in list(self._refused.items()):
                if seen.num_new and now_s >= seen.due_s:
                    events.append(Event("refused", peer, seen.tell(now_s)))
                elif now_s - seen.last_s >= _PAUSES_S[-1]:
                    del self._refused[peer, reason]
        return events


def _plain(table: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(sorted(counter.items())) for name, counter in sorted(table.items())}
