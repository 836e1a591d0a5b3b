"""`motet swarm FILE`: all nodes of a run file in this process."""

from __future__ import annotations

import argparse

from motet.cli.options import add_dry_run, add_run_file, add_set
from motet.config import dump_run_file, load_run_file
from motet.errors import UsageError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("swarm", description="Run all nodes of a run file in this process.")
    add_run_file(parser)
    add_set(parser)
    add_dry_run(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    run_file = load_run_file(args.file, args.set)
    if not args.dry_run:
        raise UsageError("motet swarm: only --dry-run so far", code="E-CLI-02")
    print(dump_run_file(run_file), end="")
    return 0
