"""Ctrl-C and SIGTERM: first finish the round and leave a checkpoint, then stop."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType
from typing import Self

from motet.cli.main import Terminated

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopAfterRound:
    """A context manager in which the first signal only sets a mark and the second interrupts at once.

    >>> with StopAfterRound() as stop:
    ...     stop.asked
    False
    """

    def __init__(self) -> None:
        self._signal: int | None = None
        self._before: dict[int, object] = {}

    @property
    def asked(self) -> bool:
        """True once a signal has come."""
        return self._signal is not None

    def raise_stopped(self, text: str) -> None:
        """Raise what the signal means, with a text for the reader."""
        raise (Terminated if self._signal == signal.SIGTERM else KeyboardInterrupt)(text)

    def __enter__(self) -> Self:
        """Take over the signals."""
        self._before = {number: signal.signal(number, self._mark) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # whatever signal.signal returned

    def _mark(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.asked:
            raise (Terminated if number == signal.SIGTERM else KeyboardInterrupt)("stopped at once")
        self._signal = number
        print("stopping after this round; again to stop at once", file=sys.stderr, flush=True)
