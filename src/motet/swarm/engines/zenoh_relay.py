"""A relay: a zenoh router inside this process, for nodes that cannot reach one another.

It trains nothing, keeps nothing and reads nothing; what it carries is signed by its senders.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from motet.errors import UsageError
from motet.swarm.engines.acl import ANY_RUN, access_rules
from motet.swarm.engines.addresses import Address, parse_addresses, without_own
from motet.swarm.engines.zenoh_config import check_tls, session_config
from motet.swarm.engines.zenoh_session import cannot_listen, close_session, import_zenoh, links_of, open_session

if TYPE_CHECKING:
    import zenoh

_MAX_MESSAGE_BYTES: Final = 16_000_000
_SIOCGIFADDR: Final = 0x8915  # Linux: the IPv4 address of an interface
_NOWHERE: Final = ("192.0.2.1", 9)  # of a network that does not exist: only the way to it is looked up


@dataclass(frozen=True, slots=True)
class Guest:
    """Somebody who is connected to a relay.

    Attributes:
        address: from where, or, for a relay that this one has called, at which address.
        certificate_name: common name of its certificate; None without TLS.
        is_relay: whether it is another relay.
    """

    address: str
    certificate_name: str | None
    is_relay: bool


class ZenohRelay:
    """A router. Several that are connected carry the messages of one swarm; a node needs one of them.

    Args:
        listen: addresses for nodes and other relays; port 0 takes any that is free.
        connect: addresses of other relays. They need not be there yet.
        tls: folder with ca.pem, node.pem and node.key; with it nothing but mutual TLS is spoken.
        members: names in certificates of the nodes; each may then speak under its own name only. Without them whoever
            is connected may say anything, and any run is carried; nodes still check every signature.
        relays: names in certificates of the other relays, which `members` would lock out.
        run_id_hex: with `members`: the one run that is carried; without it, any.

    Raises:
        UsageError: E-LINK-02, not an address; E-LINK-03, TLS is missing or incomplete; E-RELAY-02, members or relays
            that make no rules.
    """

    def __init__(
        self,
        listen: Sequence[str],
        *,
        connect: Sequence[str] = (),
        tls: Path | None = None,
        members: Iterable[str] | None = None,
        relays: Iterable[str] = (),
        run_id_hex: str | None = None,
    ) -> None:
        wanted = parse_addresses(listen, where="--listen", listens=True)
        self._connect = without_own(parse_addresses(connect, where="--connect"), wanted)
        check_tls([*wanted, *self._connect], tls, where="relay")
        if members is not None and tls is None:
            raise UsageError("--members needs swarm.tls: names are those in certificates", code="E-RELAY-02")
        self._wanted = wanted
        self._listen: tuple[Address, ...] = ()
        self._tls = tls
        self._access: dict[str, Any] | None = None
        if members is not None:
            try:
                self._access = access_rules(members, run=run_id_hex or ANY_RUN, relays=relays)
            except ValueError as error:
                raise UsageError(f"--members: {error}", code="E-RELAY-02") from None
        self._session: zenoh.Session | None = None

    def open(self) -> None:
        """Start to carry.

        Raises:
            EnvironmentFault: E-LINK-04, zenoh is not installed; E-LINK-05, an address cannot be listened on.
        """
        self.close()
        engine = import_zenoh()
        self._listen = tuple(_with_port(address) for address in self._wanted)
        config = session_config(
            "router",
            listen=self._listen,
            connect=self._connect,
            tls=self._tls,
            timeout_s=0.0,
            max_message_bytes=_MAX_MESSAGE_BYTES,
            access=self._access,
        )
        try:
            self._session = open_session(config)
        except engine.ZError as error:
            raise cannot_listen(self._listen, error) from None

    def addresses(self) -> list[str]:
        """Where it can be reached: real ports, and for "every address of this machine" each of them."""
        return [str(real) for address in self._listen for real in _real_addresses(address)]

    def guests(self) -> list[Guest]:
        """Who is connected, by name and address."""
        session = self._session
        if session is None:
            return []
        relays = {str(zid) for zid in session.info.routers_zid()}
        guests = [Guest(link.dst, link.auth_identifier, str(link.zid) in relays) for link in links_of(session)]
        return sorted(guests, key=lambda guest: (guest.is_relay, guest.certificate_name or "", guest.address))

    def close(self) -> None:
        """Stop. Harmless when repeated."""
        session, self._session = self._session, None
        if session is not None:
            close_session(session)


def _with_port(address: Address) -> Address:
    """The address with a free port in place of 0."""
    if address.port:
        return address
    kind = socket.SOCK_DGRAM if address.protocol == "quic" else socket.SOCK_STREAM
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with closing(socket.socket(family, kind)) as probe:
        probe.bind((address.host, 0))
        return Address(address.protocol, address.host, int(probe.getsockname()[1]))


def _real_addresses(address: Address) -> list[Address]:
    """One address for each of this machine's, if it stands for all; itself if they cannot be told."""
    if address.host != "0.0.0.0":
        return [address]
    hosts = dict.fromkeys([*_outward_host(), *_interface_hosts()])
    return [Address(address.protocol, host, address.port) for host in hosts] or [address]


def _outward_host() -> list[str]:
    """The address that this machine shows to the world; none without a way there. Nothing is sent."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe, suppress(OSError):
        probe.connect(_NOWHERE)
        return [str(probe.getsockname()[0])]
    return []


def _interface_hosts() -> list[str]:
    """The IPv4 address of each interface, where the system tells; the loopback last."""
    if sys.platform != "linux":
        return []
    import fcntl

    hosts = []
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, name.encode()[:15].ljust(256, b"\0"))
                hosts.append(socket.inet_ntoa(answer[20:24]))
    return sorted(hosts, key=lambda host: host.startswith("127."))
