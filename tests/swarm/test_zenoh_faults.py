"""What a link over zenoh survives: processes that die or freeze, cables, slow lines, relays that go, strangers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest
from hosts import lan, why_no_hosts
from patience import wait_until
from zenoh_links import free_port
from zenoh_node import Program

from motet.swarm.identity.certificates import create_ca, issue_leaf

pytestmark = [pytest.mark.network, pytest.mark.slow]
NO_HOSTS = why_no_hosts()
on_hosts = pytest.mark.skipif(NO_HOSTS is not None, reason=NO_HOSTS or "")

PORT = 7447
ROUND_BYTES = 200_000


@pytest.fixture
def start():
    """Starts programs; each is ended afterwards."""
    with ExitStack() as programs:

        def start(name, **options):
            return programs.enter_context(Program(name, **options))

        yield start


@pytest.fixture
def hosts(request):
    with lan(request.param) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """TLS folders: all of one authority but eve's."""
    base = tmp_path_factory.mktemp("tls")
    create_ca(base / "ca", name="run")
    create_ca(base / "other", name="other")
    for name in ("hub", "far", "n0", "n1", "guest"):
        issue_leaf(base / "ca", name, ["127.0.0.1"], 1).write(base / name)
    issue_leaf(base / "other", "eve", ["127.0.0.1"], 1).write(base / "eve")
    return base


def meet(*programs):
    for one in programs:
        for other in programs:
            if one is not other:
                one.send_until(other, f"beat/{one.name}")


def send_rounds(sender, count, *, size=ROUND_BYTES, pause_s=0.05, first=0):
    for number in range(first, first + count):
        sender.ask("send", topic=f"roll/{sender.name}/{number}", size=size)
        sender.ask("send", topic=f"beat/{sender.name}", size=300)
        time.sleep(pause_s)


def num_rounds(receiver, sender):
    return sum(count for topic, count in receiver.ask("received").items() if topic.startswith(f"roll/{sender.name}/"))


class TestOneMachine:
    def test_the_first_process_is_killed_and_the_others_go_on(self, start):
        port = free_port()
        first, *others = (start(name, embedded_port=port).open() for name in ("n0", "n1", "n2"))
        meet(first, *others)
        first.kill()
        meet(*others)
        again = start("n0", embedded_port=port).open()
        meet(again, *others)
        assert [other.ask("fault") for other in others] == [None, None]

    def test_a_process_left_alone_becomes_the_first(self, start):
        port = free_port()
        first, second = (start(name, embedded_port=port).open() for name in ("n0", "n1"))
        meet(first, second)
        first.kill()
        wait_until(lambda: second.ask("fault"), "the second notices")
        assert second.ask("reopen") == "open"
        assert second.ask("fault") is None
        meet(second, start("n2", embedded_port=port).open())

    def test_a_frozen_process_hurts_nobody(self, start):
        port = free_port()
        n0, n1, n2 = (start(name, embedded_port=port).open() for name in ("n0", "n1", "n2"))
        meet(n0, n1, n2)
        os.kill(n2.pid, signal.SIGSTOP)
        try:
            send_rounds(n0, 100)
            wait_until(lambda: num_rounds(n1, n0) >= 90, "n1 gets what n0 sends")
            assert n1.ask("fetch", topic="roll/n2/0", timeout_s=0.5) == []
        finally:
            os.kill(n2.pid, signal.SIGCONT)
        meet(n0, n1, n2)


class TestRelays:
    def test_a_relay_that_is_restarted(self, start):
        address = f"tcp/127.0.0.1:{free_port()}"
        hub = start("hub", relay=True, listen=[address]).open()
        n0, n1 = (start(name, connect=[address]).open() for name in ("n0", "n1"))
        meet(n0, n1)
        n0.ask("hold", topic="roll/n0/5", sizes=[7, ROUND_BYTES])
        hub.kill()
        wait_until(lambda: n0.ask("neighbours") == n1.ask("neighbours") == [], "both notice")
        n0.ask("send", topic="roll/n0/5", size=7)
        start("hub", relay=True, listen=[address]).open()
        meet(n0, n1)
        assert n1.ask("fetch", topic="roll/n0/5", timeout_s=10.0) == [7, ROUND_BYTES]

    def test_one_of_two_is_killed(self, start):
        near, far = (f"tcp/127.0.0.1:{free_port()}" for _ in range(2))
        hub = start("hub", relay=True, listen=[near]).open()
        start("far", relay=True, listen=[far], connect=[near]).open()
        n0 = start("n0", connect=[near, far]).open()
        n1 = start("n1", connect=[far, near]).open()
        meet(n0, n1)
        assert n0.ask("neighbours") == [[near, None]]
        hub.kill()
        meet(n0, n1)
        assert n0.ask("neighbours") == [[far, None]]
        assert n0.ask("fault") is None

    @pytest.mark.parametrize("is_first", [True, False])
    def test_one_of_two_was_never_there(self, start, is_first):
        nobody, address = (f"tcp/127.0.0.1:{free_port()}" for _ in range(2))
        start("hub", relay=True, listen=[address]).open()
        addresses = [nobody, address] if is_first else [address, nobody]
        n0 = start("n0", connect=addresses).open()
        assert n0.ask("neighbours") == [[address, None]]


