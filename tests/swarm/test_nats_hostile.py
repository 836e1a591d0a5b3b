"""Hostile peers at a real nats-server that permits everything: what they must not achieve."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

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
from motet.swarm.engines.nats_link import NatsLink

pytestmark = nats_marks()


class Stranger:
    """Speaks the protocol by hand, so that it can say what no client would."""

    def __init__(self, server: NatsServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self.say(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}')
        self.settle()

    def say(self, line: bytes) -> None:
        self._socket.sendall(line + b"\r\n")

    def publish(self, subject: bytes, message: bytes, *, reply: bytes = b"", headers: bytes = b"") -> None:
        words = [b"HPUB" if headers else b"PUB", subject, *([reply] if reply else [])]
        sizes = [len(headers), len(headers) + len(message)] if headers else [len(message)]
        self.say(b" ".join([*words, *(b"%d" % size for size in sizes)]) + b"\r\n" + headers + message)

    def settle(self) -> list[bytes]:
        """What the server says until it has taken in all that was said before."""
        self.say(b"PING")
        lines: list[bytes] = []
        while (line := self._file.readline()) != b"PONG\r\n":
            assert line, "the server hung up"
            if line == b"PING\r\n":
                self.say(b"PONG")
            lines.append(line)
        return lines

    def ask(self, subject: str, message: bytes) -> bytes:
        """The server's answer."""
        self.say(b"SUB _INBOX.stranger 9")
        self.publish(subject.encode(), message, reply=b"_INBOX.stranger")
        heard: list[bytes] = []
        wait_until(lambda: heard.extend(self.settle()) or heard)
        return b"".join(heard)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def stranger(server: NatsServer) -> Iterator[Stranger]:
    stranger = Stranger(server)
    yield stranger
    stranger.close()


def test_malformed_headers_and_subjects_cost_nobody_their_connection(links: NatsLinks, stranger: Stranger) -> None:
    got = Received()
    ann = links.open("ann")
    bob = links.open("bob", got)
    subject = f"motet.{RUN}.roll.eve.0".encode()
    for headers in (
        b"NATS/1.0 \xff\xff\xff\r\n\r\n",
        b"NATS/1.0 200 \xfe\xff\r\n\r\n",
        b"NATS/1.0\r\n\xff: \xff\r\n\r\n",
    ):
        stranger.publish(subject, b"x", headers=headers)
    stranger.publish(b"motet." + RUN.encode() + b".roll.\xff.0", b"x")
    stranger.publish(f"motet.{RUN}.roll.=41nn.0".encode(), b"x")
    stranger.publish(f"motet.{RUN}.beat.\xff".encode("latin-1"), b"x")
    stranger.settle()
    ann.send("roll/ann/0", b"after")
    wait_until(lambda: got.under("roll/ann/0"))
    assert bob.fault() is None
    assert bob.dropped()["malformed"] >= 3
    assert bob.dropped()["bad_subject"] == 1
    assert {topic for topic, _ in got.messages} <= {"roll/ann/0", "roll/eve/0"}
    assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"after"]


def test_stored_headers_fool_only_whoever_fetches_their_author(links: NatsLinks, stranger: Stranger) -> None:
    bob = links.open("bob")
    subject = f"motet.{RUN}.roll.eve.0".encode()
    for headers in (
        b"Nats-Sequence: -1",
        b"Nats-Num-Pending: x",
        b"Nats-Num-Pending: 9",
        b"Status: 404",
        b"\xff: \xff",
    ):
        stranger.publish(subject, b"x", headers=b"NATS/1.0\r\n" + headers + b"\r\n\r\n")
        stranger.settle()
    started_s = time.monotonic()
    assert set(bob.fetch("roll/eve/0", timeout_s=2.0)) <= {b"x"}
    assert time.monotonic() - started_s < 20
    assert bob.fault() is None


