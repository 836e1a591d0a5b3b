"""The run of a swarm in one process, from its first round or from its last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Generator as Steps
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from motet.config import RunFile
from motet.journal import JsonLinesWriter, RunDir, write_json
from motet.node import Phase, RoundReport, assemble_nodes
from motet.records import Archive
from motet.simulation.checkpoint import Position, claim_run_dir, restore, save
from motet.simulation.observer import Observer
from motet.simulation.summary import summarise

_BEFORE_TRAINING = -1


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


def run_swarm(run: RunFile, *, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Train all nodes of a run file; continue an interrupted run of the same settings.

    Args:
        run: the settings.
        observer: is told what happens.
        should_stop: asked after every round; True leaves a checkpoint and returns.

    Raises:
        MotetError: settings, task or model that cannot be used, a run directory that holds another run, a failed step.
    """
    run_dir, position = claim_run_dir(run)
    if run_dir.summary.exists():
        return Outcome(run_dir, finished=True, rounds_done=run.run.rounds)
    with ExitStack() as stack:
        return _Course(run, run_dir, position, observer, stack).run(should_stop)


class _Course:
    """This process's part of a run: the nodes, the open files, and the loop over rounds."""

    def __init__(
        self, run: RunFile, run_dir: RunDir, position: Position | None, observer: Observer, stack: ExitStack
    ) -> None:
        self._run = run
        self._dir = run_dir
        self._observer = observer
        kept = position.archive_bytes if position is not None else {}
        archives = {
            node.name: stack.enter_context(Archive(run_dir.archive(node.name), keep_bytes=kept.get(node.name)))
            for node in run.node
        }
        self._assembly = assemble_nodes(run, archives=archives)
        self._first_round = 0
        self._seconds_before = 0.0
        if position is not None:
            restore(position, self._assembly)
            self._first_round = position.rounds_done
            self._seconds_before = position.seconds
        self._metrics = stack.enter_context(JsonLinesWriter(run_dir.metrics))
        self._events = stack.enter_context(JsonLinesWriter(run_dir.events))
        self._texts = {
            node.name: stack.enter_context(JsonLinesWriter(run_dir.completions(node.name))) for node in run.node
        }
        self._started = time.monotonic()

    def run(self, should_stop: Callable[[], bool]) -> Outcome:
        num_rounds = self._run.run.rounds
        names = list(self._assembly.members)
        self._observer.started(nodes=names, first_round=self._first_round, num_rounds=num_rounds)
        self._event("resumed" if self._first_round else "started", self._first_round)
        if self._first_round == 0:
            self._examine_before()
        for round in range(self._first_round, num_rounds):
            self._play(round)
            done = round + 1
            stopping = done < num_rounds and should_stop()
            if stopping or done == num_rounds or done % self._run.run.checkpoint_every == 0:
                save(self._dir, self._assembly, rounds_done=done, seconds=self._seconds())
            if stopping:
                self._event("stopped", round)
                return Outcome(self._dir, finished=False, rounds_done=done)
        self._finish()
        return Outcome(self._dir, finished=True, rounds_done=num_rounds)

    def _play(self, round: int) -> None:
        """One round of every node. In lockstep all publish before any collects; at free pace they take turns."""
        members = self._assembly.members
        steps = {name: member.node.run_round(round) for name, member in members.items()}
        if self._run.swarm.pace == "lockstep":
            for name in members:
                self._advance(name, steps[name], round, until=Phase.WAIT)
        for name in members:
            report = self._advance(name, steps[name], round, until=None)
            assert report is not None
            accuracy = self._examine(name, round) if self._examines_after(round) else {}
            self._write_row(name, round, {**report.metrics, **accuracy})

    def _advance(
        self, name: str, steps: Steps[Phase, None, RoundReport], round: int, *, until: Phase | None
    ) -> RoundReport | None:
        """Drive a node up to a phase (None: to the end of its round, and return the report)."""
        exchange = self._assembly.members[name].node.exchange
        while True:
            try:
                phase = next(steps)
            except StopIteration as end:
                report: RoundReport = end.value
                return report
            waiting_for = exchange.waiting_for(round) if phase is Phase.WAIT else []
            self._observer.phase(name, phase, round=round, waiting_for=waiting_for)
            if phase is until:
                return None

    def _examines_after(self, round: int) -> bool:
        every = self._run.evaluation.every
        return round + 1 == self._run.run.rounds or (every > 0 and (round + 1) % every == 0)

    def _examine_before(self) -> None:
        for name in self._assembly.members:
            self._write_row(name, _BEFORE_TRAINING, self._examine(name, _BEFORE_TRAINING))

    def _examine(self, name: str, round: int) -> dict[str, float]:
        """Accuracy metrics of a node; the texts of the first completions go to the journal."""
        self._observer.evaluating(name, round=round)
        settings = self._run.evaluation
        at_an_end = round in (_BEFORE_TRAINING, self._run.run.rounds - 1)
        start = time.perf_counter()
        results = self._assembly.members[name].examiner.examine(
            num_prompts=settings.final_num_prompts if at_an_end else settings.num_prompts
        )
        metrics: dict[str, float] = {"time/evaluate_s": time.perf_counter() - start}
        for split, result in results.items():
            metrics[f"accuracy/{split}"] = result.accuracy.value
            metrics[f"accuracy/{split}/se"] = result.accuracy.se
            metrics[f"accuracy/{split}/num_prompts"] = result.accuracy.num_prompts
            metrics[f"accuracy/{split}/cut_share"] = result.cut_share
            for sample in result.samples:
                self._texts[name].write(
                    {
                        "round": round,
                        "split": split,
                        "prompt_id": sample.prompt_id,
                        "prompt": sample.prompt,
                        "completion": sample.completion,
                        "reward": sample.reward,
                    }
                )
        return metrics

    def _write_row(self, name: str, round: int, metrics: Mapping[str, float]) -> None:
        row: dict[str, object] = {"round": round, "node": name, **metrics}
        self._metrics.write(row)
        self._observer.round_done(row)

    def _event(self, kind: str, round: int) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._events.write({"time": now, "kind": kind, "round": round})

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started

    def _finish(self) -> None:
        for name, member in self._assembly.members.items():
            member.policy.save(self._dir.model(name))
        self._event("finished", self._run.run.rounds - 1)
        write_json(self._dir.summary, summarise(self._run, self._dir, self._assembly, seconds=self._seconds()))
