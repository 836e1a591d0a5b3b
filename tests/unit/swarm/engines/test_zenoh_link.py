from __future__ import annotations

import socket
import sys
import threading
from contextlib import ExitStack, closing

import pytest
from patience import wait_until

from motet.errors import EnvironmentFault, SwarmUnreachable, UsageError
from motet.swarm.engines.zenoh_config import MAX_MESSAGE_BYTES
from motet.swarm.engines.zenoh_link import ZenohLink
from motet.swarm.engines.zenoh_relay import ZenohRelay
from motet.swarm.identity.certificates import create_ca, issue_leaf

RUN = "ab12"
LONG_S = 30.0


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Node:
    """A link with what came to it, and what it has for others."""

    def __init__(self, name, *, run=RUN, **options):
        self.name = name
        self.link = ZenohLink(name, run, **options)
        self.came: list[tuple[str, bytes]] = []
        self.held: dict[str, list[bytes]] = {}

    def open(self, *, pushed=True):
        self.link.open(inbox=self.take, answer=lambda topic: self.held.get(topic, []), pushed=pushed)
        return self

    def take(self, topic, message):
        self.came.append((topic, message))

    def meets(self, *others):
        """Wait until heartbeats come through in both directions."""
        for one, other in [(self, other) for other in others] + [(other, self) for other in others]:
            wait_until(lambda one=one, other=other: self._beat(one, other), f"{one.name} reaches {other.name}")

    @staticmethod
    def _beat(one, other):
        one.link.send(f"beat/{one.name}", b"met")
        return (f"beat/{one.name}", b"met") in other.came


@pytest.fixture
def make():
    with ExitStack() as open_links:

        def make(name, **options):
            node = Node(name, **options)
            open_links.callback(node.link.close)
            return node

        yield make


@pytest.fixture
def trio(make):
    port = free_port()
    nodes = [make(name, embedded_port=port).open() for name in ("ann", "bob", "cid")]
    nodes[0].meets(*nodes[1:])
    nodes[1].meets(nodes[2])
    return nodes


class TestArguments:
    @pytest.mark.parametrize(
        ("options", "code", "words"),
        [
            ({"connect": ["10.0.0.5:7447"]}, "E-LINK-02", "swarm.connect"),
            ({"listen": ["nats://10.0.0.5:4222"]}, "E-LINK-02", "swarm.listen"),
            ({"connect": ["tls/10.0.0.5:7447"]}, "E-LINK-03", "needs swarm.tls"),
            ({"members": ["ann"], "listen": ["tcp/127.0.0.1:0"]}, "E-LINK-03", "names are those in certificates"),
        ],
    )
    def test_says_what_is_wrong_before_anything_is_opened(self, options, code, words):
        with pytest.raises(UsageError, match=words) as caught:
            ZenohLink("ann", RUN, **options)
        assert caught.value.code == code

    def test_with_certificates_nothing_goes_in_the_clear(self, tmp_path):
        with pytest.raises(UsageError, match=r'"tcp/a:1" is not encrypted, .*write "tls/a:1"'):
            ZenohLink("ann", RUN, connect=["tcp/a:1"], tls=tmp_path)
        with pytest.raises(UsageError, match="nothing leaves this machine"):
            ZenohLink("ann", RUN, embedded_port=7447, tls=tmp_path)

    def test_names_the_file_that_is_missing(self, tmp_path):
        create_ca(tmp_path / "ca", name="run")
        issue_leaf(tmp_path / "ca", "ann", [], 1).write(tmp_path)
        (tmp_path / "node.key").unlink()
        with pytest.raises(UsageError, match=r"node\.key: No such file") as caught:
            ZenohLink("ann", RUN, connect=["tls/a:1"], tls=tmp_path)
        assert caught.value.code == "E-LINK-03"

    @pytest.mark.parametrize(
        ("name", "run", "port"), [("a/b", RUN, 1), ("*", RUN, 1), ("", RUN, 1), ("ann", "a*", 1), ("ann", RUN, None)]
    )
    def test_refuses_names_that_would_be_more_than_one_part_of_a_key(self, name, run, port):
        with pytest.raises(ValueError, match=r"expected letters|needs addresses"):
            ZenohLink(name, run, embedded_port=port)

    def test_before_it_is_opened_and_after_it_is_closed_nothing_happens(self):
        link = ZenohLink("ann", RUN, embedded_port=1)
        for _ in range(2):
            link.send("beat/ann", b"x")
            assert link.fetch("roll/bob/1", timeout_s=1.0) == []
            assert link.neighbours() == []
            assert link.fault() == "the session is closed"
            link.close()

    def test_without_zenoh_it_names_the_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "zenoh", None)
        with pytest.raises(EnvironmentFault, match=r"eclipse-zenoh .*pip install") as caught:
            Node("ann", embedded_port=1).open()
        assert caught.value.code == "E-LINK-04"