class TestStrangers:
    @pytest.fixture
    def address(self):
        return f"tls/127.0.0.1:{free_port()}"

    @pytest.fixture
    def hub(self, start, folders, address):
        return start("hub", relay=True, listen=[address], tls=str(folders / "hub")).open()

    def test_certificates_of_the_authority_open_the_door(self, start, folders, hub, address):
        n0, n1 = (start(name, connect=[address], tls=str(folders / name)).open() for name in ("n0", "n1"))
        meet(n0, n1)
        assert n0.ask("neighbours") == [[address, "hub"]]
        assert hub.ask("guests") == [["n0", False], ["n1", False]]

    def test_one_of_another_authority_does_not(self, start, folders, hub, address):
        answer = start("eve", connect=[address], tls=str(folders / "eve"), open_timeout_s=1.0).ask("open")
        assert answer["code"] == "E-LINK-01"
        assert "another CA" in answer["error"]
        assert hub.ask("guests") == []

    def test_no_tls_does_not(self, start, hub, address):
        plain = address.replace("tls/", "tcp/")
        answer = start("eve", connect=[plain], open_timeout_s=1.0).ask("open")
        assert answer["code"] == "E-LINK-01"
        assert "it speaks TLS: write tls/ instead of tcp/" in answer["error"]
        assert hub.ask("guests") == []

    def test_no_certificate_does_not(self, folders, hub, address):
        import zenoh

        tls = {"root_ca_certificate": str(folders / "hub" / "ca.pem")}
        config = {
            "mode": "client",
            "connect": {"endpoints": [address], "timeout_ms": 1000, "exit_on_failure": True},
            "scouting": {"multicast": {"enabled": False}},
            "transport": {"link": {"tls": tls}},
        }
        with pytest.raises(zenoh.ZError):
            zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
        assert hub.ask("guests") == []

    def test_nobody_speaks_under_anothers_name_at_a_relay(self, start, folders, address):
        start("hub", relay=True, listen=[address], tls=str(folders / "hub"), members=["n0", "n1"]).open()
        n0, n1, guest = (
            start(name, connect=[address], tls=str(folders / name)).open() for name in ("n0", "n1", "guest")
        )
        meet(n0, n1)
        self.spoof(n0, n1)
        guest.ask("send", topic="beat/guest", size=9)
        guest.ask("send", topic="beat/n1", size=9)
        meet(n0, n1)
        assert not [topic for topic in n0.ask("received") if "guest" in topic]
        assert guest.ask("received") == {}
        n0.ask("hold", topic="roll/n0/1", sizes=[5])
        assert guest.ask("fetch", topic="roll/n0/1", timeout_s=0.5) == []
        assert n1.ask("fetch", topic="roll/n0/1", timeout_s=10.0) == [5]

    def test_nor_with_two_relays(self, start, folders, address):
        far_address = f"tls/127.0.0.1:{free_port()}"
        members = ["n0", "n1"]
        start("hub", relay=True, listen=[address], tls=str(folders / "hub"), members=members, relays=["far"]).open()
        options = {"connect": [address], "tls": str(folders / "far"), "members": members, "relays": ["hub"]}
        start("far", relay=True, listen=[far_address], **options).open()
        n0 = start("n0", connect=[address], tls=str(folders / "n0")).open()
        n1 = start("n1", connect=[far_address], tls=str(folders / "n1")).open()
        meet(n0, n1)
        self.spoof(n0, n1)

    def test_nor_between_peers(self, start, folders, address):
        members = ["n0", "n1"]
        n0 = start("n0", listen=[address], tls=str(folders / "n0"), members=members).open()
        n1 = start("n1", connect=[address], tls=str(folders / "n1")).open()
        meet(n0, n1)
        assert n0.ask("neighbours")[0][1] == "n1"
        self.spoof(n0, n1)

    @staticmethod
    def spoof(n0, n1):
        """n1 says things in the name of n0, and answers what n0 is asked; then something of its own, which comes."""
        before = n0.ask("received")
        for topic in ("roll/n0/9", "beat/n0", "card/n0", "roll/n0/9/x"):
            n1.ask("send", topic=topic, size=9)
        n1.send_until(n0, "roll/n1/9")
        n1.send_until(n0, "beat/n1")
        after = n0.ask("received")
        assert {topic for topic in after if after[topic] != before.get(topic)} == {"roll/n1/9", "beat/n1"}


