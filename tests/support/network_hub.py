"""Links to test, and swarms over them that look to the contract of exchanges like any other hub.

Another engine passes both contracts by one line here: `LINKS["name"] = factory`, where a factory is a context manager
that gives a function from a node's name to a link, not open, of one run of this test's own.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from nats_server import nats_links
from zenoh_links import embedded_links, relayed_links

from motet.swarm import Event, Parcel
from motet.swarm.engines.links import Link
from motet.swarm.engines.memory_link import MemoryNet
from motet.swarm.identity.credentials import Roster, plain_credential
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network import Clock, NetworkExchange, NetworkOptions

MakeLink = Callable[[str], Link]
LinkFactory = Callable[[], AbstractContextManager[MakeLink]]

PATIENCE_S = 60.0
CARD = {"task": "sums", "seed": "7"}


@contextmanager
def memory_links() -> Iterator[MakeLink]:
    """Links of one process."""
    net = MemoryNet()
    yield net.link
    net.close()


@contextmanager
def _of_zenoh(factory: LinkFactory) -> Iterator[MakeLink]:
    pytest.importorskip("zenoh", reason="needs zenoh: pip install 'motet[swarm]'")
    with factory() as make_link:
        yield make_link


LINKS: dict[str, LinkFactory] = {
    "memory": memory_links,
    "zenoh": partial(_of_zenoh, embedded_links),
    "zenoh relay": partial(_of_zenoh, relayed_links),
    "nats": nats_links,
}


def wait_for(condition: Callable[[], object], what: str = "a condition") -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it did not come about.
    """
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s, f"waited for {what} in vain"
        time.sleep(0.002)


class Party:
    """Nodes of one run, each with a key of its own; no authority.

    Args:
        make_link: name to link.
        names: of all nodes that may take part.
        options: of their exchanges.
    """

    def __init__(self, make_link: MakeLink, names: Sequence[str] = ("ann", "bob", "cid"), **options: Any) -> None:
        self.make_link = make_link
        self.run_id = secrets.token_bytes(16)
        self.keys = {name: NodeKey.generate() for name in names}
        self.options: dict[str, Any] = {"num_rounds": 1000, **options}
        self._stack = ExitStack()

    def make(self, name: str, *, card: dict[str, str] = CARD, threads: bool = True, **options: Any) -> NetworkExchange:
        """An exchange, not open; closed with the party."""
        clock = options.pop("clock", None)
        key = options.pop("key", self.keys.get(name) or NodeKey.generate())
        exchange = NetworkExchange(
            name,
            key=key,
            credential=plain_credential(name, key.public),
            roster=Roster(self.run_id, authority=None, pins=dict.fromkeys(self.keys)),
            run_id=self.run_id,
            card=card,
            link=options.pop("link", None) or self.make_link(name),
            options=NetworkOptions(**{**self.options, **options}),
            threads=threads,
            clock=clock,
        )
        self._stack.callback(exchange.close)
        return exchange

    def join(self, name: str, **options: Any) -> NetworkExchange:
        """An open exchange."""
        exchange = self.make(name, **options)
        exchange.open()
        return exchange

    def close(self) -> None:
        """Close all exchanges."""
        self._stack.close()


class NetworkHub:
    """A swarm over links, whose nodes look for news only when what was sent before has come.

    A network delivers when it delivers; the contract's tests say what must be so afterwards.
    """

    def __init__(self, make_link: MakeLink, *, threads: bool = True) -> None:
        self.party = Party(make_link, keep_rounds=200, repair_after_s=0.5)
        self.nodes: dict[str, Settled] = {}
        self._threads = threads
        self._lock = threading.Lock()
        self._published: list[tuple[str, int]] = []

    def join(self, name: str) -> Settled:
        """Enter under a name; who was there before knows of it then."""
        node = self.nodes[name] = Settled(self, self.party.join(name, threads=self._threads))
        self.settle()
        return node

    def note(self, name: str, round: int) -> None:
        """A node has published."""
        with self._lock:
            self._published.append((name, round))

    def settle(self) -> None:
        """Wait until all that was sent has come, joining and leaving included."""
        wait_for(self._is_settled, "messages to come")

    def _is_settled(self) -> bool:
        open_nodes = [node.inner for node in self.nodes.values() if not node.is_closed]
        expected = sorted(node.name for node in open_nodes)
        if any(node.peers() != [name for name in expected if name != node.name] for node in open_nodes):
            return False
        with self._lock:
            published = list(self._published)
        arrived = [(name, round) for name, round in published if all(_has(node, name, round) for node in open_nodes)]
        with self._lock:
            self._published = [one for one in self._published if one not in arrived]
            return not self._published