def test_nobody_is_talked_into_writing_elsewhere(links: NatsLinks, stranger: Stranger) -> None:
    """An answer goes to an inbox, or a peer could have streams deleted, or messages stored under another name."""
    got = Received()
    ann = links.open("ann", answer=answers(b"own"))
    bob = links.open("bob", got)
    ask = f"motet.{RUN}.ask.ann".encode()
    for reply in (f"$JS.API.STREAM.DELETE.motet_{RUN}", f"motet.{RUN}.roll.bob.0"):
        stranger.publish(ask, b"card/ann", reply=reply.encode())
    stranger.publish(ask, b"card/ann")
    stranger.publish(ask, bytes(10_000), reply=b"_INBOX.x")
    stranger.settle()
    wait_until(lambda: ann.dropped() == {"bad_subject": 4})
    ann.send("roll/ann/0", b"stored")
    wait_until(lambda: got.messages)
    assert got.messages == [("roll/ann/0", b"stored")]
    wait_until(lambda: bob.fetch("roll/ann/0", timeout_s=FETCH_S)[:1] == [b"stored"])


def test_an_answer_says_where_it_ends(links: NatsLinks, stranger: Stranger) -> None:
    """Who asks waits for nothing more then."""
    links.open("ann", answer=answers(b"one", b"two"))
    stranger.say(b"SUB _INBOX.eve 1")
    stranger.publish(f"motet.{RUN}.ask.ann".encode(), b"card/ann", reply=b"_INBOX.eve")
    heard: list[bytes] = []
    wait_until(lambda: heard.extend(stranger.settle()) or any(line.startswith(b"HMSG") for line in heard))
    assert [line for line in heard if line in (b"one\r\n", b"two\r\n")] == [b"one\r\n", b"two\r\n"]
    assert heard.index(b"two\r\n") < heard.index(b"Motet-End: 1\r\n")


def test_streams_that_somebody_deletes_come_back(links: NatsLinks, stranger: Stranger) -> None:
    ann = links.open("ann")
    bob = links.open("bob", pushed=False)
    for stream in (f"motet_{RUN}", f"motet_{RUN}_beats"):
        assert b'"success":true' in stranger.ask(f"$JS.API.STREAM.DELETE.{stream}", b"")
    ann.send("roll/ann/0", b"kept")
    wait_until(lambda: bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"kept"])


def test_nobody_can_wipe_the_history(links: NatsLinks, stranger: Stranger) -> None:
    ann, bob = links.open("ann"), links.open("bob")
    ann.send("roll/ann/0", b"kept")
    wait_until(lambda: bob.fetch("roll/ann/0", timeout_s=FETCH_S))
    stranger.publish(f"motet.{RUN}.roll.eve.0".encode(), b"x", headers=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    assert b'"error"' in stranger.ask(f"$JS.API.STREAM.PURGE.motet_{RUN}", b"")
    assert b'"error"' in stranger.ask(f"$JS.API.STREAM.MSG.DELETE.motet_{RUN}", b'{"seq": 1}')
    assert links.open("late").fetch("roll/ann/0", timeout_s=FETCH_S) == [b"kept"]


def test_a_flood_of_one_subject_leaves_the_others_history(links: NatsLinks, stranger: Stranger) -> None:
    ann, late = links.open("ann"), links.open("late", pushed=False)
    ann.send("roll/ann/0", b"kept")
    wait_until(lambda: late.fetch("roll/ann/0", timeout_s=FETCH_S))
    for _ in range(3000):
        stranger.publish(f"motet.{RUN}.roll.eve.0".encode(), bytes(2000))
    stranger.settle()
    assert links.open("bob", pushed=False).fetch("roll/ann/0", timeout_s=FETCH_S) == [b"kept"]


def test_links_survive_a_server_that_talks_nonsense() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        link = NatsLink(
            "ann",
            "0a",
            servers=[f"nats://127.0.0.1:{listening.getsockname()[1]}"],
            tls=None,
            keep_rounds=3,
            max_message_bytes=1000,
            open_timeout_s=3.0,
        )
        speak = f"""
import socket, sys
connection, _ = socket.socket(fileno={listening.fileno()}).accept()
connection.sendall(b'INFO {{"max_payload": 1048576, "headers": true}}\\r\\n')
connection.recv(4096)
connection.sendall(b"PONG\\r\\nMSG x y z\\r\\n\\xff\\xfe\\r\\n-ERR\\r\\nINFO {{\\r\\n")
connection.recv(4096)
"""
        with subprocess.Popen([sys.executable, "-c", speak], pass_fds=[listening.fileno()]) as speaking:
            try:
                with pytest.raises(SwarmUnreachable):
                    link.open(inbox=deaf, answer=answers(), pushed=True)
            finally:
                speaking.kill()
    assert link.fault() == "not open"
