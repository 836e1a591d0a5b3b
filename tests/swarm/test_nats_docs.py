"""The configurations of docs/nats.md, started and tried. Only hosts, ports and folders are others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from nats_server import (
    FETCH_S,
    NatsLinks,
    NatsServer,
    Received,
    answers,
    free_port,
    nats_marks,
    permissions,
)
from patience import wait_until

from motet.errors import SwarmUnreachable
from motet.swarm.engines.nats_link import NatsLink
from motet.swarm.identity.certificates import create_ca, issue_leaf

pytestmark = nats_marks()

DOCS = Path(__file__).parents[2] / "docs" / "nats.md"
CONFIGS: dict[str, str] = dict(re.findall(r"```conf\n# (\S+)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL))


class Site:
    """Servers made from the page's configurations."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.ca = folder / "ca"
        create_ca(self.ca, name="sums")
        issue_leaf(self.ca, "hub", ["127.0.0.1"]).write(folder / "hub-tls")
        self.ports = {place: free_port() for place in ("hub-1", "hub-2", "hub-3", "leaf")}

    def certificate(self, name: str) -> Path:
        issue_leaf(self.ca, name, []).write(self.folder / name)
        return self.folder / name

    def server(self, config: str, *, place: str = "", scheme: str = "nats") -> NatsServer:
        """A server with the page's configuration, started."""
        port, folder = free_port(), self.folder / f"{config}-{place}"
        text = CONFIGS[config]
        for was, becomes in {
            "0.0.0.0:4222": f"127.0.0.1:{port}",
            "0.0.0.0:6222": f"127.0.0.1:{self.ports.get(place)}",
            "0.0.0.0:7422": f"127.0.0.1:{self.ports['leaf']}",
            "hub.example.org:7422": f"127.0.0.1:{self.ports['leaf']}",
            **{f"hub-{n}.example.org:6222": f"127.0.0.1:{self.ports[f'hub-{n}']}" for n in (1, 2, 3)},
            "server_name: hub-1": f"server_name: {place}",
            "/var/lib/nats": str(folder / "store"),
            "/etc/nats": str(self.folder / "hub-tls"),
        }.items():
            text = text.replace(was, becomes)
        assert "0.0.0.0" not in text
        assert "example.org" not in text
        server = NatsServer(folder, text=text, port=port, scheme=scheme)
        self._stack.callback(server.kill)
        server.start()
        return server

    def links(self, server: NatsServer, run_id_hex: str = "0a") -> NatsLinks:
        return self._stack.enter_context(NatsLinks(server, run_id_hex))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def open_in_the_end(link: NatsLink, got: Received) -> NatsLink:
    """A cluster needs some seconds to find itself."""

    def is_open() -> bool:
        try:
            link.open(inbox=got, answer=answers(), pushed=True)
        except SwarmUnreachable:
            return False
        return True

    wait_until(is_open)
    return link


def exchange_rounds(make: Callable[[str, Received], NatsLink], *names: str) -> None:
    """Each node's round reaches all others, live and from the stream."""
    got = {name: Received() for name in names}
    links = {name: make(name, got[name]) for name in names}
    for name, link in links.items():
        link.send(f"roll/{name}/0", name.encode())
        link.send(f"beat/{name}", b"beat")
    for name, link in links.items():
        for peer in set(names) - {name}:
            wait_until(lambda name=name, peer=peer: got[name].under(f"roll/{peer}/0") == [peer.encode()])
            wait_until(lambda name=name, peer=peer: got[name].under(f"beat/{peer}"))
            wait_until(lambda link=link, peer=peer: link.fetch(f"roll/{peer}/0", timeout_s=FETCH_S) == [peer.encode()])
    assert all(link.dropped() == {} for link in links.values())


def test_every_configuration_of_the_page_is_tried() -> None:
    assert set(CONFIGS) == {"single.conf", "secure.conf", "accounts.conf", "cluster.conf", "hub.conf", "site.conf"}


def test_one_server(site: Site) -> None:
    links = site.links(site.server("single.conf"))
    exchange_rounds(links.open, "ann", "bob")


def test_certificates_and_permissions(site: Site) -> None:
    links = site.links(site.server("secure.conf", scheme="tls"))
    exchange_rounds(lambda name, got: links.open(name, got, tls=site.certificate(name)), "ann", "bob")
    forger = links.open("ann", tls=site.certificate("ann"))
    forger.send("roll/bob/1", b"forged")
    wait_until(lambda: forger.dropped() == {"permission": 1})
    with pytest.raises(SwarmUnreachable) as caught:
        links.open("eve", tls=site.certificate("eve"))
    assert caught.value.code == "E-LINK-13"


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_the_permissions_of_the_page_are_those_that_the_other_tests_try(name: str) -> None:
    def words(text: str) -> list[str]:
        return re.findall(r"[^\s,]+", text.replace("[", " [ ").replace("]", " ] "))

    assert " ".join(words(permissions(name).strip("{} "))) in " ".join(words(CONFIGS["secure.conf"]))


def test_accounts_keep_swarms_apart(site: Site) -> None:
    links = site.links(site.server("accounts.conf", scheme="tls"))
    stranger_got = Received()
    stranger = links.open("cid", stranger_got, tls=site.certificate("cid"))
    exchange_rounds(lambda name, got: links.open(name, got, tls=site.certificate(name)), "ann", "bob")
    assert stranger_got.messages == []
    assert stranger.fetch("roll/ann/0", timeout_s=FETCH_S) == []


def test_three_servers_of_which_one_dies(site: Site) -> None:
    servers = [site.server("cluster.conf", place=f"hub-{number}") for number in (1, 2, 3)]
    addresses = [server.address for server in servers]
    links = site.links(servers[0])
    ann_got, bob_got = Received(), Received()
    ann = open_in_the_end(links.make("ann", servers=addresses), ann_got)
    bob = open_in_the_end(links.make("bob", servers=addresses[::-1]), bob_got)
    ann.send("roll/ann/0", b"before")
    wait_until(lambda: bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"before"])

    mine = ann.neighbours()[0].address
    servers[addresses.index(mine)].kill()
    wait_until(lambda: ann.fault() is None and [one.address for one in ann.neighbours()] not in ([], [mine]))
    ann.send("roll/ann/1", b"after")
    wait_until(lambda: bob_got.under("roll/ann/1"))
    wait_until(lambda: bob.fetch("roll/ann/1", timeout_s=FETCH_S) == [b"after"])
    assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"before"], "it is kept by more than one server"


def test_a_leaf_at_each_site(site: Site) -> None:
    hub = site.server("hub.conf")
    leaf = site.server("site.conf")
    at_hub, at_site = site.links(hub), site.links(leaf)
    got: dict[str, Received] = {}
    links: dict[str, NatsLink] = {}

    def make(name: str, inbox: Received) -> NatsLink:
        got[name] = inbox
        links[name] = open_in_the_end((at_hub if name == "ann" else at_site).make(name), inbox)
        return links[name]

    exchange_rounds(make, "ann", "bob", "cid")
    bob, cid = links["bob"], links["cid"]
    hub.kill()
    bob.send("roll/bob/1", b"on the site")
    wait_until(lambda: got["cid"].under("roll/bob/1"))
    assert cid.fault() is None
    hub.start()
    wait_until(lambda: cid.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"ann"])
    wait_until(lambda: cid.fetch("roll/bob/1", timeout_s=FETCH_S) == [b"on the site"])
