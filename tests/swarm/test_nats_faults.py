"""Servers and clients that die and freeze: what must not happen to the others."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from nats_server import (
    FETCH_S,
    RUN,
    NatsLinks,
    NatsServer,
    Received,
    answers,
    deaf,
    nats_marks,
)
from patience import wait_until

from motet.errors import SwarmUnreachable

pytestmark = nats_marks()


def test_a_server_that_is_killed_and_restarted_keeps_the_history_and_delivery_resumes(
    server: NatsServer, links: NatsLinks
) -> None:
    got = Received()
    ann = links.open("ann")
    bob = links.open("bob", got)
    for number in range(20):
        ann.send("roll/ann/0", b"%d" % number)
    wait_until(lambda: len(bob.fetch("roll/ann/0", timeout_s=FETCH_S)) == 20)

    server.kill()
    wait_until(lambda: ann.fault() is not None and bob.fault() is not None)
    assert "refused" in str(ann.fault()) or "again" in str(ann.fault())
    assert (bob.neighbours(), bob.fetch("roll/ann/0", timeout_s=FETCH_S)) == ([], [])
    ann.send("roll/ann/1", b"sent while the server was down")
    ann.send("beat/ann", b"old")
    ann.send("beat/ann", b"new")

    server.start()
    wait_until(lambda: ann.fault() is None and bob.fault() is None)
    wait_until(lambda: len(bob.fetch("roll/ann/1", timeout_s=FETCH_S)) == 1)
    assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"%d" % number for number in range(20)]
    ann.send("roll/ann/2", b"live again")
    wait_until(lambda: got.under("roll/ann/2"))
    assert b"old" not in got.under("beat/ann")


def test_a_server_that_lost_its_store_gets_the_streams_anew(
    server: NatsServer, links: NatsLinks, tmp_path: Path
) -> None:
    got = Received()
    ann = links.open("ann", answer=answers(b"own copy"))
    bob = links.open("bob", got)
    ann.send("roll/ann/0", b"own copy")
    wait_until(lambda: got.messages)
    server.kill()
    wait_until(lambda: ann.fault() is not None and bob.fault() is not None)
    server.store.rename(tmp_path / "lost")
    server.start()
    wait_until(lambda: ann.fault() is None and bob.fault() is None)
    assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"own copy"]
    ann.send("roll/ann/1", b"stored again")  # which is not what ann itself answers
    wait_until(lambda: b"stored again" in bob.fetch("roll/ann/1", timeout_s=FETCH_S))


def test_a_frozen_server_is_a_fault_and_nothing_hangs(server: NatsServer, links: NatsLinks) -> None:
    got = Received()
    ann = links.open("ann", open_timeout_s=2.0)
    bob = links.open("bob", got, open_timeout_s=2.0)
    server.freeze()
    try:
        started_s = time.monotonic()
        for _ in range(50):
            ann.send("roll/ann/0", bytes(900_000))
        assert ann.fetch("roll/bob/0", timeout_s=0.5) == []
        assert time.monotonic() - started_s < 10
        wait_until(lambda: ann.fault() is not None)
        late = links.make("late", open_timeout_s=1.0)
        with pytest.raises(SwarmUnreachable, match="no answer"):
            late.open(inbox=deaf, answer=answers(), pushed=True)
        started_s = time.monotonic()
        ann.close()
        assert time.monotonic() - started_s < 20
    finally:
        server.thaw()
    ann.open(inbox=deaf, answer=answers(), pushed=True)
    wait_until(lambda: ann.send("roll/ann/1", b"again") or got.under("roll/ann/1"))
    assert bob.fault() is None


def test_what_was_under_way_when_the_server_died_is_sent_again(server: NatsServer, links: NatsLinks) -> None:
    ann, bob = links.open("ann"), links.open("bob")
    server.freeze()
    for number in range(5):
        ann.send("roll/ann/0", b"%d" % number)
    server.kill()
    wait_until(lambda: ann.fault() is not None and bob.fault() is not None)
    server.start()
    wait_until(lambda: ann.fault() is None and bob.fault() is None)
    wait_until(lambda: sorted(bob.fetch("roll/ann/0", timeout_s=FETCH_S)) == [b"%d" % number for number in range(5)])


def test_closing_does_not_wait_for_a_server_that_hangs(server: NatsServer, links: NatsLinks) -> None:
    """Not even while connecting again, which may take as long as opening."""
    got, num_threads = Received(), threading.active_count()
    ann, bob = links.open("ann", got, open_timeout_s=60.0), links.open("bob")
    bob.send("beat/bob", b"here")
    wait_until(lambda: got.messages)
    server.freeze()
    wait_until(lambda: ann.fault() is not None)
    started_s = time.monotonic()
    ann.close()
    assert time.monotonic() - started_s < 20
    server.thaw()
    bob.close()
    wait_until(lambda: threading.active_count() == num_threads)
    assert got.messages == [("beat/bob", b"here")]


def test_a_server_that_starts_later_is_found_by_trying_again(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    with NatsLinks(server) as links:
        ann = links.make("ann")
        with pytest.raises(SwarmUnreachable, match="refused"):
            ann.open(inbox=deaf, answer=answers(), pushed=True)
        with server:
            ann.open(inbox=deaf, answer=answers(), pushed=True)
            assert ann.fault() is None


# --- a client goes away

_NODE = """
import sys
from motet.swarm.engines.nats_link import NatsLink
link = NatsLink("frozen", sys.argv[2], servers=[sys.argv[1]], tls=None, keep_rounds=3, max_message_bytes=1_000_000,
                open_timeout_s=20.0)
link.open(inbox=lambda topic, message: None, answer=lambda topic: [], pushed=True)
link.send("beat/frozen", b"here")
print("ready", flush=True)
sys.stdin.read()
link.close()
"""


def test_a_frozen_client_does_not_hurt_the_others(server: NatsServer, links: NatsLinks) -> None:
    got = Received()
    ann = links.open("ann")
    bob = links.open("bob", got)
    command = [sys.executable, "-c", _NODE, server.address, RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"ready\n"
            wait_until(lambda: got.under("beat/frozen"))
            child.send_signal(signal.SIGSTOP)
            slowest_s = 0.0
            for number in range(100):
                started_s = time.monotonic()
                ann.send(f"roll/ann/{number}", bytes(900_000))
                slowest_s = max(slowest_s, time.monotonic() - started_s)
                wait_until(lambda number=number: got.under(f"roll/ann/{number}"))
            assert slowest_s < 5
            assert (ann.fault(), bob.fault()) == (None, None)
            assert ann.dropped() == bob.dropped() == {}
            child.send_signal(signal.SIGCONT)
            child.stdin.close()
            assert child.wait(timeout=60) == 0
        finally:
            child.kill()


def test_the_memory_of_a_client_stays_flat(server: NatsServer, links: NatsLinks) -> None:
    """The peak is measured, so nothing between the two measurements can hide."""
    arrived = threading.Semaphore(0)

    def release(topic: str, message: bytes) -> None:
        arrived.release()

    ann = links.open("ann")
    links.open("bob", release)

    def beat(number: int) -> None:
        for index in range(number):
            ann.send("beat/ann", b"%d" % index + bytes(2000))
            assert arrived.acquire(timeout=30)

    beat(500)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    beat(5000)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 5 * 1024, "5,000 heartbeats of 2 kB are 10 MB: they were kept"
