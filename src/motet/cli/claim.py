"""A run directory belongs to one process at a time, and one that never got to train leaves none behind."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from motet.errors import UsageError
from motet.journal import RunDir


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep other processes out of a run directory inside the block. The system lets go if this process dies.

    A directory in which nothing has been measured yet is removed at both ends: one by one, mistakes that only show
    while models load would otherwise be refused as changes to a run.

    Raises:
        UsageError: E-RUN-04, another process is at work there; E-RUN-01, run.dir is a file.
    """
    with locked(path.with_name(f".{path.name}.lock"), of=path, or_else="use another run.name"):
        try:
            _remove_untouched(path)
            yield
        finally:
            _remove_untouched(path)


@contextmanager
def locked(lock: Path, *, of: Path, or_else: str) -> Iterator[None]:
    """Keep other processes out inside the block, by a lock file that is removed at the end.

    Args:
        lock: the file.
        of: what it locks, for the message.
        or_else: what a user may do but wait, for the message.

    Raises:
        UsageError: E-RUN-04, another process is at work there; E-RUN-01, its folder is a file.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{lock.parent}: run.dir must be a folder, and a file is there", code="E-RUN-01") from None
    with lock.open("a+", encoding="ascii") as file:
        if not _got(file):
            file.seek(0)
            raise UsageError(
                f"{of}: another motet (process {file.read().strip() or '?'}) is at work there; wait for it or stop "
                f"it, or {or_else}",
                code="E-RUN-04",
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _got(lock: TextIO) -> bool:
    """Take the lock if it is free; a lock file that its last owner has just removed does not count."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(lock.fileno()).st_nlink > 0


def remove_run(path: Path) -> None:
    """Delete a run's directory, if there is one. Raises UsageError (E-RUN-02) for a folder that is no run."""
    if path.exists():
        shutil.rmtree(RunDir.open(path).path)


def _remove_untouched(path: Path) -> None:
    """Remove a run that was interrupted, or failed, before its first measurement."""
    run = RunDir(path)
    measured = run.metrics.exists() and run.metrics.stat().st_size > 0
    if run.info.is_file() and not measured and not run.checkpoint_rounds() and not run.summary.exists():
        shutil.rmtree(path)
