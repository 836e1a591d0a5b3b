"""`motet watch RUN`: how a run goes, from its directory, while others write it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from motet.cli.main import Terminated
from motet.cli.strangers import plain
from motet.cli.watch_files import WatchedRun
from motet.cli.watch_now import RunNow, look
from motet.errors import UsageError
from motet.journal import RunDir

_SHORTEST_S = 0.1
_ADDRESSES = ("tcp/", "tls/", "quic/", "udp/", "nats://", "tls://")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "watch",
        description="Show how a run goes on: who does what and waits for whom, who learns, and what was accepted of "
        "each. On a terminal a table that is redrawn, in a pipe one line of key=value for each change. Ends with the "
        "run, or with Ctrl-C; the run goes on.",
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        type=Path,
        help="run directory, several of the nodes of one run (runs/sums-*), or the folder in which they lie",
    )
    parser.add_argument("--once", action="store_true", help="show it once, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each look instead")
    parser.add_argument("--interval", metavar="S", type=_seconds, default=1.0, help="seconds between two looks [1]")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    watched = [WatchedRun(run_dir) for run_dir in find_runs(args.runs)]

    def see() -> RunNow:
        for one in watched:
            one.refresh()
        return look(watched, now_s=time.time())

    if args.once:
        (_as_json if args.json else _as_table)(see())
        return 0
    try:
        if not args.json and _is_screen():
            _redraw(see, interval_s=args.interval)
        else:
            _follow(see, _as_json if args.json else _Lines(), interval_s=args.interval)
    except Terminated:
        raise
    except KeyboardInterrupt:
        return 0  # the way to stop looking
    return 0


def find_runs(paths: Sequence[Path]) -> list[RunDir]:
    """The directories of one run: those named, or those of a folder.

    A folder with several runs stands for the one that was written last. A name without a directory of its own stands
    for those of its nodes, `<name>-<node>`.

    Raises:
        UsageError: E-RUN-02, not a run; E-WATCH-01, an address; E-WATCH-02, directories of different runs.
    """
    found: list[RunDir] = []
    for path in paths:
        if str(path).startswith(_ADDRESSES):
            raise UsageError(
                f"{path}: an address, and watch reads run directories; run it where a node runs: motet watch RUN",
                code="E-WATCH-01",
            )
        found += _runs_at(path)
    unique = [RunDir(path) for path in dict.fromkeys(run_dir.path.resolve() for run_dir in found)]
    names = sorted({_run_name(run_dir) for run_dir in unique})
    if len(names) > 1:
        raise UsageError(
            f"{plain(', '.join(names))}: different runs; watch shows one at a time, with all its nodes",
            code="E-WATCH-02",
        )
    return unique


def _runs_at(path: Path) -> list[RunDir]:
    if (path / "run.json").is_file():
        return [RunDir.open(path)]
    if path.is_dir():
        inside = _runs_in(path, "*")
        if inside:
            newest = _run_name(max(inside, key=_written))
            return [run_dir for run_dir in inside if _run_name(run_dir) == newest]
    elif path.parent.is_dir() and path.name:
        inside = [
            run_dir for run_dir in _runs_in(path.parent, f"{_literal(path.name)}-*") if _run_name(run_dir) == path.name
        ]
        if inside:
            return inside
    return [RunDir.open(path)]  # says what is wrong


def _runs_in(folder: Path, pattern: str) -> list[RunDir]:
    entries = sorted(entry for entry in folder.glob(pattern) if (entry / "run.json").is_file())
    return [RunDir.open(entry) for entry in entries]


def _literal(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _run_name(run_dir: RunDir) -> str:
    one = WatchedRun(run_dir)
    one.read_config()
    return one.name


def _written(run_dir: RunDir) -> float:
    """When anything of the run was last written."""
    files = (run_dir.info, run_dir.metrics, run_dir.events, *(run_dir.path / "peers").glob("*.json"))
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_S <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: seconds, {_SHORTEST_S} or more")
    return seconds


def _is_screen() -> bool:
    from motet.cli.console import make_console

    return sys.stdout.isatty() and not make_console().is_dumb_terminal


def _as_json(now: RunNow) -> None:
    print(json.dumps(asdict(now), allow_nan=False), flush=True)


def _as_table(now: RunNow) -> None:
    from motet.cli.console import make_console
    from motet.cli.watch_view import table_of

    make_console().print(table_of(now))


class _Lines:
    """Prints what has changed since the last look."""

    def __init__(self) -> None:
        self._before: RunNow | None = None

    def __call__(self, now: RunNow) -> None:
        from motet.cli.watch_view import lines_of

        for line in lines_of(now, self._before):
            print(line, flush=True)
        self._before = now


def _follow(see: Callable[[], RunNow], show: Callable[[RunNow], None], *, interval_s: float) -> None:
    while True:
        now = see()
        show(now)
        if now.finished:
            return
        time.sleep(interval_s)


def _redraw(see: Callable[[], RunNow], *, interval_s: float) -> None:
    from rich.live import Live

    from motet.cli.console import make_console
    from motet.cli.watch_view import table_of

    now = see()
    with Live(table_of(now), console=make_console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while not now.finished:
            time.sleep(interval_s)
            now = see()
            live.update(table_of(now), refresh=True)
