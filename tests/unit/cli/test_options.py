from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from motet.cli.options import add_dry_run, add_json, add_run_file, add_set


def parser() -> ArgumentParser:
    parser = ArgumentParser()
    for add in (add_run_file, add_set, add_dry_run, add_json):
        add(parser)
    return parser


def test_flags() -> None:
    args = parser().parse_args(["f.toml", "--set", "a.b=1", "--set", "c.d=2", "--dry-run", "--json", "out.json"])
    assert (args.file, args.set, args.dry_run, args.json) == (
        Path("f.toml"),
        ["a.b=1", "c.d=2"],
        True,
        Path("out.json"),
    )


def test_defaults_are_not_shared_between_calls() -> None:
    first = parser().parse_args(["f.toml", "--set", "a.b=1"])
    second = parser().parse_args(["f.toml"])
    assert first.set == ["a.b=1"]
    assert (second.set, second.dry_run, second.json) == ([], False, None)