@on_hosts
class TestHosts:
    @staticmethod
    def peers(start, hosts):
        """A node on each host: the first listens, the others connect to it, and gossip connects each with each."""
        seed = f"tcp/{hosts[0].address}:{PORT}"
        nodes = []
        for number, host in enumerate(hosts):
            listen = [f"tcp/{host.address}:{PORT}"]
            connect = [seed] if number else []
            nodes.append(start(f"n{number}", host=host, listen=listen, connect=connect, open_timeout_s=10.0).open())
        meet(*nodes)
        return nodes

    @pytest.mark.parametrize("hosts", [4], indirect=True)
    def test_two_cables_out_hurt_nobody_and_all_is_well_when_they_are_back(self, start, hosts):
        n0, n1, n2, n3 = self.peers(start, hosts)
        hosts[2].unplug()
        hosts[3].unplug()
        send_rounds(n0, 150, pause_s=0.1)  # longer than it takes to give the two up
        wait_until(lambda: num_rounds(n1, n0) >= 140, "n1 gets what n0 sends")
        hosts[2].plug()
        hosts[3].plug()
        meet(n0, n1, n2, n3)
        n0.ask("hold", topic="roll/n0/1", sizes=[ROUND_BYTES, 5])
        assert n2.ask("fetch", topic="roll/n0/1", timeout_s=20.0) == [5, ROUND_BYTES]

    @pytest.mark.parametrize("hosts", [3], indirect=True)
    def test_a_node_comes_back_to_its_relay_after_a_long_time_without_a_cable(self, start, hosts):
        address = f"tcp/{hosts[0].address}:{PORT}"
        start("hub", host=hosts[0], relay=True, listen=[address]).open()
        n0, n1 = (
            start(f"n{number}", host=hosts[number + 1], connect=[address], open_timeout_s=10.0).open()
            for number in range(2)
        )
        meet(n0, n1)
        hosts[2].unplug()
        send_rounds(n1, 20, pause_s=0.02)
        wait_until(lambda: n1.ask("neighbours") == [], "the node notices")
        wait_until(lambda: n1.ask("fault"), "and says so")
        assert "no connection to" in n1.ask("fault")
        hosts[2].plug()
        meet(n0, n1)
        assert n1.ask("fault") is None

    @pytest.mark.parametrize("hosts", [3], indirect=True)
    @pytest.mark.parametrize("relayed", [False, True])
    def test_large_messages_get_through_a_slow_line(self, start, hosts, relayed):
        if relayed:
            address = f"tcp/{hosts[0].address}:{PORT}"
            start("hub", host=hosts[0], relay=True, listen=[address]).open()
            n0, n2 = (start(f"n{i}", host=hosts[i], connect=[address], open_timeout_s=10.0).open() for i in (1, 2))
        else:
            n0, _, n2 = self.peers(start, hosts)
        hosts[2].limit_downlink(20)
        for number, size in enumerate((1_000_000, 2_000_000, 2_000_000, 1_000_000)):
            n0.ask("send", topic=f"roll/{n0.name}/{number}", size=size)
            n2.wait_received(f"roll/{n0.name}/{number}", 1)
        n0.ask("hold", topic=f"roll/{n0.name}/9", sizes=[1_000_000] * 3)
        assert n2.ask("fetch", topic=f"roll/{n0.name}/9", timeout_s=30.0) == [1_000_000] * 3

    @pytest.mark.parametrize("hosts", [2], indirect=True)
    def test_an_address_behind_a_pulled_cable(self, start, hosts):
        hosts[0].unplug()
        node = start("n1", host=hosts[1], connect=[f"tcp/{hosts[0].address}:{PORT}"], open_timeout_s=1.0)
        answer = node.ask("open")
        assert answer["code"] == "E-LINK-01"
        assert "no answer: the machine is off, or a firewall" in answer["error"] or "no way there" in answer["error"]


@on_hosts
def test_hosts_leave_nothing_behind():
    with lan(2) as hosts:
        names = [hosts[0].bridge, *(host.name for host in hosts)]
        assert set(names) <= namespaces()
        assert all(str(os.getpid()) in name for name in names)
        assert hosts[1].address in hosts[1].run("ip", "-br", "address", "show", "eth0")
    assert not set(names) & namespaces()


def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}
