"""What `motet doctor` looks at on the network: ports to listen on, addresses to connect to, peers that are heard."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from motet.cli.doctor_checks import Case, Finding, Verdict
from motet.cli.heartbeats import read_heartbeat, roster_of
from motet.cli.strangers import plain
from motet.errors import MotetError
from motet.swarm.engines.addresses import Address, parse_addresses, without_own
from motet.swarm.engines.links import Link, Neighbour
from motet.swarm.engines.unreachable import why_unreachable
from motet.swarm.identity.credentials import Credential, Refusal
from motet.swarm.identity.keys import NodeKey, short

ADDRESS: Final = "connect"
"""Subject of what is found about addresses to connect to."""
CONNECT_S: Final = 3.0
LISTEN_S: Final = 5.0

_ALERT_S: Final = 0.5
_CLOCK_PROBLEM_S: Final = 600.0
_CLOCK_WARNING_S: Final = 30.0
_MAX_PEERS: Final = 1000
_SHOWN: Final = 5
_NATS_PORT: Final = 4222
_LOOPBACK: Final = "127.0.0.1"


def check_ports(case: Case) -> Iterator[Finding]:
    """Whether the addresses to listen on can be had."""
    try:
        listen = parse_addresses(case.run.swarm.listen, where="swarm.listen", listens=True)
    except MotetError as error:
        yield Finding("problem", "listen", str(error))
        return
    for address in listen:
        fault = _why_not_bound(address)
        if fault is None:
            yield Finding("ok", "listen", f"{address} is free")
        else:
            yield Finding("problem", "listen", f"{address}: {fault[0]}", fault[1])


def check_addresses(case: Case) -> Iterator[Finding]:
    """Whether somebody answers at each address, up to the TLS handshake. One that answers is enough."""
    try:
        found = list(_addresses(case))
    except MotetError as error:
        found = [Finding("problem", ADDRESS, str(error))]
    answered = any(finding.verdict == "ok" for finding in found)
    for finding in found:
        yield replace(finding, verdict="warning") if answered and finding.verdict == "problem" else finding


def _addresses(case: Case) -> Iterator[Finding]:
    swarm = case.run.swarm
    if swarm.transport == "nats":
        for text in swarm.connect:
            yield _nats_server(text)
        return
    listen = parse_addresses(swarm.listen, where="swarm.listen", listens=True)
    connect = parse_addresses(swarm.connect, where="swarm.connect")
    others = without_own(connect, listen)
    for address in connect:
        if address in others:
            yield _reach(address, None if swarm.tls is None else Path(swarm.tls))
        else:
            yield Finding("ok", ADDRESS, f"{address} is this machine itself")


def check_peers(case: Case) -> Iterator[Finding]:
    """Who is heard within a few seconds, and whether their clocks agree with ours. Nothing is sent."""
    others = len(case.run.node) - len(case.nodes)
    knows_all = others > 0 and case.run.swarm.authority is None
    yield from listen_for_peers(case, Ears(case, enough=others if knows_all else _MAX_PEERS))


def listen_for_peers(case: Case, ears: Ears) -> Iterator[Finding]:
    """Listen until the ears have heard enough, or the time is over."""
    if case.run.trains_alone:
        return
    try:
        link = _listening_link(case)
        if link is None:
            yield Finding("ok", "peers", "nobody is there yet: a node that starts now is the first")
            return
        with contextlib.closing(link):
            link.open(inbox=ears.hear, answer=_no_answer, pushed=False)
            ears.wait(LISTEN_S)
            neighbours = link.neighbours()
    except MotetError as error:
        yield Finding("problem", "peers", str(error))
        return
    yield from what_was_heard(case, ears, neighbours)


def _no_answer(topic: str) -> list[bytes]:
    del topic
    return []


class Ears:
    """Takes heartbeats of a run, believes those that the run's rules let in, and answers nothing.

    Args:
        case: the run.
        enough: number of peers after which nothing more is waited for.
    """

    def __init__(self, case: Case, *, enough: int = _MAX_PEERS) -> None:
        self._run_id = case.run_id
        self._enough = enough
        self._own = {node.name for node in case.nodes}
        self._changed = threading.Condition()
        self._roster = roster_of(case.run, self._run_id)
        self.peers: dict[str, Credential] = {}
        self.clock_gaps_s: dict[str, float] = {}
        self.refused: Counter[str] = Counter()

    def hear(self, topic: str, message: bytes) -> None:
        """Take a message of the link. Never raises."""
        if not topic.startswith("beat/") or len(self.peers) >= _MAX_PEERS:
            return
        heard, now_s = read_heartbeat(message), time.time()
        with self._changed:
            if isinstance(heard, str):
                self.refused[heard] += 1
            elif heard.run_id != self._run_id:
                self.refused["malformed"] += 1
            elif isinstance(told := self._roster.admit(heard.beat.credential, now_s=now_s), Refusal):
                self.refused[told.reason] += 1
            else:
                self.peers[heard.peer] = heard.beat.credential
                self.clock_gaps_s[heard.peer] = heard.beat.clock_ms / 1000 - now_s
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Until enough peers were heard, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.peers.keys() - self._own) >= self._enough, timeout_s)


def what_was_heard(case: Case, ears: Ears, neighbours: list[Neighbour]) -> Iterator[Finding]:
    """Connections, peers, namesakes, refusals and clocks."""
    yield from _connections(neighbours)
    own = {node.name for node in case.nodes}
    names = sorted(ears.peers.keys() - own)
    if names:
        shown = ", ".join(f"{name} ({short(ears.peers[name].node_key)})" for name in names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield Finding("ok", "peers", f"{len(names)} heard: {shown}{more}")
    else:
        yield Finding(
            "warning",
            "peers",
            f"none heard within {LISTEN_S:.0f} s",
            "start the others, or see whether they use the same run.name, run.seed and addresses",
        )
    for name in sorted(ears.peers.keys() & own):
        yield _namesake(case, ears.peers[name])
    if ears.refused:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(ears.refused.items()))
        todo = "see whether they run the same version, run.name, run.seed and swarm.authority"
        yield Finding("warning", "peers", f"messages that nobody here would believe: {reasons}", todo)
    if ears.clock_gaps_s:
        yield _clocks(ears.clock_gaps_s)


def _connections(neighbours: list[Neighbour]) -> Iterator[Finding]:
    for kind in ("relay", "server", "node"):
        ends = [
            one.address if one.certificate_name is None else f"{one.address} ({one.certificate_name})"
            for one in neighbours
            if one.kind == kind
        ]
        if ends:
            more = f" and {len(ends) - _SHOWN} more" if len(ends) > _SHOWN else ""
            yield Finding("ok", kind, f"connected to {plain(', '.join(ends[:_SHOWN]))}{more}")


def _namesake(case: Case, heard: Credential) -> Finding:
    """Somebody speaks under the name of a node that is meant to run here."""
    path = case.keyring.node_key(heard.name)
    try:
        is_ours = path.exists() and NodeKey.load(path).public == heard.node_key
    except MotetError:
        is_ours = False
    if is_ours:
        what = f"{heard.name} runs already, with the key of this machine"
        return Finding("warning", "peers", what, "a second process with this key would be refused")
    what = f"somebody else speaks as {heard.name}, with key {short(heard.node_key)}"
    return Finding("problem", "peers", what, "pin the right key in node.key, or take another name")


def _clocks(gaps_s: dict[str, float]) -> Finding:
    name, gap_s = max(gaps_s.items(), key=lambda pair: abs(pair[1]))
    if abs(gap_s) < _CLOCK_WARNING_S:
        return Finding("ok", "peers' clocks", f"within {max(1.0, abs(gap_s)):.0f} s of this one")
    what = f"that of {name} is {abs(gap_s):.0f} s {'ahead' if gap_s > 0 else 'behind'}"
    verdict: Verdict = "problem" if abs(gap_s) > _CLOCK_PROBLEM_S else "warning"
    return Finding(verdict, "peers' clocks", what, "set the wrong one (`timedatectl set-ntp true`)")


def _listening_link(case: Case) -> Link | None:
    """A link that only listens; None where nobody is on this machine's own port."""
    swarm, run_id = case.run.swarm, case.run_id.hex()
    tls = None if swarm.tls is None else Path(swarm.tls)
    name = case.nodes[0].name
    if swarm.transport == "nats":
        from motet.swarm.engines.nats_link import NatsLink

        return NatsLink(
            name,
            run_id,
            servers=swarm.connect,
            tls=tls,
            keep_rounds=case.run.kept_rounds,
            max_message_bytes=case.run.message_bytes,
        )
    from motet.swarm.engines.zenoh_link import ZenohLink

    if swarm.listen or swarm.connect:
        free = [text for text in swarm.listen if _is_free(text)]
        return ZenohLink(name, run_id, listen=free, connect=swarm.connect, tls=tls)
    port = case.run.embedded_port
    assert port is not None
    address = Address("tcp", _LOOPBACK, port)
    return None if _why_not_bound(address) is None else ZenohLink(name, run_id, connect=(str(address),), tls=tls)


