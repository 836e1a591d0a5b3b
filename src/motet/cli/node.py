"""`motet node FILE --name N`: one node of a run file; the others are other processes, here or elsewhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from motet.cli.options import add_dry_run, add_json, add_run_file, add_set, write_results
from motet.cli.swarm import print_end
from motet.config import RunFile, dump_run_file, load_run_file
from motet.journal import RunDir

if TYPE_CHECKING:
    from motet.simulation import Observer, Outcome


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "node",
        description="Run one node of a run file. It finds the others over the network (swarm.transport = zenoh or "
        "nats), on this machine or on others. The same command continues an interrupted run.",
    )
    add_run_file(parser)
    parser.add_argument("--name", metavar="N", required=True, help="which node of the run file")
    add_set(parser)
    add_dry_run(parser)
    add_json(parser)
    parser.add_argument("--clean", action="store_true", help="delete an earlier run of this node first")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    run_file = load_run_file(args.file, args.set)
    if args.dry_run:
        print(dump_run_file(run_file), end="")
        return 0
    return run_node(run_file, args.name, json_path=args.json, clean=args.clean)


def run_node(run_file: RunFile, name: str, *, json_path: Path | None = None, clean: bool = False) -> int:
    """Train one node of a run file, and print how it went.

    Args:
        run_file: the settings.
        name: which node.
        json_path: where the summary is written as well.
        clean: delete an earlier run first.

    Raises:
        MotetError: see `motet.simulation.run_member`.
    """
    run_dir = _train(run_file, name, clean=clean)
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    if json_path is not None:
        write_results(json_path, summary)
    print_end(summary, run_dir)
    return 0


def node_dir(run_file: RunFile, name: str) -> Path:
    """Where the run of a node by itself lies."""
    return Path(run_file.run.dir) / f"{run_file.run.name}-{name}"


def _train(run_file: RunFile, name: str, *, clean: bool) -> RunDir:
    from motet.cli.training import train

    path = node_dir(run_file, name)

    def play(observer: Observer, should_stop: Callable[[], bool]) -> Outcome:
        from motet.node import seat_of
        from motet.simulation.member import run_member

        return run_member(seat_of(run_file, name), path, observer=observer, should_stop=should_stop)

    return train(path, run_file, play, clean=clean)
