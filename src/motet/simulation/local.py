"""The nodes of a run in this process, in turn: repeatable to the last bit at any pace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Generator as Steps
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch

from motet.config import RunFile
from motet.journal import RunDir
from motet.node import Assembly, Phase, assemble_nodes
from motet.records import Archive
from motet.simulation.checkpoint import Position, restore_hubs
from motet.simulation.crew import Facts, Identity, Kept, Report, Turn
from motet.simulation.schedule import BEFORE_TRAINING
from motet.simulation.station import EVALUATE, Station, use_threads
from motet.swarm import MemoryHub


class Assemble(Protocol):
    """Builds the nodes of a run file."""

    def __call__(self, run: RunFile, *, archives: Mapping[str, Archive]) -> Assembly:
        """See `motet.node.assemble_nodes`."""
        ...


class LocalCrew:
    """Implements `Crew`.

    Args:
        run: the settings.
        run_dir: where the archives are.
        position: where an interrupted run continues.
        stack: closes what this crew opens.
        assemble: builds the nodes.
    """

    def __init__(
        self,
        run: RunFile,
        run_dir: RunDir,
        position: Position | None,
        stack: ExitStack,
        *,
        assemble: Assemble = assemble_nodes,
    ) -> None:
        self._run = run
        stack.callback(torch.set_num_threads, use_threads(run, num_processes=1))
        kept = position.archive_bytes if position is not None else {}
        archives = {
            node.name: stack.enter_context(Archive(run_dir.archive(node.name), keep_bytes=kept.get(node.name)))
            for node in run.node
        }
        self._assembly = assemble(run, archives=archives)
        self._stations = {
            name: Station(run, member, task=self._assembly.task) for name, member in self._assembly.members.items()
        }
        for name, station in self._stations.items():
            stack.callback(station.close)
            if position is not None:
                station.restore(position, name)
        if position is not None:
            restore_hubs(position, self.hubs)

    @property
    def hubs(self) -> Mapping[str, MemoryHub]:
        """Where each node meets the others."""
        return self._assembly.hubs

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What each node learns from."""
        return {name: station.identity() for name, station in self._stations.items()}

    def examine(self, report: Report) -> None:
        """Examine every node before training."""
        for name, station in self._stations.items():
            report.begins(name, EVALUATE, round=BEFORE_TRAINING)
            report.done(name, station.examine(BEFORE_TRAINING))

    def play(self, first: int, until: int, *, report: Report, go_on: Callable[[], bool]) -> int:
        """See `Crew.play`."""
        for round in range(first, until):
            if round > first and not go_on():
                return round
            self._play(round, report)
        return until

    def _play(self, round: int, report: Report) -> None:
        """One round of every node. In lockstep all publish before any collects; at free pace they take turns."""
        steps = {name: station.play(round) for name, station in self._stations.items()}
        if self._run.swarm.pace == "lockstep":
            for name in steps:
                self._advance(name, steps[name], round, report, until=Phase.WAIT)
        for name in steps:
            turn = self._advance(name, steps[name], round, report, until=None)
            assert turn is not None
            report.done(name, turn)

    def _advance(
        self, name: str, steps: Steps[str, None, Turn], round: int, report: Report, *, until: Phase | None
    ) -> Turn | None:
        """Drive a node up to a phase (None: to the end of its round, and return what it has to say)."""
        station = self._stations[name]
        while True:
            try:
                activity = next(steps)
            except StopIteration as end:
                turn: Turn = end.value
                return turn
            waiting_for = station.waiting_for(round) if activity == Phase.WAIT else []
            report.begins(name, activity, round=round, waiting_for=waiting_for)
            if activity == until:
                return None

    def save(self, folder: Path) -> Mapping[str, Kept]:
        """See `Crew.save`."""
        kept = {}
        for name, station in self._stations.items():
            (folder / name).mkdir()
            kept[name] = station.save(folder / name)
        return kept

    def finish(self, model_folder: Callable[[str], Path]) -> Mapping[str, Facts]:
        """See `Crew.finish`."""
        return {name: station.finish(model_folder(name)) for name, station in self._stations.items()}
