"""`motet swarm FILE`: all nodes of a run file on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from motet.cli.options import add_dry_run, add_json, add_run_file, add_set, write_results
from motet.config import RunFile, dump_run_file, load_run_file
from motet.journal import RunDir, read_jsonl

if TYPE_CHECKING:
    from motet.simulation import Observer, Outcome

_WORDS: Final = {
    "test": "held-out",
    "ood": "OOD",
    "test_greedy": "held-out, greedy",
    "ood_greedy": "OOD, greedy",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "swarm",
        description="Run all nodes of a run file on this machine: in one process, or each in a process of its own with "
        "--set swarm.transport=pipes (or zenoh, as between machines). The same command continues an interrupted run.",
    )
    add_run_file(parser)
    add_set(parser)
    add_dry_run(parser)
    add_json(parser)
    parser.add_argument("--clean", action="store_true", help="delete an earlier run of this name first")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    run_file = load_run_file(args.file, args.set)
    if args.dry_run:
        print(dump_run_file(run_file), end="")
        return 0
    run_dir = _train(run_file, clean=args.clean)
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    if args.json is not None:
        write_results(args.json, summary)
    print_end(summary, run_dir)
    return 0


def _train(run_file: RunFile, *, clean: bool) -> RunDir:
    from motet.cli.training import train

    def play(observer: Observer, should_stop: Callable[[], bool]) -> Outcome:
        from motet.simulation import run_swarm

        return run_swarm(run_file, observer=observer, should_stop=should_stop)

    return train(Path(run_file.run.dir) / run_file.run.name, run_file, play, clean=clean)


def print_end(summary: dict[str, object], run_dir: RunDir) -> None:
    """Accuracy before and after of each node, and where everything is."""
    from rich.table import Table

    from motet.cli.console import make_console

    table = Table(box=None, pad_edge=False)
    for title in ("node", "model", "% right", "before", "after", "generated", "bytes/token"):
        table.add_column(title, no_wrap=title != "model", overflow="fold")  # a model's name may be a long path
    nodes = summary["nodes"]
    assert isinstance(nodes, dict)
    for name, node in nodes.items():
        for split, ends in node["accuracy"].items():
            table.add_row(
                name,
                node["model"],
                _WORDS[split],
                percent(ends["start"]["value"], ends["start"]["se"]),
                percent(ends["end"]["value"], ends["end"]["se"]),
                f"{node['completions_generated']:,}",
                "-" if node["bytes_per_token"] is None else f"{node['bytes_per_token']:.1f}",
            )
    make_console().print(table)
    for event in read_jsonl(run_dir.events):
        if event.get("kind") == "unscored":
            print(f"note     node {event['node']}: completions without a score, the first: {event['text']}")
        elif event.get("kind") == "warning":
            print(f"note     {event['text']}")
    print(f"models   {run_dir.path / 'models'}")
    print(f"report   motet report {run_dir.path}")
    sys.stdout.flush()


def percent(value: float, se: float) -> str:
    """An accuracy with its standard error, in percent; the sign stands in the table's head.

    >>> percent(0.4321, 0.015)
    '43.2 +- 1.5'
    """
    return f"{100 * value:.1f} +- {100 * se:.1f}"
