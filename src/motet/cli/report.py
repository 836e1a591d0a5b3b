"""`motet report RUN...`: one HTML page and one picture of a run, or of several beside each other."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from motet.errors import UsageError
from motet.journal import RunDir


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the verb to the command line."""
    parser = subparsers.add_parser(
        "report",
        help="write a page and a picture of one run, or of several beside each other",
        description="Reads run directories, finished or interrupted, and says what they came to: held-out accuracy "
        "with its standard error, beside training alone where such a run is given.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="directory of a run")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="the page (default: report.html beside the run)"
    )
    parser.add_argument("--png", metavar="FILE", type=Path, help="the picture (default: report.png beside the page)")
    parser.add_argument("--md", metavar="FILE", type=Path, help="verdict and tables as Markdown")
    parser.add_argument("--json", metavar="FILE", type=Path, help="the numbers as JSON")


def run(args: argparse.Namespace) -> int:
    """Writes the report; prints the verdict and where it lies."""
    html = args.output or _default_page(args.runs)
    png = args.png or html.with_suffix(".png")
    _refuse_same_file(html, png, args.md, args.json)
    from motet.reports import render_markdown, write_report

    try:
        comparison = write_report(args.runs, html=html, png=png)
        if args.md is not None:
            args.md.parent.mkdir(parents=True, exist_ok=True)
            args.md.write_text(render_markdown(comparison), encoding="utf-8")
        if args.json is not None:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(comparison.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{error.filename or html}: cannot be read or written ({error.strerror}); "
            "choose other files with -o, --png, --md and --json",
            code="E-REPORT-03",
        ) from error
    print(_printable(comparison.verdict))
    for note in comparison.notes:
        print(_printable(f"  note: {note}"))
    for words, path in (("page", html), ("picture", png), ("tables", args.md), ("numbers", args.json)):
        if path is not None and path.exists():
            print(f"  {words}: {path}")
    return 0


def _printable(text: str) -> str:
    """Without control characters: a run of a stranger's may name its nodes to steer the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _default_page(runs: list[Path]) -> Path:
    """In the run's directory; for several, in the folder that holds them all."""
    if len(runs) == 1:
        return RunDir(runs[0]).report_html
    return Path(os.path.commonpath([run.resolve().parent for run in runs])) / "report.html"


def _refuse_same_file(*paths: Path | None) -> None:
    given = [path.resolve() for path in paths if path is not None]
    if len(set(given)) < len(given):
        raise UsageError("-o, --png, --md and --json name the same file; give each its own", code="E-REPORT-04")
