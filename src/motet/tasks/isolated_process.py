"""A process of its own for code that may raise, hang or crash on a text: started when needed, stopped at a limit.

The process ends with this one: it reads from a socket that only this process holds open, and before every call it sets
an alarm of the operating system that ends it even in a loop of C code. It is in a session of its own, so Ctrl-C in the
terminal reaches this process only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from motet.errors import EnvironmentFault, MotetError, RunFailed, UsageError
from motet.tasks.isolated_wire import encode

START_LIMIT_S: Final = 120.0
_ERRORS: Final[Mapping[str, type[MotetError]]] = {
    error.__name__: error for error in (UsageError, EnvironmentFault, RunFailed)
}
_BEGIN: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = {path!r}; "
    "from motet.tasks.isolated_child import main; main({handle})"
)


class StoppedError(RuntimeError):
    """A call was stopped at its time limit."""


class FaultError(RuntimeError):
    """The code raised, or the process ended during a call; the message says how."""


class IsolatedProcess:
    """Calls into a process of its own, one at a time, from any thread.

    Args:
        target: what the process makes and calls, as JSON; see `motet.tasks.isolated_child`.
        silent: throw away what the code prints. Otherwise it goes to standard error.
    """

    def __init__(self, target: Mapping[str, object], *, silent: bool) -> None:
        self._target = {**target, "silent": silent}
        self._folder = Path.cwd()  # where the user's files are found, whatever the current folder is later
        self._lock = threading.RLock()
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._owner = os.getpid()
        self._close: weakref.finalize[[subprocess.Popen[bytes], Connection], IsolatedProcess] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the process, if it runs."""
        return None if self._running is None else self._running[0].pid

    def call(self, method: str, *arguments: object, limit_s: float) -> Any:
        """Result of a method of the target; starts the process if it does not run.

        Raises:
            StoppedError: it took longer than `limit_s`; the process was ended.
            FaultError: the code raised, or the process ended by itself.
            MotetError: what the target raised.
        """
        with self._lock:
            if self._owner != os.getpid():  # a fork: the process is the parent's
                self._running, self._owner = None, os.getpid()
            if self._running is None:
                self._start()
            return self._exchange([method, limit_s, *arguments], limit_s)

    def close(self) -> None:
        """End the process; a later call starts another."""
        with self._lock:
            if self._close is not None:
                self._close()
            self._running = self._close = None

    def _start(self) -> None:
        ours, theirs = Pipe()
        handle = theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN.format(path=sys.path, handle=handle)],
            pass_fds=[handle],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
            env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        theirs.close()
        self._running = process, ours
        self._close = weakref.finalize(self, _end, process, ours)
        try:
            self._exchange(self._target, START_LIMIT_S)
        except (MotetError, FaultError):
            self.close()
            raise

    def _exchange(self, request: object, limit_s: float) -> Any:
        assert self._running is not None
        process, connection = self._running
        try:
            connection.send_bytes(encode(request))
            if not connection.poll(limit_s):
                self.close()
                raise StoppedError(f"stopped after {limit_s:g} s")
            reply = json.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1.0)
            self.close()
            raise FaultError(f"the scoring process ended ({_how(process.returncode)})") from error
        except BaseException:
            self.close()  # a reply may still be on its way
            raise
        if "error" in reply:
            kind, message, code = reply["error"]
            raise _ERRORS[kind](message, code=code)
        if "fault" in reply:
            raise FaultError(reply["fault"])
        return reply["result"]


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