def _is_free(text: str) -> bool:
    (address,) = parse_addresses((text,), where="swarm.listen", listens=True)
    return _why_not_bound(address) is None


def _why_not_bound(address: Address) -> tuple[str, str] | None:
    """Why nothing can listen there, and what to do; None if it can."""
    kind = socket.SOCK_DGRAM if address.protocol == "quic" else socket.SOCK_STREAM
    try:
        found = socket.getaddrinfo(address.host, address.port, type=kind, flags=socket.AI_PASSIVE)
    except OSError as error:
        return f"no such host ({error.strerror or error})", "give an address of this machine, or 0.0.0.0 for all"
    family, kind, _, _, place = found[0]
    try:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            if kind == socket.SOCK_STREAM:
                probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "in use by another process", "fine if that is this run; otherwise take another port, or stop it"
        if error.errno == errno.EADDRNOTAVAIL:
            return "this machine has no such address", "use one of its own, or 0.0.0.0 for all"
        if error.errno in (errno.EACCES, errno.EPERM):
            return "not permitted", "take a port from 1024 up"
        return error.strerror or str(error), "take another address"
    return None


def _reach(address: Address, tls: Path | None) -> Finding:
    if address.protocol == "quic":
        return Finding("warning", ADDRESS, f"{address} is UDP, which shows nothing before a node speaks")
    began = time.monotonic()
    try:
        with socket.create_connection((address.host, address.port), timeout=CONNECT_S) as connection:
            took = f"{1000 * (time.monotonic() - began):.0f} ms"
            if not address.is_encrypted:
                return Finding("ok", ADDRESS, f"{address} answers ({took})")
            if tls is not None and (version := _handshake(connection, address, tls)) is not None:
                return Finding("ok", ADDRESS, f"{address} answers ({took}), {version} with its certificate and ours")
    except OSError:
        pass  # the reason is looked for below
    return Finding("problem", ADDRESS, f"{address}: {plain(why_unreachable(address, tls, timeout_s=CONNECT_S))}")


