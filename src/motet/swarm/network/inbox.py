"""Messages between their arrival and their opening: a bounded queue for each name, served in turn.

Who floods under one name fills that name's queue and no other. Names that nobody has proved to be theirs share one.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from motet.swarm.network.status import Refusals

TopicKind = Literal["beat", "roll", "card"]

_TOPIC: Final = re.compile(
    r"(?:(?P<plain>beat|card)/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,31})"
    r"|roll/(?P<author>[A-Za-z0-9][A-Za-z0-9._-]{0,31})/(?P<round>0|[1-9][0-9]{0,17}))"
)
_MAX_BEATS: Final = 8
_MAX_WAITING: Final = 1024
_MAX_BYTES_IN_MESSAGES: Final = 8


@dataclass(frozen=True, slots=True)
class Topic:
    """What a message says it is, before it is opened.

    Attributes:
        kind: first part of the topic.
        peer: name under which it comes. Anybody can write any name here.
        round: of a "roll"; -1 otherwise.
    """

    kind: TopicKind
    peer: str
    round: int = -1


def roll_topic(peer: str, round: int) -> str:
    """The topic of a peer's round."""
    return f"roll/{peer}/{round}"


def parse_topic(text: str) -> Topic | None:
    """The topic, or None if it is none of a run's.

    >>> parse_topic("roll/ann/3"), parse_topic("roll/ann"), parse_topic("beat/../x")
    (Topic(kind='roll', peer='ann', round=3), None, None)
    """
    match = _TOPIC.fullmatch(text)
    if match is None:
        return None
    plain = match["plain"]
    if plain is None:
        return Topic("roll", match["author"], int(match["round"]))
    return Topic("beat" if plain == "beat" else "card", match["name"])


@dataclass(slots=True)
class _Queue:
    """What waits under one name."""

    max_bytes: int
    beats: deque[tuple[Topic, bytes]] = field(default_factory=deque)
    others: deque[tuple[Topic, bytes]] = field(default_factory=deque)
    num_bytes: int = 0

    def has_room_for(self, num_bytes: int) -> bool:
        return self.num_bytes + num_bytes <= self.max_bytes and len(self.others) < _MAX_WAITING

    def put(self, topic: Topic, message: bytes) -> bool:
        """Take a message in; False if that, or an older heartbeat, must go."""
        if topic.kind == "beat":
            is_full = len(self.beats) >= _MAX_BEATS
            if is_full:
                self.beats.popleft()
            self.beats.append((topic, message))
            return not is_full
        if not self.has_room_for(len(message)):
            return False
        self.others.append((topic, message))
        self.num_bytes += len(message)
        return True

    def take(self) -> tuple[Topic, bytes]:
        if self.beats:
            return self.beats.popleft()
        topic, message = self.others.popleft()
        self.num_bytes -= len(message)
        return topic, message


class Arrivals:
    """Queues of what has arrived. `put` is for threads of an engine: it returns at once and never raises.

    Args:
        refusals: counts what does not fit in, as "flood" or "oversized".
        max_message_bytes: longest message; a name's queue holds eight of them.
    """

    def __init__(self, refusals: Refusals, *, max_message_bytes: int) -> None:
        self._refusals = refusals
        self._max_message_bytes = max_message_bytes
        self._changed = threading.Condition()
        self._queues: dict[str, _Queue] = {}
        self._in_turn: deque[str] = deque()
        self._is_closed = False
        self.num_bytes_in = 0

    def put(self, topic_text: str, message: bytes) -> None:
        """Take a message in, or count why not. Of heartbeats the newest are kept, of others the oldest."""
        topic = parse_topic(topic_text)
        self.num_bytes_in += len(message)
        if topic is None:
            return self._refusals.count("", "malformed")
        if len(message) > self._max_message_bytes:
            return self._refusals.count(topic.peer, "oversized")
        account = self._refusals.account(topic.peer)
        queue = self._queues.get(account)
        if queue is not None and topic.kind != "beat" and not queue.has_room_for(len(message)):
            return self._refusals.count(topic.peer, "flood")  # without the lock, which a flood would keep from others
        with self._changed:
            queue = self._queues.get(account)
            if queue is None:
                queue = self._queues[account] = _Queue(_MAX_BYTES_IN_MESSAGES * self._max_message_bytes)
            was_empty = not (queue.beats or queue.others)
            is_in = queue.put(topic, message)
            if was_empty:
                self._in_turn.append(account)
            self._changed.notify()
        if not is_in:
            self._refusals.count(topic.peer, "flood")
        return None

    def take(self, *, timeout_s: float) -> tuple[Topic, bytes] | None:
        """The next message, of another name than the last one if there is one; heartbeats first.

        Args:
            timeout_s: longest wait.

        Returns:
            None if nothing has come, or after `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._in_turn or self._is_closed, timeout_s)
            if not self._in_turn or self._is_closed:
                return None
            account = self._in_turn.popleft()
            queue = self._queues[account]
            taken = queue.take()
            if queue.beats or queue.others:
                self._in_turn.append(account)
            return taken

    def close(self) -> None:
        """Wake whoever waits in `take`; nothing is given out any more."""
        with self._changed:
            self._is_closed = True
            self._queues.clear()
            self._in_turn.clear()
            self._changed.notify_all()
