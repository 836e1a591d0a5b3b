"""Which run directories `motet watch` shows: those that are named, or in a folder those of the run that goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from motet.cli.strangers import plain
from motet.cli.watch_files import WatchedRun
from motet.errors import UsageError
from motet.journal import RunDir

_LATELY_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be watched.

    Attributes:
        run_dirs: directories of one run.
        left_out: names of others of the same run and folder, in which nothing happens any more.
    """

    run_dirs: list[RunDir]
    left_out: list[str]


def find_runs(paths: Sequence[str], *, every: bool = False) -> Found:
    """The directories of one run: those named, or those of a folder.

    A folder with several runs stands for the one that goes on, or was written last; and where some of its directories
    go on, for these. A name without a directory of its own stands for those of its nodes, `<name>-<node>`.

    Args:
        paths: directories, folders, or names.
        every: leave out nothing.

    Raises:
        UsageError: E-RUN-02, not a run; E-WATCH-02, directories of different runs.
    """
    found: list[RunDir] = []
    left_out: list[str] = []
    for path in map(Path, paths):
        run_dirs = _runs_at(path)
        going = run_dirs if every or not _is_folder(path) else [run_dir for run_dir in run_dirs if _goes_on(run_dir)]
        found += going or run_dirs
        left_out += [run_dir.path.name for run_dir in run_dirs if going and run_dir not in going]
    unique = [RunDir(path) for path in dict.fromkeys(run_dir.path.resolve() for run_dir in found)]
    names = sorted({_run_name(run_dir) for run_dir in unique})
    if len(names) > 1:
        raise UsageError(
            f"{plain(', '.join(names))}: different runs; watch shows one at a time, with all its nodes",
            code="E-WATCH-02",
        )
    return Found(unique, left_out)


def _runs_at(path: Path) -> list[RunDir]:
    if not _is_folder(path) and path.parent.is_dir() and path.name and not path.is_dir():
        inside = _runs_in(path.parent, f"{_literal(path.name)}-*")
        inside = [run_dir for run_dir in inside if _run_name(run_dir) == path.name]
    elif _is_folder(path):
        inside = _runs_in(path, "*")
        if inside:
            newest = _run_name(max(inside, key=lambda run_dir: (_goes_on(run_dir), _written(run_dir))))
            inside = [run_dir for run_dir in inside if _run_name(run_dir) == newest]
    else:
        inside = []
    return inside or [RunDir.open(path)]  # which says what is wrong


def _is_folder(path: Path) -> bool:
    """True if it is no run itself, but may have some in it."""
    return path.is_dir() and not (path / "run.json").is_file()


def _goes_on(run_dir: RunDir) -> bool:
    """True if it is not finished, and something was written there lately."""
    return not run_dir.summary.exists() and time.time() - _written(run_dir) < _LATELY_S


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
