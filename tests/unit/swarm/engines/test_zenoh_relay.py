from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import pytest
from patience import wait_until

from motet.errors import EnvironmentFault, UsageError
from motet.swarm.engines.zenoh_link import ZenohLink
from motet.swarm.engines.zenoh_relay import Guest, ZenohRelay
from motet.swarm.identity.certificates import create_ca, issue_leaf

LONG_S = 30.0


@pytest.fixture
def opened():
    """Opens relays, and links that listen to nothing; all are closed afterwards."""
    with ExitStack() as stack:

        def open_it(thing):
            stack.callback(thing.close)
            if isinstance(thing, ZenohLink):
                thing.open(inbox=lambda topic, message: None, answer=lambda _: [], pushed=True)  # noqa: ARG005
            else:
                thing.open()
            return thing

        yield open_it


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("tls")
    create_ca(base / "ca", name="run")
    for name in ("hub", "far", "ann"):
        issue_leaf(base / "ca", name, ["127.0.0.1"], 1).write(base / name)
    return base


class TestArguments:
    def test_names_come_from_certificates(self):
        with pytest.raises(UsageError, match=r"--members needs swarm\.tls") as caught:
            ZenohRelay(["tcp/127.0.0.1:0"], members=["ann"])
        assert caught.value.code == "E-RELAY-02"

    def test_a_name_is_a_nodes_or_a_relays(self, folders):
        with pytest.raises(UsageError, match="ann: a name is a node's or a relay's") as caught:
            ZenohRelay(["tls/127.0.0.1:0"], tls=folders / "hub", members=["ann"], relays=["ann"])
        assert caught.value.code == "E-RELAY-02"

    @pytest.mark.parametrize("options", [{"listen": ["7447"]}, {"listen": ["tcp/a:1"], "connect": ["nats://b:1"]}])
    def test_addresses_are_looked_at_first(self, options):
        with pytest.raises(UsageError) as caught:
            ZenohRelay(**options)
        assert caught.value.code == "E-LINK-02"


@pytest.mark.network
class TestRelay:
    def test_says_its_real_addresses(self, opened):
        relay = opened(ZenohRelay(["tcp/127.0.0.1:0", "tcp/0.0.0.0:0"]))
        first, *rest = relay.addresses()
        assert first.startswith("tcp/127.0.0.1:")
        assert rest
        assert not [address for address in relay.addresses() if address.endswith(":0") or "0.0.0.0" in address]
        for address in relay.addresses():
            host, port = address.removeprefix("tcp/").split(":")
            socket.create_connection((host, int(port)), timeout=LONG_S).close()

    def test_says_who_is_connected(self, opened):
        hub = opened(ZenohRelay(["tcp/127.0.0.1:0"]))
        far = opened(ZenohRelay(["tcp/127.0.0.1:0"], connect=hub.addresses()))
        assert [guest.address for guest in far.guests()] == hub.addresses()
        link = opened(ZenohLink("ann", "ab12", connect=hub.addresses()))
        wait_until(lambda: [guest.is_relay for guest in hub.guests()] == [False, True])
        link.close()
        wait_until(lambda: [guest.is_relay for guest in hub.guests()] == [True])
        far.close()
        wait_until(lambda: hub.guests() == [])
        assert far.guests() == []

    def test_knows_names_by_their_certificates(self, opened, folders):
        hub = opened(ZenohRelay(["tls/127.0.0.1:0"], tls=folders / "hub", members=["ann"], relays=["far"]))
        options = {"tls": folders / "far", "members": ["ann"], "relays": ["hub"]}
        far = opened(ZenohRelay(["tls/127.0.0.1:0"], connect=hub.addresses(), **options))
        link = opened(ZenohLink("ann", "ab12", connect=hub.addresses(), tls=folders / "ann"))
        wait_until(lambda: [guest.certificate_name for guest in hub.guests()] == ["ann", "far"])
        assert far.guests() == [Guest(*hub.addresses(), "hub", is_relay=True)]
        assert [neighbour.certificate_name for neighbour in link.neighbours()] == ["hub"]

    def test_a_port_that_is_taken(self):
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            address = f"tcp/127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(EnvironmentFault, match=f"cannot listen on {address}") as caught:
                ZenohRelay([address]).open()
        assert caught.value.code == "E-LINK-05"

    def test_can_be_opened_again(self, opened):
        relay = opened(ZenohRelay(["tcp/127.0.0.1:0"]))
        before = relay.addresses()
        relay.open()
        opened(ZenohLink("ann", "ab12", connect=relay.addresses()))
        wait_until(relay.guests)
        assert len(relay.addresses()) == len(before)
        relay.close()
        relay.close()
