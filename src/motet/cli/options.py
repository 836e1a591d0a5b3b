"""Flags that several verbs share, so that they are spelled and described alike."""

from __future__ import annotations

import argparse
import json
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


def add_json(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """`--json FILE`, as `args.json`; `write_results` carries it out. A verb's part takes `argparse.SUPPRESS`."""
    parser.add_argument("--json", metavar="FILE", type=new_file, default=default, help="also write the results as JSON")


def write_results(path: Path, results: object) -> None:
    """Write what `--json` asks for; its folder is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def at_least_one(text: str) -> int:
    """A type of arguments: whole numbers from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: a whole number from 1 up")
    return int(text)


def new_folder(text: str) -> Path:
    """A type of arguments: a folder, or a path that can become one."""
    path = Path(text)
    if any(place.exists() and not place.is_dir() for place in (path, *path.parents)):
        raise argparse.ArgumentTypeError(f"{text} is no folder; name another")
    return path


def new_file(text: str) -> Path:
    """A path that can become a file: said before the work, not after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    new_folder(str(path.parent))
    return path
