"""The one way in which tests of several programs wait for what nothing announces."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

PATIENCE_S = 240.0
"""Of a machine under load; only a test that fails takes so long."""
_PAUSE_S = 0.02


def wait_until(
    condition: Callable[[], _T], what: str | Callable[[], str] = "what was waited for", patience_s: float = PATIENCE_S
) -> _T:
    """Look until something is so, and give what the look gave.

    Raises:
        AssertionError: it did not come about.
    """
    until_s = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < until_s, f"never: {what if isinstance(what, str) else what()}"
        time.sleep(_PAUSE_S)
    return found
