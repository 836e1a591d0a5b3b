"""What goes wrong when code that is not ours scores a text: caught, put in one line, and counted."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_MAX_LINE = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """What the user's code raised, in one line."""

    line: str


@dataclass(slots=True)
class Faults:
    """Completions that have no score, by cause.

    Attributes:
        raised: those whose scoring raised, or ended the process that scores.
        timed_out: those whose scoring was stopped at its time limit.
        first: the first of them, in one line.
    """

    raised: int = 0
    timed_out: int = 0
    first: str | None = None

    def add(self, other: Faults) -> None:
        """Count those of `other` too."""
        self.raised += other.raised
        self.timed_out += other.timed_out
        self.first = self.first or other.first


def faults_of(scorer: object) -> Faults:
    """Faults so far of a task or a reward; none for one that does not count any.

    >>> faults_of("no task")
    Faults(raised=0, timed_out=0, first=None)
    """
    faults = getattr(scorer, "faults", None)
    return faults if isinstance(faults, Faults) else Faults()


def call_own_code(call: Callable[[], T]) -> T | Fault:
    """Run the user's code; whatever it raises becomes a `Fault`. The only place in `tasks` that catches everything."""
    try:
        return call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code that is not ours, on text that may be a peer's
        return Fault(one_line(error))


def one_line(error: BaseException) -> str:
    """Kind, message and place of an error, without line breaks, and short."""
    words = " ".join(str(error).split())
    text = "".join(char if char.isprintable() else "?" for char in words)[:_MAX_LINE]
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        return f"{type(error).__name__}: {text}"
    frame = frames[-1]
    ours = Path(frame.filename).parent == Path(__file__).parent
    if ours or frame.filename == importlib.__file__ or "<frozen" in frame.filename:
        return f"{type(error).__name__}: {text}"
    return f"{type(error).__name__}: {text} ({Path(frame.filename).name}:{frame.lineno})"
