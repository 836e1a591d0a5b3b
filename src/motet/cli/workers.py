"""Several `motet` commands beside each other, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from motet.cli.stopping import say_stopping
from motet.errors import RunFailed

_LAST_WORDS = 5000


@dataclass(slots=True)
class Job:
    """One command.

    Attributes:
        name: for people.
        arguments: what follows `motet`.
        log: file that takes its output.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        """True between its start and its end."""
        return self.process is not None and self.process.poll() is None

    @property
    def finished(self) -> bool:
        """True once it has ended well."""
        return self.process is not None and self.process.poll() == 0

    @property
    def failed(self) -> bool:
        """True once it has ended otherwise."""
        return self.process is not None and self.process.poll() not in (None, 0)

    def last_words(self) -> str:
        """What it complained of, or else the last line of its output."""
        text = self.log.read_bytes()[-_LAST_WORDS:].decode("utf-8", errors="replace") if self.log.exists() else ""
        lines = text.splitlines() or ["it said nothing"]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if self.process is not None and self.process.returncode is not None and self.process.returncode < 0:
            errors = [f"killed by {signal.Signals(-self.process.returncode).name} after: {lines[-1]}"]
        return (errors or lines)[-1]


class Workers:
    """Runs jobs in order, at most `at_once` at a time; a context manager that leaves no process behind.

    Args:
        jobs: the commands.
        at_once: processes side by side, 1 or more; each gets its share of the processors as threads.
        keep_going: one that fails does not keep the others from running.
    """

    def __init__(self, jobs: Sequence[Job], *, at_once: int, keep_going: bool = False) -> None:
        self.jobs = jobs
        self._keep_going = keep_going
        self._at_once = max(1, min(at_once, len(jobs)))
        self._threads = max(1, (os.cpu_count() or 1) // self._at_once)

    def __enter__(self) -> Self:
        """Nothing runs yet: `advance` starts the jobs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ask what still runs to stop after its round, and wait for it; an interruption of that ends it at once."""
        running = [job.process for job in self.jobs if job.process is not None and job.running]
        try:
            if running:
                say_stopping()
            for process in running:
                process.send_signal(signal.SIGINT)
            for process in running:
                process.wait()
        finally:
            for process in running:
                process.kill()
                process.wait()

    def advance(self) -> bool:
        """Start waiting jobs where there is room; True as long as not all have ended.

        Raises:
            RunFailed: E-DEMO-01 with the last words of a job that failed, unless the others are to keep going.
        """
        for job in self.jobs:
            if job.failed and not self._keep_going:
                raise RunFailed(
                    f"{job.name} stopped: {job.last_words()}  (all of its output: {job.log})", code="E-DEMO-01"
                )
        for job in self.jobs:
            if job.process is None and sum(other.running for other in self.jobs) < self._at_once:
                self._start(job)
        return not all(job.finished or job.failed for job in self.jobs)

    def _start(self, job: Job) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads)}
        with job.log.open("wb") as log:
            job.process = subprocess.Popen(
                [sys.executable, "-m", "motet", *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches it through us, once
            )
