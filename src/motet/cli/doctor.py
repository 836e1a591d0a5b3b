"""`motet doctor FILE`: everything that can be known to go wrong, before anything heavy starts."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from motet.cli.doctor_checks import QUICK, Case, Check, Finding
from motet.cli.options import add_run_file, add_set
from motet.cli.strangers import plain
from motet.config import RunFile, load_run_file
from motet.errors import MotetError, UsageError
from motet.swarm.identity.keyring import Keyring

if TYPE_CHECKING:
    from rich.console import Console

EXIT_PROBLEM = 3
_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "doctor",
        description="Check a run file and this machine before anything heavy starts: keys, certificates, clock, "
        "network, peers, packages, disk, memory, task and models. One line each; exit code 3 if there is a problem. "
        "Nothing is changed, sent or downloaded.",
    )
    add_run_file(parser)
    parser.add_argument("--name", metavar="N", help="the node that runs on this machine [all of the run file]")
    add_set(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead of lines")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    findings = []
    printer = None if args.json else Printer()
    for finding in examine_file(args.file, args.set, args.name):
        findings.append(finding)
        if printer is not None:
            printer.show(finding)
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in _COLOURS}
    if args.json:
        print(json.dumps({"file": str(args.file), "counts": counts, "findings": [asdict(one) for one in findings]}))
    else:
        print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return EXIT_PROBLEM if counts["problem"] else 0


def examine_file(file: Path, overrides: Sequence[str], name: str | None) -> Iterator[Finding]:
    """Everything that is found, as it is found. Mistakes in the file itself end the examination."""
    try:
        run_file = load_run_file(file, overrides)
        case = case_of(run_file, name)
    except UsageError as error:
        for line in str(error).splitlines():
            yield Finding("problem", "run file", line, f"`motet explain {error.code}` says more")
        return
    yield from examine(case, QUICK)
    from motet.cli.doctor_models import MODELS, warm_up

    threading.Thread(target=warm_up, name="imports", daemon=True).start()
    if run_file.is_networked:
        yield from _network(case)
    yield from examine(case, MODELS)


def _network(case: Case) -> Iterator[Finding]:
    """Peers are only listened for where there is a way to them."""
    from motet.cli.doctor_network import ADDRESS, check_addresses, check_peers, check_ports

    is_reachable = True
    for finding in examine(case, (check_ports, check_addresses)):
        is_reachable &= finding.verdict != "problem" or finding.subject != ADDRESS
        yield finding
    if not is_reachable:
        yield Finding("warning", "peers", "not listened for, as no address answers")
    else:
        yield from examine(case, (check_peers,))


def case_of(run_file: RunFile, name: str | None) -> Case:
    """What is examined: one node of the run file, or all.

    Raises:
        UsageError: E-NODE-01, the run file has no node of this name.
    """
    nodes = tuple(node for node in run_file.node if name in (None, node.name))
    if not nodes:
        known = ", ".join(node.name for node in run_file.node)
        raise UsageError(f'--name: the run file has no node "{name}"; it has {known}', code="E-NODE-01")
    return Case(run_file, nodes, Keyring.of_run(run_file.run.name))


def examine(case: Case, checks: Sequence[Check]) -> Iterator[Finding]:
    """What these checks find; what one of them could not get over is a problem of its own."""
    for check in checks:
        try:
            yield from check(case)
        except MotetError as error:
            subject = check.__name__.removeprefix("check_").replace("_", " ")
            yield Finding("problem", subject, str(error), f"`motet explain {error.code}` says more")


class Printer:
    """Prints a line for each finding, coloured on a terminal."""

    def __init__(self, *, stderr: bool = False) -> None:
        from motet.cli.console import make_console

        self._console: Console = make_console(stderr=stderr)

    def show(self, finding: Finding) -> None:
        """Print one."""
        from rich.text import Text

        todo = f"; {finding.todo}" if finding.todo else ""
        line = Text(f"{finding.verdict:<8}", style=_COLOURS[finding.verdict])
        line.append(f" {plain(finding.subject, 40):<14} {plain(finding.what + todo, 600)}", style="default")
        self._console.print(line, soft_wrap=True)
