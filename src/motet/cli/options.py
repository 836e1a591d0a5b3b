"""Flags that several verbs share, so that they are spelled and described alike."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_run_file(parser: argparse.ArgumentParser) -> None:
    """`FILE`, as `args.file`."""
    parser.add_argument("file", metavar="FILE", type=Path, help="run file (TOML); `motet init` writes one")


def add_set(parser: argparse.ArgumentParser) -> None:
    """`--set section.key=value`, repeatable, as `args.set`."""
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change a setting, such as rollout.group_size=16 or node.small.model=tiny:large; repeatable",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`, as `args.dry_run`."""
    parser.add_argument("--dry-run", action="store_true", help="print the run file with every setting, and stop")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json FILE`, as `args.json`."""
    parser.add_argument("--json", metavar="FILE", type=Path, default=None, help="also write the results as JSON")
