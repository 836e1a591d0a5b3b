"""Faults and hostile peers on a real nats-server: what must not happen to the others."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats_server import NatsLinks, NatsServer, Received, answers, deaf, permissions, wait_until, why_no_nats

from motet.errors import SwarmUnreachable
from motet.swarm.certificates import create_ca, issue_leaf
from motet.swarm.nats_link import NatsLink

REASON = why_no_nats()
pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

RUN = "0a" * 16
FETCH_S = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "server") as server:
        yield server


@pytest.fixture
def links(server: NatsServer) -> Iterator[NatsLinks]:
    with NatsLinks(server, RUN) as links:
        yield links


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


def _tls_server(folder: Path, ca: Path, *, users: str = "", **options: object) -> NatsServer:
    issue_leaf(ca, "hub", ["127.0.0.1"]).write(folder / "tls")
    tls = folder / "tls"
    who = "verify_and_map: true" if users else "verify: true"
    config = f"""
        tls {{ cert_file: "{tls / "node.pem"}", key_file: "{tls / "node.key"}", ca_file: "{tls / "ca.pem"}", {who} }}
        {users}
    """
    return NatsServer(folder / "server", config=config, scheme="tls")


def _certificate(ca: Path, name: str, folder: Path) -> Path:
    issue_leaf(ca, name, []).write(folder / name)
    return folder / name


# --- the server goes away


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
    server.store.rename(tmp_path / "lost")
    server.start()
    wait_until(lambda: ann.fault() is None and bob.fault() is None)
    assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"own copy"]
    ann.send("roll/ann/1", b"stored again")
    wait_until(lambda: bob.fetch("roll/ann/1", timeout_s=FETCH_S) == [b"stored again"])


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
        wait_until(lambda: ann.fault() is not None, timeout_s=60)
        late = links.make("late", open_timeout_s=1.0)
        with pytest.raises(SwarmUnreachable, match="no answer"):
            late.open(inbox=deaf, answer=answers(), pushed=True)
        started_s = time.monotonic()
        ann.close()
        assert time.monotonic() - started_s < 20
    finally:
        server.thaw()
    ann.open(inbox=deaf, answer=answers(), pushed=True)
    wait_until(lambda: bob.fault() is None)
    ann.send("roll/ann/1", b"again")
    wait_until(lambda: got.under("roll/ann/1"), timeout_s=60)


def test_what_was_under_way_when_the_server_died_is_sent_again(server: NatsServer, links: NatsLinks) -> None:
    ann, bob = links.open("ann"), links.open("bob")
    server.freeze()
    for number in range(5):
        ann.send("roll/ann/0", b"%d" % number)
    server.kill()
    wait_until(lambda: ann.fault() is not None)
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
from motet.swarm.nats_link import NatsLink
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


# --- permissions and TLS


def test_a_violation_of_permissions_is_a_counted_drop(tmp_path: Path) -> None:
    users = ", ".join(
        f"{{ user: {name}, password: pw, permissions: {permissions(name)} }}" for name in ("ann", "bob.x")
    )
    users = users.replace("bob.x", "bob=2Ex").replace("user: bob=2Ex", 'user: "bob.x"')
    with NatsServer(tmp_path, config=f"authorization {{ users: [{users}] }}") as server, NatsLinks(server) as links:
        got, bob_got = Received(), Received()
        ann = links.open("ann", got, servers=[f"nats://ann:pw@127.0.0.1:{server.port}"], answer=answers(b"own"))
        bob = links.open("bob.x", bob_got, servers=[f"nats://bob.x:pw@127.0.0.1:{server.port}"], answer=answers(b"own"))
        ann.send("roll/bob.x/0", b"forged")
        ann.send("beat/bob.x", b"forged")
        wait_until(lambda: ann.dropped().get("permission") == 2)
        ann.send("roll/ann/0", b"honest")
        ann.send("beat/ann", b"honest")
        wait_until(lambda: len(bob_got.messages) == 2)
        assert {message for _, message in bob_got.messages} == {b"honest"}
        assert ann.fetch("roll/bob.x/0", timeout_s=FETCH_S) == [b"own"], "the forged one is not stored"
        assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"honest"]
        assert bob.fetch("card/ann", timeout_s=FETCH_S) == [b"own"]
        assert ann.fetch("card/bob.x", timeout_s=FETCH_S) == [b"own"]
        assert (ann.fault(), bob.fault(), bob.dropped()) == (None, None, {})


def test_what_a_node_needs_and_may_not_do_is_told_at_once(tmp_path: Path) -> None:
    may_nothing = '{ publish: ["$JS.API.>"], subscribe: ["_INBOX.>"] }'
    config = f"authorization {{ users: [{{ user: ann, password: pw, permissions: {may_nothing} }}] }}"
    with NatsServer(tmp_path, config=config) as server, NatsLinks(server) as links:
        with pytest.raises(SwarmUnreachable, match="does not permit this node a subscription") as caught:
            links.open("ann", servers=[f"nats://ann:pw@127.0.0.1:{server.port}"])
        assert caught.value.code == "E-LINK-13"
        assert "pw" not in str(caught.value)
        with pytest.raises(SwarmUnreachable, match="no user") as caught:
            links.open("ann", servers=[f"nats://ann:wrong@127.0.0.1:{server.port}"])
        assert caught.value.code == "E-LINK-13"


def test_mutual_tls_lets_in_who_has_a_certificate_and_maps_it_to_permissions(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    create_ca(ca, name="sums")
    users = ", ".join(f'{{ user: "CN={name}", permissions: {permissions(name)} }}' for name in ("ann", "bob"))
    with _tls_server(tmp_path, ca, users=f"authorization {{ users: [{users}] }}") as server, NatsLinks(server) as links:
        got = Received()
        ann = links.open("ann", tls=_certificate(ca, "ann", tmp_path))
        links.open("bob", got, tls=_certificate(ca, "bob", tmp_path))
        assert [neighbour.certificate_name for neighbour in ann.neighbours()] == ["hub"]
        ann.send("roll/bob/0", b"forged")
        ann.send("roll/ann/0", b"honest")
        wait_until(lambda: got.messages)
        wait_until(lambda: ann.dropped() == {"permission": 1})
        assert got.messages == [("roll/ann/0", b"honest")]
        with pytest.raises(SwarmUnreachable, match="no user") as caught:
            links.open("eve", tls=_certificate(ca, "eve", tmp_path))
        assert caught.value.code == "E-LINK-13"


def test_certificates_of_another_authority_are_refused_on_both_sides(tmp_path: Path) -> None:
    ca, other = tmp_path / "ca", tmp_path / "other"
    create_ca(ca, name="sums")
    create_ca(other, name="other")
    with _tls_server(tmp_path, ca) as server, NatsLinks(server) as links:
        stranger = _certificate(other, "stranger", tmp_path)
        with pytest.raises(SwarmUnreachable, match="certificate is not accepted") as caught:
            links.open("stranger", tls=stranger)
        assert caught.value.code == "E-LINK-12"
        (stranger / "ca.pem").write_bytes((ca / "ca.pem").read_bytes())
        with pytest.raises(SwarmUnreachable, match=r"TLS failed|hung up") as caught:
            links.open("stranger", tls=stranger)
        assert caught.value.code == "E-LINK-12"
        with pytest.raises(SwarmUnreachable, match=r"certificate is not accepted|TLS failed|hung up") as caught:
            links.open("bare")
        assert caught.value.code == "E-LINK-12"
        assert links.open("ann", tls=_certificate(ca, "ann", tmp_path)).fault() is None


def test_a_server_whose_certificate_names_another_host_is_refused(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    create_ca(ca, name="sums")
    with _tls_server(tmp_path, ca) as server, NatsLinks(server) as links:
        with pytest.raises(SwarmUnreachable, match="certificate is not accepted") as caught:
            links.open("ann", servers=[f"tls://localhost:{server.port}"], tls=_certificate(ca, "ann", tmp_path))
        assert caught.value.code == "E-LINK-12"


def test_who_asks_for_tls_never_speaks_in_clear_text(server: NatsServer, links: NatsLinks, tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    create_ca(ca, name="sums")
    for options in (
        {"servers": [f"tls://127.0.0.1:{server.port}"]},
        {"tls": _certificate(ca, "ann", tmp_path)},
    ):
        with pytest.raises(SwarmUnreachable, match="does not require TLS") as caught:
            links.open("ann", **options)
        assert caught.value.code == "E-LINK-12"


# --- hostile peers


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
    wait_until(lambda: bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"kept"], timeout_s=60)


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
