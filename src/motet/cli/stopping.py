"""Ctrl-C, SIGTERM and a closed terminal (SIGHUP): first finish the round and leave a checkpoint, then stop."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from motet.cli.main import Terminated

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        raise (KeyboardInterrupt if self._signal == signal.SIGINT else Terminated)(text)

    def __enter__(self) -> Self:
        """Take over the signals."""
        nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        for number in _SIGNALS:
            if number != signal.SIGHUP or not nohup:
                self._before[number] = signal.signal(number, self._mark)
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
            raise (KeyboardInterrupt if number == signal.SIGINT else Terminated)("stopped at once")
        self._signal = number
        say_stopping()


def say_stopping() -> None:
    """Tell whoever may still be at the terminal; never fails, though it may interrupt another write to stderr."""
    with suppress(OSError, RuntimeError):
        print("stopping after this round; again to stop at once", file=sys.stderr, flush=True)
