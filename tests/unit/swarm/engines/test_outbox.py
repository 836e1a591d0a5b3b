from __future__ import annotations

import threading
import time

import pytest

from motet.swarm.engines.outbox import Outbox

LONG_S = 30.0


class Wire:
    """Takes messages, one at a time, and only while its gate is open."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.busy = threading.Event()
        self.gate = threading.Event()
        self._changed = threading.Condition()

    def send(self, topic: str, message: bytes) -> None:
        self.busy.set()
        assert self.gate.wait(LONG_S)
        with self._changed:
            self.sent.append((topic, message))
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.sent) >= count, LONG_S)


@pytest.fixture
def wire():
    wire = Wire()
    yield wire
    wire.gate.set()


class TestOutbox:
    def test_sends_in_order(self, wire):
        wire.gate.set()
        outbox = Outbox("test", wire.send, max_bytes=10, max_messages=10)
        for number in range(5):
            outbox.put(f"roll/a/{number}", b"x")
            wire.wait_for(number + 1)
        outbox.close()
        assert [topic for topic, _ in wire.sent] == [f"roll/a/{number}" for number in range(5)]

    @pytest.mark.parametrize(("limits", "kept"), [((6, 100), "234"), ((1000, 2), "34"), ((1, 100), "4")])
    def test_puts_never_wait_and_the_oldest_goes(self, wire, limits, kept):
        max_bytes, max_messages = limits
        outbox = Outbox("test", wire.send, max_bytes=max_bytes, max_messages=max_messages)
        outbox.put("first", b"xx")
        assert wire.busy.wait(LONG_S)
        for name in "01234":
            outbox.put(name, b"xx")
        wire.gate.set()
        wire.wait_for(1 + len(kept))
        assert outbox.num_dropped == 5 - len(kept)
        outbox.close()
        assert [topic for topic, _ in wire.sent] == ["first", *kept]

    def test_what_waits_when_it_is_closed_is_still_sent(self, wire):
        outbox = Outbox("test", wire.send, max_bytes=100, max_messages=10)
        for name in "012":
            outbox.put(name, b"x")
        assert wire.busy.wait(LONG_S)
        wire.gate.set()
        outbox.close()
        outbox.put("late", b"x")
        wire.wait_for(3)
        assert [topic for topic, _ in wire.sent] == ["0", "1", "2"]

    def test_but_closing_does_not_wait_for_one_that_is_stuck(self, wire, monkeypatch):
        monkeypatch.setattr("motet.swarm.engines.outbox._PATIENCE_S", 0.05)
        before = threading.active_count()
        outbox = Outbox("test", wire.send, max_bytes=100, max_messages=10)
        outbox.put("first", b"x")
        assert wire.busy.wait(LONG_S)
        outbox.put("second", b"x")
        outbox.close()
        assert wire.sent == []
        wire.gate.set()
        wire.wait_for(1)
        ends = time.monotonic() + LONG_S
        while threading.active_count() > before:
            assert time.monotonic() < ends, "its thread goes on"
            time.sleep(0.01)
        assert [topic for topic, _ in wire.sent] == ["first"]
