"""On a real server, without faults of the network; those are in tests/swarm/test_nats_faults.py."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats_server import NatsLinks, NatsServer, Received, answers, deaf, free_port, why_no_nats
from patience import wait_until

from motet.errors import EnvironmentFault, MotetError, SwarmUnreachable, UsageError
from motet.swarm.engines.nats_link import NatsLink, _package

REASON = why_no_nats()
pytestmark = [pytest.mark.network, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

FETCH_S = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def links(server: NatsServer, request: pytest.FixtureRequest) -> Iterator[NatsLinks]:
    """Every test has a run of its own."""
    with NatsLinks(server, request.node.name.encode().hex()) as links:
        yield links


def test_rounds_and_heartbeats_reach_the_others_and_not_the_sender(links: NatsLinks) -> None:
    ann_got, bob_got = Received(), Received()
    ann = links.open("ann", ann_got)
    links.open("bob", bob_got)
    ann.send("roll/ann/0", b"round")
    ann.send("beat/ann", b"beat")
    ann.send("roll/ann/1", b"last")
    wait_until(lambda: bob_got.under("roll/ann/1"))
    wait_until(lambda: bob_got.under("beat/ann"))
    assert sorted(bob_got.messages) == [("beat/ann", b"beat"), ("roll/ann/0", b"round"), ("roll/ann/1", b"last")]
    assert ann_got.messages == []


def test_a_dot_in_a_name_is_no_border(links: NatsLinks) -> None:
    got = Received()
    lab = links.open("lab.gpu")
    links.open("lab", got)
    lab.send("roll/lab.gpu/3", b"x")
    wait_until(lambda: got.messages)
    assert got.messages == [("roll/lab.gpu/3", b"x")]
    assert links.open("kim").fetch("roll/lab.gpu/3", timeout_s=FETCH_S) == [b"x"]
    assert links.open("eve").fetch("roll/lab/3", timeout_s=FETCH_S) == []


def test_without_pushing_rounds_are_only_fetched(links: NatsLinks) -> None:
    got = Received()
    ann = links.open("ann")
    bob = links.open("bob", got, pushed=False)
    for number in range(3):
        ann.send("roll/ann/0", b"%d" % number)
    ann.send("beat/ann", b"beat")
    wait_until(lambda: len(bob.fetch("roll/ann/0", timeout_s=FETCH_S)) == 3)
    wait_until(lambda: got.messages)
    assert got.messages == [("beat/ann", b"beat")]
    assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"0", b"1", b"2"]


def test_a_thousand_messages_arrive_and_are_stored_in_order(links: NatsLinks) -> None:
    got = Received()
    ann = links.open("ann")
    bob = links.open("bob", got)
    want = [b"%04d" % number for number in range(1000)]
    for number, message in enumerate(want):
        ann.send(f"roll/ann/{number // 200}", message)
    wait_until(lambda: len(got.messages) == 1000)
    assert [message for _, message in got.messages] == want
    wait_until(lambda: len(bob.fetch("roll/ann/4", timeout_s=FETCH_S)) == 200)
    assert [message for round in range(5) for message in bob.fetch(f"roll/ann/{round}", timeout_s=FETCH_S)] == want
    assert ann.dropped() == bob.dropped() == {}


def test_the_history_of_the_dead_is_there_for_who_comes_late(links: NatsLinks) -> None:
    ann = links.open("ann")
    big = bytes(range(256)) * 3900
    ann.send("roll/ann/7", b"one")
    ann.send("roll/ann/7", big)
    ann.close()
    assert links.open("late").fetch("roll/ann/7", timeout_s=FETCH_S) == [b"one", big]


def test_who_comes_late_hears_at_once_who_was_there(links: NatsLinks) -> None:
    ann, got = links.open("ann"), Received()
    ann.send("beat/ann", b"old")
    ann.send("beat/ann", b"new")
    ann.close()
    links.open("late", got)
    assert got.messages == [("beat/ann", b"new")]


def test_a_node_does_not_hear_its_own_old_heartbeat(links: NatsLinks) -> None:
    got = Received()
    ann = links.open("ann")
    ann.send("beat/ann", b"own")
    ann.close()
    ann.open(inbox=got, answer=answers(), pushed=True)
    assert got.messages == []


def test_another_process_of_the_same_name_is_heard(links: NatsLinks) -> None:
    got = Received()
    links.open("ann", got)
    links.open("ann").send("beat/ann", b"twin")
    wait_until(lambda: got.messages)
    assert got.messages == [("beat/ann", b"twin")]


def test_what_was_never_sent_is_asked_of_its_owner(links: NatsLinks) -> None:
    asked: list[str] = []

    def answer(topic: str) -> list[bytes]:
        asked.append(topic)
        return [b"card of ann", b""] if topic == "card/ann" else []

    links.open("ann", answer=answer)
    bob = links.open("bob")
    assert bob.fetch("card/ann", timeout_s=FETCH_S) == [b"card of ann", b""]
    assert bob.fetch("roll/ann/1", timeout_s=FETCH_S) == []
    assert asked == ["card/ann", "roll/ann/1"]


def test_what_the_stream_holds_only_in_part_is_asked_of_its_owner_the_second_time(links: NatsLinks) -> None:
    ann = links.open("ann", answer=answers(b"one", b"two"))
    bob = links.open("bob")
    ann.send("roll/ann/0", b"one")
    wait_until(lambda: bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"one", b"two"])
    assert links.open("kim").fetch("roll/ann/0", timeout_s=FETCH_S) == [b"one"]


def test_a_silent_owner_costs_no_more_than_the_timeout(links: NatsLinks) -> None:
    release = threading.Event()

    def answer(topic: str) -> list[bytes]:
        release.wait(30)
        return [b"late"]

    links.open("ann", answer=answer)
    bob = links.open("bob")
    started_s = time.monotonic()
    try:
        assert bob.fetch("roll/ann/0", timeout_s=0.5) == []
    finally:
        release.set()
    assert time.monotonic() - started_s < 20


def test_a_fetch_of_nobody_is_empty(links: NatsLinks) -> None:
    assert links.open("bob").fetch("roll/nobody/0", timeout_s=FETCH_S) == []


def test_two_runs_at_one_server_do_not_hear_each_other(links: NatsLinks, server: NatsServer) -> None:
    with NatsLinks(server, "0b") as others:
        other_got, got = Received(), Received()
        other = others.open("bob", other_got)
        ann = links.open("ann", answer=answers(b"secret"))
        links.open("bob", got)
        ann.send("beat/ann", b"1")
        ann.send("roll/ann/0", b"2")
        wait_until(lambda: len(got.messages) == 2)
        assert other.fetch("roll/ann/0", timeout_s=FETCH_S) == []
        assert other.fetch("card/ann", timeout_s=FETCH_S) == []
        others.open("ann").send("beat/ann", b"3")
        wait_until(lambda: other_got.messages)
        assert other_got.messages == [("beat/ann", b"3")]
        assert len(got.messages) == 2


def test_links_open_and_close_again_and_again(links: NatsLinks) -> None:
    ann, got = links.make("ann"), Received()
    links.open("bob", got)
    assert (ann.fault(), ann.neighbours()) == ("not open", [])
    ann.close()
    for number in range(3):
        ann.open(inbox=deaf, answer=answers(), pushed=True)
        assert ann.fault() is None
        assert [neighbour.address for neighbour in ann.neighbours()] == links.defaults()["servers"]
        ann.send(f"roll/ann/{number}", b"x")
        ann.close()
        ann.close()
        assert (ann.fault(), ann.neighbours()) == ("not open", [])
    wait_until(lambda: len(got.messages) == 3)


def test_closing_sends_what_waits_and_ends_the_thread(links: NatsLinks) -> None:
    got = Received()
    links.open("bob", got)
    before = threading.active_count()
    ann = links.open("ann")
    for _ in range(20):
        ann.send("roll/ann/0", bytes(100_000))
    ann.send("beat/ann", b"leaving")
    ann.close()
    assert threading.active_count() == before
    wait_until(lambda: len(got.messages) == 21)


def test_a_closed_link_drops_and_says_so(links: NatsLinks) -> None:
    ann = links.make("ann")
    ann.send("roll/ann/0", b"x")
    assert ann.fetch("roll/bob/0", timeout_s=FETCH_S) == []
    assert ann.dropped() == {"closed": 1}


def test_what_cannot_be_sent_is_dropped_and_counted(links: NatsLinks) -> None:
    got = Received()
    ann = links.open("ann")
    links.open("bob", got)
    ann.send("roll//0", b"x")
    ann.send("roll/ann/0", bytes(2_000_000))
    ann.send("roll/ann/1", b"fits")
    wait_until(lambda: got.messages)
    assert got.messages == [("roll/ann/1", b"fits")]
    assert ann.dropped() == {"bad_subject": 1, "too_large": 1}


def test_an_inbox_that_raises_does_not_end_the_link(links: NatsLinks) -> None:
    got = Received()

    def inbox(topic: str, message: bytes) -> None:
        got(topic, message)
        raise RuntimeError("a mistake")

    ann = links.open("ann")
    bob = links.open("bob", inbox)
    for number in range(3):
        ann.send("roll/ann/0", b"%d" % number)
    wait_until(lambda: len(got.messages) == 3)
    assert bob.fault() is None


def test_a_server_that_is_down_is_told_within_the_timeout() -> None:
    link = NatsLink(
        "ann", "0a", servers=[f"nats://127.0.0.1:{free_port()}"], tls=None, keep_rounds=3, max_message_bytes=1000
    )
    before = threading.active_count()
    with pytest.raises(SwarmUnreachable, match="refused") as caught:
        link.open(inbox=deaf, answer=answers(), pushed=True)
    assert caught.value.code == "E-LINK-01"
    assert link.fault() == "not open"
    assert threading.active_count() == before


def test_the_next_server_is_tried(links: NatsLinks, server: NatsServer) -> None:
    ann = links.open("ann", servers=[f"nats://127.0.0.1:{free_port()}", server.address])
    assert [neighbour.address for neighbour in ann.neighbours()] == [server.address]


def test_all_servers_are_named_when_none_lets_in(links: NatsLinks) -> None:
    servers = [f"nats://127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(SwarmUnreachable) as caught:
        links.open("ann", servers=servers)
    assert all(server in str(caught.value) for server in servers)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["nothing", "http"])
def test_something_else_at_the_port_does_not_hang(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted: list[socket.socket] = []

        def accept() -> None:
            connection, _ = listening.accept()
            accepted.append(connection)
            connection.sendall(says)

        accepting = threading.Thread(target=accept)
        accepting.start()
        link = NatsLink(
            "ann",
            "0a",
            servers=[f"nats://127.0.0.1:{listening.getsockname()[1]}"],
            tls=None,
            keep_rounds=3,
            max_message_bytes=1000,
            open_timeout_s=1.0,
        )
        started_s = time.monotonic()
        with pytest.raises(SwarmUnreachable, match=r"no answer|no NATS server") as caught:
            link.open(inbox=deaf, answer=answers(), pushed=True)
        assert caught.value.code == "E-LINK-01"
        assert time.monotonic() - started_s < 20
        accepting.join()
        for connection in accepted:
            connection.close()


def test_addresses_and_folders_are_checked_before_anything_is_tried(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"swarm\.connect"):
        NatsLink("ann", "0a", servers=["tcp/127.0.0.1:7447"], tls=None, keep_rounds=3, max_message_bytes=1000)
    with pytest.raises(UsageError, match=r"swarm\.tls"):
        NatsLink("ann", "0a", servers=["tls://hub"], tls=tmp_path, keep_rounds=3, max_message_bytes=1000)


def test_without_the_package_the_extra_is_named(links: NatsLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    _package.cache_clear()
    for name in [name for name in sys.modules if name == "nats" or name.startswith("nats.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'motet\[nats\]'") as caught:
        links.open("ann")
    assert caught.value.code == "E-LINK-18"
    _package.cache_clear()


def test_importing_the_link_does_not_import_the_package() -> None:
    code = "import sys, motet.swarm.engines.nats_link; sys.exit('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_server_without_jetstream_is_told(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=False) as plain, NatsLinks(plain) as links:
        with pytest.raises(MotetError, match="JetStream") as caught:
            links.open("ann")
        assert caught.value.code == "E-LINK-14"


def test_a_server_that_takes_only_small_messages_is_told(tmp_path: Path) -> None:
    with NatsServer(tmp_path, config="max_payload: 1000") as small, NatsLinks(small) as links:
        with pytest.raises(SwarmUnreachable, match="max_payload: 1000000") as caught:
            links.open("ann")
        assert caught.value.code == "E-LINK-15"


def test_a_stream_with_other_limits_is_told_and_one_with_the_same_is_used(links: NatsLinks) -> None:
    links.open("ann", keep_rounds=2).close()
    links.open("ann", keep_rounds=2).close()
    links.open("ann", keep_rounds=1).close()
    with pytest.raises(SwarmUnreachable, match=r"motet_[0-9a-f]+ exists with other limits: max_bytes = \d+") as caught:
        links.open("ann", keep_rounds=3)
    assert caught.value.code == "E-LINK-16"


def test_a_server_without_room_is_told(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream="max_file_store: 1000000") as full, NatsLinks(full) as links:
        with pytest.raises(SwarmUnreachable, match="max_file_store") as caught:
            links.open("ann")
        assert caught.value.code == "E-LINK-17"


def test_nothing_is_printed_when_things_go_wrong(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with NatsServer(tmp_path) as server, NatsLinks(server) as links:
        ann = links.open("ann")
        server.kill()
        wait_until(lambda: ann.fault() is not None)
        with pytest.raises(SwarmUnreachable):
            links.open("bob")
    out, err = capfd.readouterr()
    assert out == err == ""
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("nats").handlers)
