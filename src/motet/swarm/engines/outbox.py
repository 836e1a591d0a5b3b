"""A thread that sends what others hand it, so that nobody who sends ever waits for the network."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

Send = Callable[[str, bytes], None]
"""(topic, message): may take its time."""

_PATIENCE_S: Final = 1.0


class Outbox:
    """A bounded queue with a thread of its own. When it is full, the oldest message goes.

    Args:
        name: of the thread.
        send: carries one message; it does not raise.
        max_bytes: of the messages that wait; one alone may be larger.
        max_messages: that wait.
    """

    def __init__(self, name: str, send: Send, *, max_bytes: int, max_messages: int) -> None:
        self._send = send
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._num_bytes = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self.num_dropped = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while its thread runs."""
        return self._thread.is_alive()

    def put(self, topic: str, message: bytes) -> None:
        """Hand over a message; returns at once. Nothing happens after `close`."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append((topic, message))
            self._num_bytes += len(message)
            while len(self._waiting) > 1 and (
                self._num_bytes > self._max_bytes or len(self._waiting) > self._max_messages
            ):
                self._num_bytes -= len(self._waiting.popleft()[1])
                self.num_dropped += 1
            self._changed.notify()

    def close(self) -> None:
        """Take nothing more. What waits is still sent, so far as that does not take long; the rest is dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(_PATIENCE_S)
        with self._changed:
            self.num_dropped += len(self._waiting)
            self._waiting.clear()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_closed:
                        return
                    self._changed.wait()
                topic, message = self._waiting.popleft()
                self._num_bytes -= len(message)
            self._send(topic, message)
