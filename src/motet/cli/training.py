"""The frame in which a command trains: the run directory claimed, progress shown, and a word if it stops early."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from motet.journal import RunDir

if TYPE_CHECKING:
    from motet.integrations import Trackers
    from motet.simulation import Observer, Outcome

Play = Callable[["Observer", Callable[[], bool]], "Outcome"]
"""(who is told, whether to stop): trains. What takes seconds to import is imported there, when something is seen."""


def train(path: Path, num_rounds: int, play: Play, *, clean: bool, trackers: Trackers | None = None) -> RunDir:
    """Train in a run directory; Ctrl-C and SIGTERM finish the round.

    Args:
        path: of the run directory.
        num_rounds: of the run.
        play: what is to be done there.
        clean: delete an earlier run first.
        trackers: are told as well.

    Raises:
        MotetError: what `play` has to say; E-RUN-04, another process trains there.
    """
    from contextlib import nullcontext

    from motet.cli.claim import claimed, remove_run
    from motet.cli.observers import Several
    from motet.cli.progress import make_progress
    from motet.cli.stopping import StopAfterRound

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
                f"after round {outcome.rounds_done} of {num_rounds}; the same command resumes from there"
            )
    return run_dir
