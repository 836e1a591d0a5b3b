"""Where people read: a rich console that is plain when it is no terminal, or when NO_COLOR asks for it."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 120


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr.

    Colours and live views only on a terminal. NO_COLOR (set to anything but nothing) takes the colours away,
    FORCE_COLOR gives them to a pipe too, TERM=dumb does without both. A pipe has no width: tables get 120 columns
    there, unless COLUMNS says otherwise. Rich is imported here, not at start.
    """
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def can_redraw() -> bool:
    """True if stderr is a terminal whose lines can be drawn anew: not dumb, and no pipe, whatever FORCE_COLOR says."""
    return sys.stderr.isatty() and not make_console(stderr=True).is_dumb_terminal


def working(words: str) -> AbstractContextManager[object]:
    """Shows on a terminal that something is happening, for as long as the block takes."""
    return make_console(stderr=True).status(words) if can_redraw() else nullcontext()