def _has(node: NetworkExchange, peer: str, round: int) -> bool:
    known = node._known
    with known.changed:
        return node.name == peer or known.shelf.has_all(peer, round) or round < known.oldest()


class Settled:
    """An exchange of a `NetworkHub`."""

    def __init__(self, hub: NetworkHub, inner: NetworkExchange) -> None:
        self.hub = hub
        self.inner = inner
        self.is_closed = False
        self.name = inner.name

    def peers(self) -> list[str]:
        self.hub.settle()
        return self.inner.peers()

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        self.inner.publish(round, payloads)
        self.hub.note(self.name, round)

    def waiting_for(self, round: int) -> list[str]:
        self.hub.settle()
        return self.inner.waiting_for(round)

    def collect(self, round: int, *, deadline_s: float, max_lag: int | None = None) -> list[Parcel]:
        self.hub.settle()
        return self.inner.collect(round, deadline_s=deadline_s, max_lag=max_lag)

    def num_late(self) -> dict[str, int]:
        return self.inner.num_late()

    def num_refused(self) -> dict[str, dict[str, int]]:
        return self.inner.num_refused()

    def events(self) -> list[Event]:
        return self.inner.events()

    def close(self) -> None:
        self.is_closed = True
        self.inner.close()


@contextmanager
def network_hub(factory: LinkFactory, *, threads: bool = True) -> Iterator[NetworkHub]:
    """A hub over links of one kind."""
    with factory() as make_link:
        hub = NetworkHub(make_link, threads=threads)
        yield hub
        hub.party.close()


class Stage:
    """Nodes over memory whose steps and whose time are ours.

    Attributes:
        net: with its faults.
        party: makes the exchanges.
        nodes: those that `join` has made and that are stepped.
    """

    def __init__(self, names: Sequence[str] = ("ann", "bob", "cid"), **options: Any) -> None:
        self.now_s = 1000.0
        self.skew_s: dict[str, float] = {}
        self.net = MemoryNet(seed=5, clock=self._monotonic)
        self.party = Party(self.net.link, names, **options)
        self.nodes: dict[str, NetworkExchange] = {}

    def join(self, name: str, **options: Any) -> NetworkExchange:
        """An open exchange that is stepped from now on."""
        clock = Clock(self._monotonic, lambda: 1.7e9 + self.now_s + self.skew_s.get(name, 0.0))
        node = self.nodes[name] = self.party.join(name, threads=False, clock=clock, **options)
        return node

    def meet(self, *names: str, **options: Any) -> list[NetworkExchange]:
        """Nodes that have heard of one another."""
        nodes = [self.join(name, **options) for name in names]
        self.pass_s(1.0)
        return nodes

    def settle(self) -> None:
        """Step everybody until nothing moves."""
        is_busy = True
        while is_busy:
            is_busy = False
            for node in self.nodes.values():
                is_busy |= node.step()

    def pass_s(self, seconds: float, *, tick_s: float = 0.25) -> None:
        """Let time go by."""
        until_s = self.now_s + seconds
        self.settle()
        while self.now_s < until_s:
            self.now_s = min(self.now_s + tick_s, until_s)
            self.settle()

    def vanish(self, name: str) -> None:
        """A node's process is killed: nothing is said, nothing is stepped."""
        self.net.break_link(name, "killed")
        del self.nodes[name]

    def _monotonic(self) -> float:
        return self.now_s
