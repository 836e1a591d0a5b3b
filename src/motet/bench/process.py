"""Processes that are measured: started afresh, asked in turn, gone when the block ends, whatever ends it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from motet.errors import EnvironmentFault, MotetError, RunFailed, UsageError

Say = Callable[[str], None]
"""Told what is being done, several times a second as long as it lasts."""

_POLL_S = 0.25
_FAULTS = {fault.__name__: fault for fault in (UsageError, EnvironmentFault, RunFailed)}


@dataclass(slots=True)
class Turns:
    """What an arm's steps took.

    Attributes:
        first: the arm's answer when it was ready: memory before the first step, settings, threads.
        seconds: of each measured step.
        parts: seconds of the parts of each measured step, by name.
        last: the arm's answer at the end: peak memory and what it did.
    """

    first: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)


class Child:
    """A process that makes one object and answers for it.

    Args:
        name: for people.
        target: "module:callable", imported in the child.
        argument: what the callable gets.
    """

    def __init__(self, name: str, target: str, argument: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        handle, path = tempfile.mkstemp(prefix="motet_bench_", suffix=".log")
        os.close(handle)
        self._log = Path(path)
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, target, argument, path), daemon=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is for us, and we end the child
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()

    def ask(self, question: str, *, say: Say, text: str) -> dict[str, Any]:
        """Its answer; `say` hears `text` until it comes.

        Raises:
            MotetError: what it raised.
            RunFailed: E-BENCH-03 if it broke down.
        """
        self._send(question)
        return self.answer(say=say, text=text)

    def answer(self, *, say: Say, text: str) -> dict[str, Any]:
        """What it says next. As `ask`."""
        say(text)
        while not self._ours.poll(_POLL_S):
            say(text)
        try:
            kind, content = self._ours.recv()
        except EOFError:
            self._process.join()
            raise self._broken() from None
        if kind == "fault":
            name, message, code = content
            raise _FAULTS.get(name, MotetError)(message, code=code)
        answer: dict[str, Any] = content
        return answer

    def close(self) -> None:
        """End it, at once."""
        self._process.kill()
        self._process.join()
        self._ours.close()
        self._log.unlink(missing_ok=True)

    def _send(self, question: str) -> None:
        try:
            self._ours.send(question)
        except (BrokenPipeError, ConnectionResetError):
            self._process.join()
            raise self._broken() from None

    def _broken(self) -> RunFailed:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() if self._log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        code = self._process.exitcode
        why = f"killed by {signal.Signals(-code).name}, perhaps for want of memory" if code and code < 0 else last
        return RunFailed(f"{self.name} broke down: {why}", code="E-BENCH-03")


class Children:
    """Starts children, and ends them all when its block ends."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def __enter__(self) -> Self:
        """Nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End what still runs."""
        for child in self._all:
            child.close()

    def start(self, name: str, target: str, argument: object) -> Child:
        """A new child; it has begun to set itself up."""
        child = Child(name, target, argument)
        self._all.append(child)
        return child


def call(target: str, argument: object, *, say: Say, text: str) -> dict[str, Any]:
    """`target(argument)` in a process of its own, which is gone afterwards. It must return a dictionary."""
    with Children() as children:
        return children.start(text, target, argument).answer(say=say, text=text)


def take_turns(
    arms: Mapping[str, tuple[str, object]], *, repeats: int, say: Say, warm_ups: int = 1
) -> dict[str, Turns]:
    """Let arms step one after the other, again and again, and clock each step.

    Args:
        arms: target and argument by name.
        repeats: measured steps of each.
        say: hears the progress.
        warm_ups: steps of each that are not clocked.
    """
    turns = {name: Turns() for name in arms}
    with Children() as children:
        alive = {name: children.start(name, target, argument) for name, (target, argument) in arms.items()}
        for name, child in alive.items():  # set up side by side, measured one at a time
            turns[name].first = child.answer(say=say, text=f"setting up {name}")
        for round in range(warm_ups + repeats):
            for name, child in alive.items():
                number = round + 1 - warm_ups
                text = f"{name}: step {number} of {repeats}" if number > 0 else f"{name}: warm-up"
                step = child.ask("step", say=say, text=text)
                if number > 0:
                    turns[name].seconds.append(step["seconds"])
                    for part, seconds in step["parts"].items():
                        turns[name].parts.setdefault(part, []).append(seconds)
        for name, child in alive.items():
            turns[name].last = child.ask("end", say=say, text=f"{name}: memory")
    return turns


def _serve(connection: Connection, target: str, argument: object, log: str) -> None:
    """The child's life: make the object, then answer until nobody asks any more."""
    with open(log, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    module, _, name = target.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)(argument)
        if isinstance(made, dict):
            connection.send(("made", made))
            return
        _answer(connection, made)
    except MotetError as error:
        connection.send(("fault", (type(error).__name__, str(error), error.code)))
    except (EOFError, BrokenPipeError):
        return


def _answer(connection: Connection, arm: Any) -> None:
    from motet.bench.clock import Clock
    from motet.bench.machine import forget_peak, peak_bytes, resident_bytes

    clock = Clock()
    before = resident_bytes()
    began_anew = forget_peak()
    first = {"memory_before": before, "peak_of_steps_only": began_anew, "settings": dict(arm.settings)}
    connection.send(("ready", {**first, **clock.describe()}))
    while True:
        if connection.recv() == "end":
            connection.send(("end", {"peak": peak_bytes(), **clock.device_peak(), "did": dict(arm.figures())}))
            return
        clock.wait()
        start = time.perf_counter()
        parts = arm.step()
        clock.wait()
        connection.send(("step", {"seconds": time.perf_counter() - start, "parts": dict(parts)}))


def split_words(text: str) -> Sequence[str]:
    """Words between commas.

    >>> split_words("trl, fast")
    ['trl', 'fast']
    """
    return [word.strip() for word in text.split(",") if word.strip()]
