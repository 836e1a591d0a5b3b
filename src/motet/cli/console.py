"""Where people read: a rich console that is plain when it is no terminal, or when NO_COLOR asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr.

    Colours and live views only on a terminal. NO_COLOR (set to anything but nothing) takes the colours away,
    FORCE_COLOR gives them to a pipe too, TERM=dumb does without both. Rich is imported here, not at start.
    """
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
