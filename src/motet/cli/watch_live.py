"""`motet watch` at an address: listens to the heartbeats of nodes, is no node itself, and asks and answers nobody."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from motet.cli.strangers import plain
from motet.cli.watch_heard import ID_DIGITS, Audience, HeardNow
from motet.config import RunFile, load_run_file
from motet.errors import MotetError, SwarmUnreachable, UsageError
from motet.swarm.engines.acl import ANY_RUN
from motet.swarm.engines.addresses import Address, parse_addresses
from motet.swarm.engines.links import Link
from motet.swarm.identity.keyring import run_id_of

ONCE_S: Final = 5.0
"""So long `--once` waits for somebody to be heard."""

_ADDRESS: Final = re.compile(r"(tcp|tls|quic|udp|nats):?/\S+|[A-Za-z0-9._-]+:[0-9]+")
_SOME_ID: Final = re.compile(rf"[0-9a-f]{{{ID_DIGITS},32}}")
_NAME: Final = "watch"
_PATIENCE_S: Final = 15.0
_PAUSE_S: Final = 0.5
_A_BEAT_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen.

    Attributes:
        transport: the engine.
        addresses: of nodes, relays or servers.
        tls: folder of certificates.
        run: the run file, if that is what was given.
    """

    transport: Literal["zenoh", "nats"]
    addresses: tuple[str, ...]
    tls: Path | None
    run: RunFile | None = None

    @property
    def run_id(self) -> bytes:
        """Of the run file; empty without one."""
        return b"" if self.run is None else run_id_of(self.run.run.name, self.run.run.seed, self.run.swarm.authority)


def is_address(text: str) -> bool:
    """True for what is meant as an address of the network.

    >>> is_address("tcp/127.0.0.1:7447"), is_address("nats://hub:4222"), is_address("runs/team")
    (True, True, False)
    """
    return _ADDRESS.fullmatch(text) is not None and not Path(text).exists()


def is_run_file(text: str) -> bool:
    """True for what is meant as a run file."""
    return text.endswith(".toml") and not Path(text).is_dir()


def place_of_file(path: str, overrides: Sequence[str] = ()) -> Place:
    """The network of a run file: the addresses that its nodes connect to, or on this machine listen on.

    Raises:
        UsageError: the file cannot be read, or its nodes do not meet over a network (E-WATCH-01).
    """
    run = load_run_file(path, overrides)
    swarm = run.swarm
    if swarm.transport not in ("zenoh", "nats") or run.trains_alone:
        raise UsageError(
            f"{path}: its nodes do not meet over a network, so there is nothing to listen to; watch their run "
            f"directory: motet watch {Path(run.run.dir) / run.run.name}",
            code="E-WATCH-01",
        )
    addresses = swarm.connect or tuple(swarm.listen)
    if run.embedded_port is not None:
        addresses = (str(Address("tcp", "127.0.0.1", run.embedded_port)),)
    return _place(swarm.transport, addresses, None if swarm.tls is None else Path(swarm.tls), run)


def place_of_addresses(texts: Sequence[str], tls: Path | None) -> Place:
    """Some addresses, with any runs.

    Raises:
        UsageError: E-WATCH-01, addresses of two engines; E-LINK-02, none at all; E-LINK-03, certificates are missing.
    """
    of_nats = [text.startswith(("nats:", "tls:")) for text in texts]
    if any(of_nats) != all(of_nats):
        raise UsageError(
            f"{', '.join(texts)}: addresses of zenoh (tcp/host:port) and of NATS (nats://host:port); one at a time",
            code="E-WATCH-01",
        )
    return _place("nats" if all(of_nats) else "zenoh", tuple(texts), tls, None)


def _place(transport: Literal["zenoh", "nats"], texts: tuple[str, ...], tls: Path | None, run: RunFile | None) -> Place:
    if transport == "nats":
        return Place(transport, texts, tls, run)
    addresses = [_reachable(one) for one in parse_addresses(texts, where="watch" if run is None else "swarm.connect")]
    if run is None and tls is None and (bare := next((one for one in addresses if one.is_encrypted), None)):
        raise UsageError(
            f"{bare}: needs certificates; say --tls FOLDER with one that `motet keys issue` or an invitation has "
            "written, or watch a run file with swarm.tls",
            code="E-LINK-03",
        )
    return Place(transport, tuple(map(str, addresses)), tls, run)


