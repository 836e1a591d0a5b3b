"""`motet watch`: how a run goes, from its directory while others write it, or from what is heard at an address."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from motet.cli.main import Terminated
from motet.cli.options import add_set
from motet.cli.watch_files import WatchedRun
from motet.cli.watch_now import RunNow, look
from motet.cli.watch_runs import find_runs
from motet.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from motet.cli.watch_heard import HeardNow
    from motet.cli.watch_live import Place

_SHORTEST_S: Final = 0.1
_SAY_EVERY_S: Final = 30.0


class _Now(Protocol):
    @property
    def finished(self) -> bool: ...


_Seen = TypeVar("_Seen", bound=_Now)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "watch",
        description="Show how a run goes on. From its directory: who does what and waits for whom, who learns, and "
        "what was accepted of each. From a run file or an address: who is heard there, and how far they are; nobody "
        "notices the listener. On a terminal a table that is redrawn, in a pipe one line of key=value for each change. "
        "Ends with the run, or with Ctrl-C; the run goes on.",
    )
    parser.add_argument(
        "what",
        metavar="RUN|FILE|ADDRESS",
        nargs="+",
        help="run directory, several of the nodes of one run (runs/sums-*), or the folder in which they lie; a run "
        "file, to listen on its network; or addresses to listen at: tcp/host:7447, tls/host:7447, nats://host:4222",
    )
    parser.add_argument("--all", action="store_true", help="of a folder, also directories in which the run has ended")
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="at an address, only this run: first 8 digits of its id, or its name, for one of seed 0 without authority",
    )
    parser.add_argument(
        "--tls", metavar="FOLDER", type=Path, help="at an address: certificates, as of `motet keys issue`"
    )
    add_set(parser)
    parser.add_argument("--once", action="store_true", help="show it once, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each look instead")
    parser.add_argument("--interval", metavar="S", type=_seconds, default=1.0, help="seconds between two looks [1]")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    try:
        place = _place(args)
        if place is None:
            _watch_directories(args)
        else:
            _watch_network(place, args)
    except Terminated:
        raise
    except KeyboardInterrupt:
        return 0  # the way to stop looking
    return 0


def _place(args: argparse.Namespace) -> Place | None:
    """Where to listen; None for directories.

    Raises:
        UsageError: E-WATCH-01, things of different kinds, or flags of another kind.
    """
    from motet.cli.watch_live import is_address, is_run_file, place_of_addresses, place_of_file

    addresses = [text for text in args.what if is_address(text)]
    files = [text for text in args.what if is_run_file(text)]
    if (addresses or files) and len(args.what) != max(len(addresses), min(len(files), 1)):
        raise UsageError("watch shows run directories, or one run file, or addresses; not several", code="E-WATCH-01")
    kind = "an address" if addresses else "a run file" if files else "run directories"
    flags = {"--run": (args.run, addresses), "--tls": (args.tls, addresses), "--set": (args.set, files)}
    for flag, (value, fits) in flags.items():
        if value and not fits:
            raise UsageError(f"{flag} means nothing for {kind}; see `motet watch --help`", code="E-WATCH-01")
    if addresses:
        return place_of_addresses(addresses, args.tls)
    return place_of_file(files[0], args.set) if files else None


def _watch_directories(args: argparse.Namespace) -> None:
    from motet.cli.watch_view import lines_of, table_of

    found = find_runs(args.what, every=args.all)
    watched = [WatchedRun(run_dir) for run_dir in found.run_dirs]

    def see() -> RunNow:
        for one in watched:
            one.refresh()
        return look(watched, now_s=time.time(), left_out=found.left_out)

    before: list[RunNow | None] = [None]

    def say(now: RunNow) -> None:
        for line in lines_of(now, before[0]):
            print(line, flush=True)
        before[0] = now

    _show(see, args, say=say, table=table_of)


def _watch_network(place: Place, args: argparse.Namespace) -> None:
    from motet.cli.watch_heard_view import table_of
    from motet.cli.watch_live import listening

    with listening(place, args.run, once=args.once) as ears:
        _show(ears.look, args, say=_HeardLines(), table=table_of)


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


def _show(
    see: Callable[[], _Seen],
    args: argparse.Namespace,
    *,
    say: Callable[[_Seen], None],
    table: Callable[[_Seen], RenderableType],
) -> None:
    """Once, or until it is finished: as JSON, as a table that is drawn anew, or as lines."""
    if args.once:
        (_as_json if args.json else _as_table(table))(see())
    elif not args.json and _is_screen():
        _redraw(see, table, interval_s=args.interval)
    else:
        _follow(see, _as_json if args.json else say, interval_s=args.interval)


def _as_json(now: object) -> None:
    print(json.dumps(asdict(now), allow_nan=False), flush=True)  # type: ignore[call-overload]  # a dataclass


def _as_table(table: Callable[[_Seen], RenderableType]) -> Callable[[_Seen], None]:
    from motet.cli.console import make_console

    return lambda now: make_console().print(table(now))


class _HeardLines:
    """Prints what has changed since the last look, and now and then how it stands."""

    def __init__(self) -> None:
        from motet.cli.watch_heard_view import ONLY_IN_DIRECTORIES

        self._before: HeardNow | None = None
        self._said_s = 0.0
        print(ONLY_IN_DIRECTORIES, file=sys.stderr, flush=True)

    def __call__(self, now: HeardNow) -> None:
        """One look."""
        from motet.cli.watch_heard_view import lines_of, still_there

        for line in lines_of(now, self._before):
            print(line, flush=True)
        if now.listening_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now.listening_s
            for line in still_there(now):
                print(line, flush=True)
        self._before = now


def _follow(see: Callable[[], _Seen], show: Callable[[_Seen], None], *, interval_s: float) -> None:
    while True:
        now = see()
        show(now)
        if now.finished:
            return
        time.sleep(interval_s)


def _redraw(see: Callable[[], _Seen], table: Callable[[_Seen], RenderableType], *, interval_s: float) -> None:
    from rich.live import Live

    from motet.cli.console import make_console

    now = see()
    with Live(table(now), console=make_console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while not now.finished:
            time.sleep(interval_s)
            now = see()
            live.update(table(now), refresh=True)
