"""`motet explain CODE`: what an error code means, why it comes up, and what to do."""

from __future__ import annotations

import argparse
import difflib
import textwrap

from motet.cli.catalogue import CATALOGUE
from motet.errors import UsageError

WIDTH = 88


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "explain", description="Say what an error code means and what to do. Without a code: list them all."
    )
    parser.add_argument("code", metavar="CODE", nargs="?", help="the code in brackets, such as E-CONFIG-03")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    if args.code is None:
        print("\n".join(f"{code:<16} {entry.title}" for code, entry in CATALOGUE.items()))
        return 0
    code = args.code.strip("[]").upper()
    if code not in CATALOGUE:
        nearest = difflib.get_close_matches(code, CATALOGUE, n=3)
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        raise UsageError(f"no error code {args.code}{hint} (`motet explain` lists all)", code="E-CLI-03")
    entry = CATALOGUE[code]
    print(f"{code}: {entry.title}")
    for heading, text in (("What", entry.happened), ("Why", entry.why), ("Do this", entry.todo)):
        print(textwrap.fill(text, WIDTH, initial_indent=f"{heading:<9}", subsequent_indent=" " * 9))
    return 0
