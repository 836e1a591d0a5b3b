"""The frame in which a command trains: the run directory claimed, progress shown, and a word if it stops early."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from motet.config import RunFile
from motet.journal import RunDir

if TYPE_CHECKING:
    from motet.integrations import Trackers
    from motet.simulation import Observer, Outcome

Play = Callable[["Observer", Callable[[], bool]], "Outcome"]
"""(who is told, whether to stop): trains. What takes seconds to import is imported there, when something is seen."""


def train(path: Path, run_file: RunFile, play: Play, *, clean: bool) -> RunDir:
    """Train in a run directory; Ctrl-C and SIGTERM finish the round. The run's trackers are told as well.

    Args:
        path: of the run directory.
        run_file: settings of the run.
        play: what is to be done there.
        clean: delete an earlier run first.

    Raises:
        MotetError: what `play` or a tracker has to say; E-RUN-04, another process trains there.
    """
    from contextlib import nullcontext

    from motet.cli.claim import claimed, remove_run
    from motet.cli.observers import Several
    from motet.cli.progress import make_progress
    from motet.cli.stopping import StopAfterRound

    trackers = _trackers(path, run_file)
    with claimed(path), StopAfterRound() as stop:
        if clean:
            remove_run(path)
        run_dir = RunDir(path)
        done_before = run_dir.summary.exists()
        with make_progress(run_dir) as progress, trackers or nullcontext():
            observer = progress if trackers is None else Several(progress, trackers)
            outcome = play(observer, lambda: stop.asked)
        if done_before:
            print(f"{path} was finished before; --clean deletes it and trains anew", file=sys.stderr)
        if not outcome.finished:
            stop.raise_stopped(
                f"after round {outcome.rounds_done} of {run_file.run.rounds}; the same command resumes from there"
            )
    return run_dir


def _trackers(path: Path, run_file: RunFile) -> Trackers | None:
    if not run_file.run.trackers:
        return None
    from motet.integrations import make_trackers

    return make_trackers(run_file.run.trackers, path, path.name, run_file.model_dump(exclude_none=True))
