"""Addresses of the network: `tcp/host:port`, `tls/host:port`, `quic/host:port`."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from motet.errors import UsageError

PROTOCOLS: Final = ("tcp", "tls", "quic")

_SHAPE: Final = re.compile(r"(?P<protocol>[a-z]+)/(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_LOOSE: Final = re.compile(
    r"(?:(?P<protocol>[A-Za-z]+)(?::/?/?|/+))?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?/?"
)
_USUAL_PORT: Final = 7447
_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where somebody listens.

    Attributes:
        protocol: "tcp", "tls" or "quic".
        host: a name or an IP address; an IPv6 address without its brackets.
        port: 0 only where one listens: any free one.
    """

    protocol: str
    host: str
    port: int

    @property
    def is_encrypted(self) -> bool:
        """True for TLS and QUIC."""
        return self.protocol != "tcp"

    @property
    def is_wildcard(self) -> bool:
        """True if it stands for every address of a machine."""
        return self.host in ("0.0.0.0", "::")

    def __str__(self) -> str:
        """As it is written in a run file."""
        return f"{self.protocol}/{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_address(text: str, *, where: str, listens: bool = False) -> Address:
    """An address from its text.

    Args:
        text: such as "tls/relay.example.org:7447".
        where: which setting or flag it comes from, for the error.
        listens: whether it is one to listen on, where port 0 says "any free one".

    Raises:
        UsageError: E-LINK-02, not an address.

    >>> parse_address("tcp/[::1]:7447", where="swarm.connect")
    Address(protocol='tcp', host='::1', port=7447)
    """
    match = _SHAPE.fullmatch(text)
    if match is None or match["protocol"] not in PROTOCOLS or not _is_host(match["host"]):
        raise UsageError(f'{where}: "{text}" is not an address; {_advice(text)}', code="E-LINK-02")
    port = int(match["port"])
    if not (0 if listens else 1) <= port <= _LARGEST_PORT:
        raise UsageError(
            f'{where}: "{text}" has no port that exists; expected 1 to {_LARGEST_PORT}'
            + (", or 0 for any that is free" if listens else ""),
            code="E-LINK-02",
        )
    return Address(match["protocol"], match["host"].strip("[]"), port)


def parse_addresses(texts: Iterable[str], *, where: str, listens: bool = False) -> tuple[Address, ...]:
    """Addresses from their texts, each once, in their order; see `parse_address`."""
    return tuple(dict.fromkeys(parse_address(text, where=where, listens=listens) for text in texts))


def without_own(connect: Sequence[Address], listen: Sequence[Address]) -> tuple[Address, ...]:
    """The addresses to connect to, less those at which this machine itself listens.

    All nodes of a run may have the same list; the machine that is on it must not wait for itself.
    """
    ports = {address.port for address in listen}
    return tuple(address for address in connect if not (address.port in ports and is_of_this_machine(address.host)))


def is_of_this_machine(host: str) -> bool:
    """True if a host, a name or an IP address, is this machine: something can be bound to it."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, _, _, place in found:
        with closing(socket.socket(family, kind)) as probe:
            try:
                probe.bind(place)
            except OSError:
                continue
            return True
    return False


def _is_host(host: str) -> bool:
    if host.startswith("["):
        try:
            return ipaddress.ip_address(host.strip("[]")).version == 6
        except ValueError:
            return False
    return True


def _advice(text: str) -> str:
    expected = "expected tcp/host:port, tls/host:port or quic/host:port"
    if text.startswith("nats:"):
        return f'{expected}; nats:// belongs to swarm.transport = "nats"'
    loose = _LOOSE.fullmatch(text.strip())
    if loose is None or not _is_host(loose["host"]):
        return expected
    protocol = (loose["protocol"] or "tcp").lower()
    if protocol not in PROTOCOLS:
        return expected
    return f'{expected}; did you mean "{protocol}/{loose["host"]}:{loose["port"] or _USUAL_PORT}"?'