def _handshake(connection: socket.socket, address: Address, tls: Path) -> str | None:
    """The version of TLS that both ends agree on; None if they do not, or one does not believe the other."""
    try:
        context = ssl.create_default_context(cafile=str(tls / "ca.pem"))
        context.load_cert_chain(str(tls / "node.pem"), str(tls / "node.key"))
        with context.wrap_socket(connection, server_hostname=address.host) as secured:
            secured.settimeout(_ALERT_S)  # under TLS 1.3 the other end says afterwards that it does not like us
            with contextlib.suppress(TimeoutError):
                if not secured.recv(1):
                    return None
            return secured.version()
    except (OSError, ValueError):
        return None


def _nats_server(text: str) -> Finding:
    """A NATS server greets first, with a line that begins with INFO."""
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        host, port = parts.hostname or "", parts.port or _NATS_PORT
    except ValueError as error:
        return Finding("problem", ADDRESS, f"{text}: no address ({error})", 'write it as "nats://host:4222"')
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S) as connection:
            greeting = connection.recv(4)
    except OSError as error:
        what = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        todo = "see whether the server runs, and whether a firewall lets its port through"
        return Finding("problem", ADDRESS, f"{text}: {what}", todo)
    if greeting != b"INFO":
        return Finding("problem", ADDRESS, f"{text}: something answers, but no NATS server", "check the port")
    return Finding("ok", ADDRESS, f"{text} is a NATS server")
