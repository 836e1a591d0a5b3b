"""`motet node FILE --name N`: one node of a run file; the others are other processes, here or elsewhere."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from motet.cli.options import add_dry_run, add_json, add_run_file, add_set, write_results
from motet.cli.swarm import print_end
from motet.config import RunFile, dump_run_file, load_run_file
from motet.journal import RunDir


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
    from motet.cli.claim import claimed, remove_run
    from motet.cli.progress import make_progress
    from motet.cli.stopping import StopAfterRound

    path = node_dir(run_file, name)
    with claimed(path), StopAfterRound() as stop:
        if clean:
            remove_run(path)
        run_dir = RunDir(path)
        done_before = run_dir.summary.exists()
        with make_progress(run_dir) as progress:
            from motet.node import seat_of  # takes seconds, in which something should be seen
            from motet.simulation.member import run_member

            outcome = run_member(seat_of(run_file, name), path, observer=progress, should_stop=lambda: stop.asked)
        if done_before:
            print(f"{path} was finished before; --clean deletes it and trains anew", file=sys.stderr)
        if not outcome.finished:
            stop.raise_stopped(
                f"after round {outcome.rounds_done} of {run_file.run.rounds}; the same command resumes from there"
            )
    return run_dir
