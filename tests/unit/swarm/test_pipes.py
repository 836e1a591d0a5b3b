"""A node's end of a pipe to its hub: leaving is over when the hub has taken note."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

import pytest

from motet.swarm import MemoryHub, PipeExchange, pipes, serve_exchange


class SlowToNote:
    """An exchange at the hub's end that closes when it is let go."""

    def __init__(self, inner):
        self._inner = inner
        self.let_go = threading.Event()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def close(self):
        assert self.let_go.wait(60)
        self._inner.close()


@pytest.fixture
def ends():
    """The node's end, and what answers it."""
    ours, theirs = Pipe()
    slow = SlowToNote(MemoryHub().join("ann"))
    server = threading.Thread(target=serve_exchange, args=(slow, ours))
    server.start()
    yield PipeExchange("ann", theirs), slow
    slow.let_go.set()
    server.join()


def test_leaving_is_over_when_the_hub_has_taken_note(ends):
    ann, slow = ends
    leaving = threading.Thread(target=ann.close)
    leaving.start()
    leaving.join(0.2)
    assert leaving.is_alive()
    slow.let_go.set()
    leaving.join(60)
    assert not leaving.is_alive()
    assert ann.peers() == []


def test_a_hub_that_hangs_in_a_call_keeps_nobody(monkeypatch):
    monkeypatch.setattr(pipes, "_LEAVING_S", 0.05)
    ours, theirs = Pipe()  # nobody answers
    ann = PipeExchange("ann", theirs)
    asking = threading.Thread(target=ann.peers)
    asking.start()
    assert ours.recv_bytes(), "the question has come"
    ann.close()
    assert asking.is_alive()
    ours.close()
    asking.join(60)


def test_a_hub_that_hangs_keeps_nobody(ends, monkeypatch):
    monkeypatch.setattr(pipes, "_LEAVING_S", 0.05)
    ann, _ = ends
    ann.close()
    ann.close()
    assert ann.peers() == []
