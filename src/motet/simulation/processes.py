"""Each node of a run in a process of its own on this machine; this process routes, keeps the journal and gives orders.

The processes are ours: they end with this one, however it ends, and if one of them ends before it is told to, the run
does. How groups travel plays no part here but in `_start`, which connects each node with its hub; over a network the
nodes find each other.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from safetensors import SafetensorError

from motet.config import RunFile, dump_run_file
from motet.errors import EnvironmentFault, MotetError, RunFailed, SwarmRefused, SwarmUnreachable, UsageError
from motet.journal import RunDir
from motet.simulation.checkpoint import Position, restore_hubs
from motet.simulation.crew import Facts, Identity, Kept, Report
from motet.simulation.messages import (
    Answer,
    Begins,
    Done,
    Examine,
    Failed,
    Finish,
    Finished,
    Order,
    Play,
    Ready,
    Save,
    Saved,
    decode_answer,
    encode,
)
from motet.simulation.node_process import STOP_SIGNALS, Job, work
from motet.simulation.schedule import most_rounds_ahead
from motet.swarm import MemoryHub, hubs_for, serve_exchange

_ERRORS: Final[Mapping[str, type[MotetError]]] = {
    error.__name__: error for error in (UsageError, EnvironmentFault, RunFailed, SwarmUnreachable, SwarmRefused)
}
_LONGEST_END_S = 10.0
_A = TypeVar("_A", bound=Answer)


class NodeFault(RuntimeError):
    """A fault of motet's own in the process of a node; the message is its traceback there."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """A node's process, as seen from here."""

    process: SpawnProcess
    orders: Connection


class ProcessCrew:
    """Implements `Crew`.

    Args:
        run: the settings.
        run_dir: the run's directory.
        position: where an interrupted run continues.
        stack: ends the processes.

    Raises:
        MotetError: what a node has to say about task, model or settings; E-SWARM-03, its process has ended.
    """

    def __init__(self, run: RunFile, run_dir: RunDir, position: Position | None, stack: ExitStack) -> None:
        self._run = run
        self._dir = run_dir
        names = [node.name for node in run.node]
        networked = run.is_networked and not run.trains_alone
        self._hubs = {} if networked else hubs_for(names, alone=run.trains_alone)
        self._workers: dict[str, _Worker] = {}
        self._most_ahead = most_rounds_ahead(run)
        stack.callback(self._kill)
        with _stop_signals_held():
            for node in run.node:
                self._start(node.name, position)
        if position is not None:
            restore_hubs(position, self._hubs)
        self._identities = {name: ready.identity for name, ready in self._answers_of(Ready).items()}

    @property
    def hubs(self) -> Mapping[str, MemoryHub]:
        """Where each node meets the others, if that is in this process."""
        return self._hubs

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What each node learns from."""
        return self._identities

    def examine(self, report: Report) -> None:
        """Examine every node before training, all at once."""
        for name in self._workers:
            report.begins(name, "evaluate", round=-1)
            self._order(name, Examine())
        for name, done in self._answers_of(Done).items():
            report.done(name, done.turn)

    def play(self, first: int, until: int, *, report: Report, go_on: Callable[[], bool]) -> int:
        """See `Crew.play`. Each node goes on to its next round as soon as it may, without waiting for the others'."""
        done = dict.fromkeys(self._workers, first)
        begun = dict(done)
        told: dict[str, int] = {}
        while True:
            for name in self._workers:
                if begun[name] > done[name] or done[name] == until:
                    continue
                if done[name] - min(done.values()) > self._most_ahead:
                    continue
                if done[name] == max(begun.values()) > first and not go_on():
                    until = done[name]
                    continue
                begun[name] += 1
                self._order(name, Play(done[name]))
            if set(done.values()) == {until}:
                return until
            self._tell_who_waits(done, begun, told, report)
            for name, answer in self._answers():
                if isinstance(answer, Done):
                    done[name] += 1
                    report.done(name, answer.turn)
                elif isinstance(answer, Begins):
                    report.begins(name, answer.activity, round=answer.round, waiting_for=answer.waiting_for)

    def save(self, folder: Path) -> Mapping[str, Kept]:
        """See `Crew.save`."""
        for name in self._workers:
            (folder / name).mkdir()
            self._order(name, Save(str(folder / name)))
        return {name: saved.kept for name, saved in self._answers_of(Saved).items()}

    def finish(self, model_folder: Callable[[str], Path]) -> Mapping[str, Facts]:
        """See `Crew.finish`."""
        for name in self._workers:
            self._order(name, Finish(str(model_folder(name))))
        facts = {name: finished.facts for name, finished in self._answers_of(Finished).items()}
        for worker in self._workers.values():
            worker.process.join(_LONGEST_END_S)
        return facts

    def _start(self, name: str, position: Position | None) -> None:
        context = multiprocessing.get_context("spawn")  # torch does not survive a fork
        orders, their_orders = context.Pipe()
        pipe, their_pipe = context.Pipe()
        job = Job(
            run_file=dump_run_file(self._run),
            name=name,
            run_dir=self._dir.path,
            checkpoint=None if position is None else position.folder,
            orders=their_orders,
            exchange=their_pipe if name in self._hubs else None,
        )
        process = context.Process(target=work, args=(job,), name=f"motet node {name}")
        process.start()
        self._workers[name] = _Worker(process, orders)
        their_orders.close()  # or the end of the process would not show on this side
        their_pipe.close()
        if name in self._hubs:
            exchange = self._hubs[name].join(name)
            threading.Thread(target=serve_exchange, args=(exchange, pipe), daemon=True).start()

    def _kill(self) -> None:
        """Leave no process behind. Those of a finished run have ended by themselves."""
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join()
            worker.orders.close()

    def _order(self, name: str, order: Order) -> None:
        try:
            self._workers[name].orders.send_bytes(encode(order))
        except OSError:
            self._read(name)  # what it said before it ended
            self._raise_ended(name)

    def _answers_of(self, kind: type[_A]) -> dict[str, _A]:
        """One answer of every node, in the order of the run file."""
        answers: dict[str, _A] = {}
        while len(answers) < len(self._workers):
            answers |= {name: answer for name, answer in self._answers() if isinstance(answer, kind)}
        return {name: answers[name] for name in self._workers}

    def _answers(self) -> Iterator[tuple[str, Answer]]:
        """Wait until any node says something.

        Raises:
            MotetError: what a node failed of; E-SWARM-03 if its process ended without a word.
        """
        ready = wait([worker.orders for worker in self._workers.values()])
        for name, worker in self._workers.items():
            if worker.orders in ready:
                yield name, self._read(name)

    def _read(self, name: str) -> Answer:
        try:
            answer = decode_answer(self._workers[name].orders.recv_bytes())
        except (EOFError, OSError):
            self._raise_ended(name)
        if isinstance(answer, Failed):
            _raise(answer)
        return answer

    def _raise_ended(self, name: str) -> NoReturn:
        process = self._workers[name].process
        process.join()
        code = process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise RunFailed(
            f"node {name}: its process {how}; the same command goes on from the last checkpoint", code="E-SWARM-03"
        )

    def _tell_who_waits(
        self, done: Mapping[str, int], begun: Mapping[str, int], told: dict[str, int], report: Report
    ) -> None:
        """Those that have finished a round and may not begin another before slower ones have caught up."""
        for name, rounds in done.items():
            slower = [other for other in done if done[other] < rounds]
            if begun[name] == rounds and slower and told.get(name) != rounds:
                told[name] = rounds
                report.begins(name, "wait", round=rounds - 1, waiting_for=slower)


def _raise(failed: Failed) -> NoReturn:
    """The error of another process, as if it had been raised in this one."""
    if failed.kind in _ERRORS:
        raise _ERRORS[failed.kind](failed.message, code=failed.code)
    if failed.kind == OSError.__name__:
        raise OSError(failed.number, failed.message, failed.path or None)
    if failed.kind == SafetensorError.__name__:
        raise SafetensorError(failed.message)
    raise NodeFault(f"in the process of a node:\n{failed.message}")


@contextmanager
def _stop_signals_held() -> Iterator[None]:
    """Processes that begin in this block are out of the reach of Ctrl-C from their first instruction on."""
    resource_tracker.ensure_running()  # of its own accord it would let the signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
