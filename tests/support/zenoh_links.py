"""Links over zenoh for the suites of `network_hub`: embedded in one process, or through a relay."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from motet.swarm.engines.zenoh_link import ZenohLink
from motet.swarm.engines.zenoh_relay import ZenohRelay


def free_port() -> int:
    """A port of the loopback that nobody has."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def embedded_links() -> Iterator[Callable[[str], ZenohLink]]:
    """Each with each, over the loopback."""
    run, port = secrets.token_hex(16), free_port()
    yield lambda name: ZenohLink(name, run, embedded_port=port)


@contextmanager
def relayed_links() -> Iterator[Callable[[str], ZenohLink]]:
    """All through one relay."""
    run, relay = secrets.token_hex(16), ZenohRelay(["tcp/127.0.0.1:0"])
    relay.open()
    with closing(relay):
        yield lambda name: ZenohLink(name, run, connect=relay.addresses())