@pytest.mark.network
class TestMessages:
    def test_reach_all_others_whole_and_not_their_sender(self, trio):
        ann, bob, cid = trio
        messages = [b"", b"\x00\xff" * 100_000, b"x" * MAX_MESSAGE_BYTES]
        for number, message in enumerate(messages):
            ann.link.send(f"roll/ann/{number}", message)
        for node in (bob, cid):
            wait_until(lambda node=node: ("roll/ann/2", messages[2]) in node.came)
            assert {topic: message for topic, message in node.came if topic.startswith("roll/")} == {
                f"roll/ann/{number}": message for number, message in enumerate(messages)
            }
        assert not [topic for topic, _ in ann.came if "ann" in topic]

    def test_too_long_a_one_is_not_sent(self, trio):
        ann, bob, _ = trio
        ann.link.send("roll/ann/1", bytes(MAX_MESSAGE_BYTES + 1))
        ann.link.send("roll/ann/2", b"next")
        wait_until(lambda: ("roll/ann/2", b"next") in bob.came)
        assert "roll/ann/1" not in dict(bob.came)

    def test_fetch_gives_all_that_the_named_node_has(self, trio):
        ann, bob, cid = trio
        ann.held["roll/ann/3"] = [b"one", b"two" * 100_000, b""]
        for _ in range(20):
            assert sorted(bob.link.fetch("roll/ann/3", timeout_s=LONG_S)) == sorted(ann.held["roll/ann/3"])
        assert cid.link.fetch("roll/ann/4", timeout_s=LONG_S) == []
        assert cid.link.fetch("roll/nobody/3", timeout_s=LONG_S) == []
        assert ann.link.fetch("roll/ann/3", timeout_s=LONG_S) == []

    @pytest.mark.parametrize("topic", ["roll/*/3", "**", "roll/ann/3?x", "", "roll//3", "roll/$*/3"])
    def test_only_topics_are_fetched(self, trio, topic):
        ann, bob, _ = trio
        ann.held = {key: [b"x"] for key in ("roll/ann/3", topic)}
        assert bob.link.fetch(topic, timeout_s=1.0) == []

    def test_fetch_returns_by_its_timeout_if_the_other_is_stuck(self, trio):
        ann, bob, _ = trio
        stuck = threading.Event()
        ann.link.open(inbox=ann.take, answer=lambda _: [b"late"] * stuck.wait(LONG_S), pushed=True)
        ann.meets(bob)
        assert bob.link.fetch("roll/ann/3", timeout_s=0.2) == []
        assert bob.link.fetch("roll/ann/3", timeout_s=0.0) == []
        stuck.set()

    def test_rounds_come_only_to_those_who_want_them_pushed(self, make):
        port = free_port()
        ann, bob = make("ann", embedded_port=port).open(), make("bob", embedded_port=port).open(pushed=False)
        ann.meets(bob)
        ann.held["roll/ann/1"] = [b"x"]
        ann.link.send("roll/ann/1", b"x")
        bob.link.send("roll/bob/1", b"y")
        wait_until(lambda: ("roll/bob/1", b"y") in ann.came)
        assert bob.link.fetch("roll/ann/1", timeout_s=LONG_S) == [b"x"]
        ann.meets(bob)
        assert "roll/ann/1" not in dict(bob.came)

    def test_runs_do_not_hear_each_other(self, make):
        port = free_port()
        ann, bob = (make(name, embedded_port=port).open() for name in ("ann", "bob"))
        eve = make("eve", run="cd34", embedded_port=port).open()
        ann.meets(bob)
        ann.held["roll/ann/1"] = [b"x"]
        ann.link.send("roll/ann/1", b"x")
        wait_until(lambda: ("roll/ann/1", b"x") in bob.came)
        assert eve.link.neighbours()
        assert eve.link.fetch("roll/ann/1", timeout_s=1.0) == []
        assert eve.came == []

    def test_a_stuck_inbox_holds_nobody_up_and_keeps_the_latest(self, make):
        port = free_port()
        ann, bob, cid = (make(name, embedded_port=port) for name in ("ann", "bob", "cid"))
        stuck = threading.Event()

        def take_slowly(topic, message):
            if topic.startswith("roll/"):
                assert stuck.wait(LONG_S)
            bob.came.append((topic, message))

        bob.take = take_slowly
        ann.open(), bob.open(), cid.open()
        ann.meets(bob, cid)
        for number in range(1000):
            ann.link.send(f"roll/ann/{number}", b"x")
            if number % 50 == 49:
                wait_until(lambda topic=f"roll/ann/{number}": (topic, b"x") in cid.came)
        stuck.set()
        wait_until(lambda: ("roll/ann/999", b"x") in bob.came)
        assert len(bob.came) < 1000