def _reachable(address: Address) -> Address:
    """Where one listens on every address of this machine, one of them."""
    return (
        Address(address.protocol, "::1" if address.host == "::" else "127.0.0.1", address.port)
        if address.is_wildcard
        else address
    )


def audience_of(place: Place, wanted: str | None) -> Audience:
    """Who listens: to the run of the file, to the wanted one, or to any.

    Args:
        place: where.
        wanted: a run's name, or the first digits of its id. By its name alone only a run of seed 0 without an authority
            can be known.
    """
    if place.run is not None:
        return Audience(place.run, place.run_id, names={place.run_id.hex(): place.run.run.name})
    if wanted is None:
        return Audience()
    if _SOME_ID.fullmatch(wanted):
        return Audience(wanted=lambda run_id: run_id.startswith(wanted))
    known = run_id_of(wanted, 0, None).hex()
    return Audience(wanted=lambda run_id: run_id == known, names={known: wanted})


class Listening:
    """A link that only listens; when it fails, it is opened anew.

    Args:
        place: where.
        audience: takes what comes.
    """

    def __init__(self, place: Place, audience: Audience) -> None:
        self._place = place
        self._audience = audience
        self._link = _make_link(place)
        self._began_s = time.monotonic()
        self._fault: str | None = None

    def open(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Connect; whoever should answer may come a little later.

        Raises:
            SwarmUnreachable: nobody answers, with the likely reasons.
            MotetError: what else the engine has to say.
        """
        until_s, told = time.monotonic() + patience_s, False
        while True:
            try:
                self._link.open(inbox=self._audience.hear, answer=None, pushed=False)
                break
            except SwarmUnreachable as error:
                if time.monotonic() >= until_s:
                    raise
                if not told:
                    print(f"{plain(str(error), 600)}; trying for {patience_s:g} s", file=sys.stderr, flush=True)
                    told = True
                time.sleep(_PAUSE_S)
        self._began_s = time.monotonic()

    def look(self) -> HeardNow:
        """How it stands."""
        self._mend()
        swarms, others, refused, events = self._audience.look()
        neighbours = self._link.neighbours() if self._fault is None else []
        return HeardNow(
            addresses=list(self._place.addresses),
            connected_to=[f"{one.address} ({one.kind})" for one in neighbours],
            link_fault=self._fault,
            listening_s=time.monotonic() - self._began_s,
            swarms=swarms,
            other_runs=others,
            refused=refused,
            events=events,
        )

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def _mend(self) -> None:
        if self._fault is None:
            self._fault = self._link.fault()
            if self._fault is None:
                return
            self._link.close()
        try:
            self._link.open(inbox=self._audience.hear, answer=None, pushed=False)
            self._fault = None
        except MotetError as error:
            self._fault = str(error)


@contextlib.contextmanager
def listening(place: Place, wanted: str | None, *, once: bool) -> Iterator[Listening]:
    """Listens at a place, for as long as the block takes.

    Args:
        place: where.
        wanted: which run, where it may be any.
        once: for one look only, so that it waits until somebody was heard, and for no connection that is not there.

    Raises:
        SwarmUnreachable: nobody answers.
    """
    audience = audience_of(place, wanted)
    ears = Listening(place, audience)
    with contextlib.closing(ears):
        ears.open(patience_s=0.0 if once else _PATIENCE_S)
        if once and audience.wait(ONCE_S):
            time.sleep(_A_BEAT_S)  # in which every live node speaks
        yield ears


def _make_link(place: Place) -> Link:
    run_id = ANY_RUN if place.run is None else place.run_id.hex()
    if place.transport == "nats":
        from motet.swarm.engines.nats_link import NatsLink

        return NatsLink(_NAME, run_id, servers=place.addresses, tls=place.tls, keep_rounds=1, max_message_bytes=0)
    from motet.swarm.engines.zenoh_link import ZenohLink

    return ZenohLink(_NAME, run_id, connect=place.addresses, tls=place.tls)
