"""The course of a run, whoever its nodes are: gatherings, rounds, journal, checkpoints, end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from motet.config import RunFile
from motet.journal import JsonLinesWriter, RunDir, write_json
from motet.simulation.checkpoint import Position, save
from motet.simulation.crew import Crew, Turn
from motet.simulation.observer import Observer
from motet.simulation.schedule import BEFORE_TRAINING, has_checkpoint, next_gathering
from motet.simulation.summary import summarise


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        run_dir: where its results are.
        finished: False if it was asked to stop; the same call continues it.
        rounds_done: rounds since the beginning of the run.
    """

    run_dir: RunDir
    finished: bool
    rounds_done: int


class Course:
    """Gatherings and rounds in order, the open files, what is told. Implements `Report`.

    Args:
        run: the settings.
        run_dir: the run's directory.
        position: where an interrupted run continues.
        observer: is told what happens.
        stack: closes what the course opens.
        crew: the nodes.
    """

    def __init__(
        self,
        run: RunFile,
        run_dir: RunDir,
        position: Position | None,
        observer: Observer,
        stack: ExitStack,
        crew: Crew,
    ) -> None:
        self._run = run
        self._dir = run_dir
        self._observer = observer
        self._crew = crew
        self._names = [node.name for node in run.node]
        self._first_round = position.rounds_done if position is not None else 0
        self._seconds_before = position.seconds if position is not None else 0.0
        self._metrics = stack.enter_context(JsonLinesWriter(run_dir.metrics))
        self._events = stack.enter_context(JsonLinesWriter(run_dir.events))
        self._texts = {name: stack.enter_context(JsonLinesWriter(run_dir.completions(name))) for name in self._names}
        self._early: dict[tuple[int, str], Mapping[str, object]] = {}
        self._next_round = self._first_round if self._first_round else BEFORE_TRAINING
        self._next_node = 0
        self._started = time.monotonic()

    def run(self, should_stop: Callable[[], bool]) -> Outcome:
        """Play all rounds that are left. Asks `should_stop` after each; True leaves a checkpoint and returns."""
        num_rounds = self._run.run.rounds
        self._observer.started(nodes=self._names, first_round=self._first_round, num_rounds=num_rounds)
        self._event("resumed" if self._first_round else "started", self._first_round)
        if self._first_round == 0:
            self._crew.examine(self)
        done = self._first_round
        while done < num_rounds:
            gathering = next_gathering(self._run, done)
            done = self._crew.play(done, gathering, report=self, go_on=lambda: not should_stop())
            stopping = done < gathering or (done < num_rounds and should_stop())
            if stopping or done > gathering or has_checkpoint(self._run, done):
                self._save(done)
            if stopping:
                self._event("stopped", done - 1)
                return Outcome(self._dir, finished=False, rounds_done=done)
        self._finish()
        return Outcome(self._dir, finished=True, rounds_done=num_rounds)

    def begins(self, name: str, activity: str, *, round: int, waiting_for: Sequence[str] = ()) -> None:
        """See `Report`."""
        if activity == "evaluate":
            self._observer.evaluating(name, round=round)
        else:
            self._observer.phase(name, activity, round=round, waiting_for=waiting_for)

    def done(self, name: str, turn: Turn) -> None:
        """See `Report`. Rows of a round are written in the order of the run file, whoever was faster."""
        for event in turn.events:
            self._event(event.kind, turn.round, node=name, peer=event.peer, text=event.text)
            self._observer.happened(name, event)
        for sample in turn.samples:
            self._texts[name].write(sample)
        if turn.fault is not None:
            self._event("unscored", turn.round, node=name, text=turn.fault)
        row: dict[str, object] = {"round": turn.round, "node": name, **turn.metrics}
        self._early[turn.round, name] = row
        if len(self._names) == 1:
            self._next_round = turn.round  # a node by itself skips rounds to catch up with its swarm
        while (place := (self._next_round, self._names[self._next_node])) in self._early:
            self._metrics.write(self._early.pop(place))
            self._next_node = (self._next_node + 1) % len(self._names)
            self._next_round += self._next_node == 0
        self._observer.round_done(row)

    def _save(self, done: int) -> None:
        kept = self._run.run
        save(
            self._dir,
            self._crew,
            rounds_done=done,
            seconds=self._seconds(),
            keep=kept.keep_checkpoints,
            keep_best=kept.keep_best,
        )

    def _finish(self) -> None:
        facts = self._crew.finish(self._dir.model)
        self._event("finished", self._run.run.rounds - 1)
        write_json(self._dir.summary, summarise(self._run, self._dir, facts, seconds=self._seconds()))

    def _event(self, kind: str, round: int, **more: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._events.write({"time": now, "kind": kind, "round": round, **more})

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started
