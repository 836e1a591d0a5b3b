"""`motet relay FILE`: carry the messages of nodes that cannot reach one another."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from motet.cli.console import can_redraw, make_console
from motet.cli.options import add_run_file, add_set
from motet.config import RunFile, load_run_file
from motet.errors import UsageError

if TYPE_CHECKING:
    from motet.swarm.engines.zenoh_relay import Guest, ZenohRelay

_LOOK_EVERY_S: Final = 2.0
_MOST_NAMED: Final = 8


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "relay",
        description="Carry the messages of a swarm between nodes that cannot reach one another, until Ctrl-C or "
        "SIGTERM. It needs no model and no GPU. Without --listen it takes the ports of swarm.connect, on every address "
        "of this machine. Without --members it carries any run; with them it lets each node speak under its own name "
        "only, by the names in their certificates.",
    )
    add_run_file(parser)
    add_set(parser)
    parser.add_argument("--listen", metavar="A", nargs="+", default=[], help="addresses, such as tls/0.0.0.0:7447")
    parser.add_argument("--connect", metavar="A", nargs="+", default=[], help="addresses of other relays of the swarm")
    parser.add_argument("--members", metavar="NAME", nargs="+", help="nodes that may take part; needs swarm.tls")
    parser.add_argument("--relays", metavar="NAME", nargs="+", default=[], help="with --members: names of other relays")


def run(args: argparse.Namespace) -> int:
    """Carry it out. Ending it is the way in which it ends: Ctrl-C and SIGTERM give exit code 0."""
    run_file = load_run_file(args.file, args.set)
    relay = _make_relay(run_file, args)
    with closing(relay):
        relay.open()
        for address in relay.addresses():
            print(f"relay    {address}")
        print(f"carries  {_carried(args.members, run_file)}", flush=True)
        try:
            _watch(relay, run_file.run.name)
        except KeyboardInterrupt:
            print("relay stopped", file=sys.stderr)
    return 0


def _make_relay(run_file: RunFile, args: argparse.Namespace) -> ZenohRelay:
    from motet.swarm.engines.zenoh_relay import ZenohRelay

    if run_file.swarm.transport != "zenoh":
        raise UsageError(
            f'{args.file}: swarm.transport is "{run_file.swarm.transport}"; a relay carries "zenoh"', code="E-RELAY-01"
        )
    listen = args.listen or _ports_of(run_file.swarm.connect)
    if not listen:
        raise UsageError(
            f"{args.file}: no address to listen on; name one with --listen tcp/0.0.0.0:7447, or the relay's address in "
            "swarm.connect",
            code="E-RELAY-01",
        )
    tls = None if run_file.swarm.tls is None else Path(run_file.swarm.tls)
    return ZenohRelay(listen, connect=args.connect, tls=tls, members=args.members, relays=args.relays)


def _ports_of(connect: Sequence[str]) -> list[str]:
    """The ports that nodes are told to connect to, on every address of this machine."""
    from motet.swarm.engines.addresses import Address, parse_addresses

    addresses = parse_addresses(connect, where="swarm.connect")
    return list(dict.fromkeys(str(Address(address.protocol, "0.0.0.0", address.port)) for address in addresses))


def _carried(members: Sequence[str] | None, run_file: RunFile) -> str:
    if members is not None:
        return f"what {', '.join(members)} say, each under its own name"
    if run_file.swarm.tls is not None:
        return "any run, for whoever has a certificate of the CA"
    return "any run, for whoever connects"


def _watch(relay: ZenohRelay, name: str) -> None:
    """Say who is connected: on a terminal again and again, in a pipe when it changes. Until a signal comes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let jobs in the background ignore it
    never = threading.Event()
    if can_redraw():
        with make_console(stderr=True).status(_told(relay.guests())) as status:
            while not never.wait(_LOOK_EVERY_S):
                status.update(_told(relay.guests()))
    before: set[Guest] | None = None
    while True:
        guests = relay.guests()
        if set(guests) != before:
            before = set(guests)
            print(f"relay={name} {_as_pairs(guests)}", file=sys.stderr, flush=True)
        never.wait(_LOOK_EVERY_S)


def _told(guests: Sequence[Guest]) -> str:
    if not guests:
        return "nobody is connected"
    nodes = [guest.certificate_name or guest.address for guest in guests if not guest.is_relay]
    relays = [guest.certificate_name or guest.address for guest in guests if guest.is_relay]
    more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    parts = [f"{len(nodes)} connected: {', '.join(nodes[:_MOST_NAMED])}{more}"] if nodes else []
    return "; ".join([*parts, *([f"relays: {', '.join(relays)}"] if relays else [])])


def _as_pairs(guests: Sequence[Guest]) -> str:
    nodes = ",".join(guest.certificate_name or guest.address for guest in guests if not guest.is_relay)
    relays = ",".join(guest.certificate_name or guest.address for guest in guests if guest.is_relay)
    return f"nodes={nodes or '-'} relays={relays or '-'}"