@pytest.mark.network
class TestOpening:
    def test_alone_on_this_machine_is_no_fault(self, make):
        ann = make("ann", embedded_port=free_port()).open()
        assert ann.link.fault() is None
        assert ann.link.neighbours() == []

    def test_can_be_opened_again_and_again(self, make):
        port = free_port()
        ann, bob = make("ann", embedded_port=port).open(), make("bob", embedded_port=port).open()
        for node in (ann, bob, ann):
            node.open()
            ann.came.clear()
            bob.came.clear()
            ann.meets(bob)
            assert ann.link.fault() is None

    def test_last_words_are_heard(self, make):
        port = free_port()
        ann, bob = (make(name, embedded_port=port).open() for name in ("ann", "bob"))
        ann.meets(bob)
        bob.link.send("roll/bob/9", b"x" * 1_000_000)
        bob.link.send("beat/bob", b"goodbye")
        bob.link.close()
        wait_until(lambda: {"roll/bob/9", "beat/bob"} <= dict(ann.came).keys() and ("beat/bob", b"goodbye") in ann.came)

    def test_no_thread_is_left_behind(self, make):
        before = set(threading.enumerate())
        ann = make("ann", embedded_port=free_port()).open()
        assert set(threading.enumerate()) - before
        ann.link.close()
        wait_until(lambda: not set(threading.enumerate()) - before, "all threads have ended")

    def test_a_port_that_somebody_else_has(self, make):
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            node = make("ann", embedded_port=server.getsockname()[1], open_timeout_s=0.2)
            with pytest.raises(SwarmUnreachable, match="no node of motet") as caught:
                node.open()
        assert caught.value.code == "E-LINK-01"

    def test_an_address_that_cannot_be_listened_on(self, make):
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            port = server.getsockname()[1]
            with pytest.raises(
                EnvironmentFault, match=f"cannot listen on tcp/127.0.0.1:{port}: Address already in use; choose"
            ) as caught:
                make("ann", listen=[f"tcp/127.0.0.1:{port}"]).open()
        assert caught.value.code == "E-LINK-05"

    @pytest.mark.parametrize("listen", [[], ["tcp/127.0.0.1:0"]])
    def test_nobody_at_any_address_is_an_error_with_a_reason_for_each(self, make, listen):
        ports = [free_port(), free_port()]
        connect = [f"tcp/127.0.0.1:{port}" for port in ports]
        with pytest.raises(SwarmUnreachable) as caught:
            make("ann", listen=listen, connect=connect, open_timeout_s=0.3).open()
        assert caught.value.code == "E-LINK-01"
        for address in connect:
            assert f"{address}: nothing listens there" in str(caught.value)

    def test_the_machine_on_everybodys_list_does_not_wait_for_itself(self, make):
        address = f"tcp/127.0.0.1:{free_port()}"
        ann = make("ann", listen=[address], connect=[address], open_timeout_s=0.3).open()
        assert ann.link.fault() is None
        bob = make("bob", connect=[address]).open()
        ann.meets(bob)

    def test_those_who_only_connect_reach_each_other_through_one_who_listens(self, make):
        address = f"tcp/127.0.0.1:{free_port()}"
        hub = make("hub", listen=[address]).open()
        ann, bob = (make(name, connect=[address]).open() for name in ("ann", "bob"))
        ann.meets(bob, hub)
        ann.held["roll/ann/1"] = [b"x", b"y"]
        assert sorted(bob.link.fetch("roll/ann/1", timeout_s=LONG_S)) == [b"x", b"y"]

    def test_nobody_left_becomes_a_fault(self, make, monkeypatch):
        monkeypatch.setattr("motet.swarm.engines.zenoh_link._GRACE_S", 0.2)
        address = f"tcp/127.0.0.1:{free_port()}"
        hub = make("hub", listen=[address]).open()
        ann = make("ann", connect=[address]).open()
        assert ann.link.fault() is None
        hub.link.close()
        wait_until(ann.link.fault)
        assert ann.link.fault() == f"no connection to {address}"
        hub.open()
        wait_until(lambda: ann.link.fault() is None, "it connects by itself")
        ann.meets(hub)


@pytest.mark.network
class TestRelayed:
    @pytest.mark.parametrize("listen", [[], ["tcp/127.0.0.1:0"]])
    def test_nodes_reach_each_other_through_a_relay_whether_they_listen_or_not(self, make, listen):
        relay = ZenohRelay(["tcp/127.0.0.1:0"])
        relay.open()
        with closing(relay):
            ann, bob = (make(name, listen=listen, connect=relay.addresses()).open() for name in ("ann", "bob"))
            ann.meets(bob)
            ann.link.send("roll/ann/1", bytes(MAX_MESSAGE_BYTES))
            wait_until(lambda: "roll/ann/1" in dict(bob.came))
            assert len(ann.link.neighbours()) == 1
            assert ann.link.fault() is None

    def test_a_relay_that_comes_later_is_noticed_by_a_node_that_listens(self, make):
        hub_address, relay_address = (f"tcp/127.0.0.1:{free_port()}" for _ in range(2))
        hub = make("hub", listen=[hub_address]).open()
        ann = make("ann", listen=["tcp/127.0.0.1:0"], connect=[hub_address, relay_address]).open()
        ann.meets(hub)
        relay = ZenohRelay([relay_address])
        relay.open()
        with closing(relay):
            wait_until(ann.link.fault)
            assert "a relay is there now" in ann.link.fault()
            ann.open()
            assert ann.link.fault() is None
