"""What waits to be sent: bounded, so that a server that is away costs memory only up to a limit."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way to the server.

    Attributes:
        topic: under which it is sent.
        message: its bytes.
        num_tries: how often it has been tried in vain.
    """

    topic: str
    message: bytes
    num_tries: int = 0


class Outbox:
    """A bounded queue between the threads that send and the one that talks to the server.

    Heartbeats go first, and of each topic only the latest waits. Of the rest the oldest goes when there is too much.

    Args:
        max_bytes: of the messages that wait, heartbeats aside.

    >>> outbox = Outbox(max_bytes=3)
    >>> [outbox.put(Outgoing(f"roll/a/{n}", b"ab")) for n in range(3)]
    [0, 1, 1]
    >>> outbox.put(Outgoing("beat/a", b"old")), outbox.put(Outgoing("beat/a", b"new"))
    (0, 0)
    >>> [outgoing.topic for outgoing in iter(outbox.take, None)]
    ['beat/a', 'roll/a/2']
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._beats: dict[str, Outgoing] = {}
        self._rest: deque[Outgoing] = deque()
        self._lock = threading.Lock()

    def put(self, outgoing: Outgoing) -> int:
        """Add a message; returns how many had to go for it, possibly itself."""
        num_dropped = 0
        with self._lock:
            if outgoing.topic.startswith("beat/"):
                self._beats[outgoing.topic] = outgoing
                return 0
            self._rest.append(outgoing)
            self._num_bytes += len(outgoing.message)
            while self._num_bytes > self._max_bytes:
                self._num_bytes -= len(self._rest.popleft().message)
                num_dropped += 1
        return num_dropped

    def take(self) -> Outgoing | None:
        """The next message; None if none waits."""
        with self._lock:
            if self._beats:
                return self._beats.pop(next(iter(self._beats)))
            if not self._rest:
                return None
            outgoing = self._rest.popleft()
            self._num_bytes -= len(outgoing.message)
            return outgoing

    def drop_beats(self) -> None:
        """Forget the heartbeats that wait: by now they say what no longer holds."""
        with self._lock:
            self._beats.clear()
