"""What is shown while a study trains: how many runs are done, which are at work, how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from motet.cli.progress import bar, clock, rounds_done_in
from motet.cli.workers import Job
from motet.config import Planned
from motet.journal import RunDir, read_jsonl
from motet.study.rows import run_dir_of

if TYPE_CHECKING:
    from rich.console import RenderableType


class StudyView:
    """The runs of a study that are left to do.

    Args:
        planned: the runs.
        jobs: their processes, in the same order.
        num_finished: runs that were finished before.
        num_runs: all that were asked for.
        began: when the study did, on the clock of `time.monotonic`.
    """

    def __init__(
        self, planned: Sequence[Planned], jobs: Sequence[Job], *, num_finished: int, num_runs: int, began: float
    ) -> None:
        self._runs = list(zip(planned, jobs, strict=True))
        self._num_finished = num_finished
        self._num_runs = num_runs
        self._began = began
        self._phase_began = time.monotonic()
        self._told: set[str] = set()

    def render(self) -> RenderableType:
        """For a live display: a headline, and a line for each run at work."""
        from rich.console import Group
        from rich.text import Text

        lines = [self._headline()]
        for planned, job in self._runs:
            if job.failed:
                lines.append(f"  failed: {planned.label}: {job.last_words()}")
            elif job.running:
                done, num_rounds = _rounds_done(run_dir_of(planned)), planned.run.run.rounds
                lines.append(f"  {done:>3}/{num_rounds} {bar(done / num_rounds, 12)}  {planned.label}")
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def new_lines(self) -> list[str]:
        """For a pipe: a line for each run that has ended, and for each that has begun, since the last call."""
        lines = []
        for planned, job in self._runs:
            states = (("running", job.process is not None), ("finished", job.finished), ("failed", job.failed))
            for state, holds in states:
                if holds and f"{planned.label} {state}" not in self._told:
                    self._told.add(f"{planned.label} {state}")
                    words = f" {job.last_words()}" if state == "failed" else ""
                    seconds = time.monotonic() - self._began
                    lines.append(f"t={seconds:.0f}s run={planned.label} state={state}{self._count()}{words}")
        return lines

    def _count(self) -> str:
        left_s = self._left_s()
        left = "" if left_s is None else f" left={left_s:.0f}s"
        return f" done={self._num_done()}/{self._num_runs}{left}"

    def _headline(self) -> str:
        left_s = self._left_s()
        left = "" if left_s is None else f", about {clock(left_s)} left"
        return f"{self._num_done()} of {self._num_runs} runs   {clock(time.monotonic() - self._began)}{left}"

    def _num_done(self) -> int:
        return self._num_finished + sum(job.finished for _, job in self._runs)

    def _left_s(self) -> float | None:
        """Seconds, at the pace so far; None until a run has ended, and when none is to do."""
        ended = sum(job.finished for _, job in self._runs)
        to_do = sum(not (job.finished or job.failed) for _, job in self._runs)
        return (time.monotonic() - self._phase_began) / ended * to_do if ended and to_do else None


def _rounds_done(run_dir: RunDir) -> int:
    return max((rounds_done_in(row) for row in read_jsonl(run_dir.metrics)), default=0)
