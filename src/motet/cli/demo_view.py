"""The live view of `motet demo`: held-out accuracy of every node in every arm, read from the arms' journals."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from motet.cli.progress import bar, clock, rounds_done_in
from motet.cli.workers import Job
from motet.journal import RunDir, read_jsonl

if TYPE_CHECKING:
    from rich.console import RenderableType

_ENOUGH_ROUNDS = 10
_BLOCKS = [chr(0x2581 + step) for step in range(8)]
_SPARK_WIDTH = 14
_CURVE_WIDTH = len("100 -> 100 ") + _SPARK_WIDTH


def spark(values: Sequence[float], low: float, high: float) -> str:
    """A curve in block characters, the newest value last.

    >>> len(spark([0.2, 0.4, 0.6], 0.2, 0.6))
    3
    """
    span = max(high - low, 1e-9)
    return "".join(_BLOCKS[round(7 * max(0.0, min(1.0, (v - low) / span)))] for v in values[-_SPARK_WIDTH:])


@dataclass(slots=True)
class ArmView:
    """One arm as its journal shows it.

    Attributes:
        label: for people, such as "alone".
        run_dir: the arm's run.
        nodes: its nodes' names.
        num_rounds: rounds it will have.
        job: the process that trains it; None if it was finished before.
        rounds_done: rounds that all nodes have finished.
        held_out: accuracies so far, by node.
    """

    label: str
    run_dir: RunDir
    nodes: Sequence[str]
    num_rounds: int
    job: Job | None
    rounds_done: int = 0
    held_out: Mapping[str, list[float]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the journal again."""
        held_out: dict[str, list[float]] = {node: [] for node in self.nodes}
        rounds_done = dict.fromkeys(self.nodes, 0)
        for row in read_jsonl(self.run_dir.metrics):
            rounds_done[row["node"]] = rounds_done_in(row)
            if isinstance(row.get("accuracy/test"), float):
                held_out[row["node"]].append(row["accuracy/test"])
        self.rounds_done = min(rounds_done.values())
        self.held_out = held_out

    def state(self) -> str:
        """What it does while there is no accuracy to show."""
        if self.job is not None and self.job.process is None:
            return "waits for a free processor"
        return "being examined, untrained" if self.run_dir.events.exists() else "loading the models"


class DemoView:
    """All arms; renders itself as a table for a live display, or as lines for a pipe."""

    def __init__(self, arms: Sequence[ArmView]) -> None:
        self.arms = arms
        self._began = self._advanced = time.monotonic()
        for arm in arms:
            arm.refresh()
        self._done_at_start = self._done = self._count_rounds()
        self._told: dict[tuple[Path, str], int] = {}

    def refresh(self) -> None:
        """Read all journals again."""
        for arm in self.arms:
            arm.refresh()
        if (done := self._count_rounds()) > self._done:
            self._done, self._advanced = done, time.monotonic()

    def render(self) -> RenderableType:
        """The table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        values = [value for arm in self.arms for curve in arm.held_out.values() for value in curve]
        low, high = min(values, default=0.0), max(values, default=1.0)
        nodes = self.arms[0].nodes
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("arm", no_wrap=True)
        table.add_column("rounds", no_wrap=True)
        for node in nodes:
            table.add_column(f"{node}: held-out, %", no_wrap=True, min_width=_CURVE_WIDTH)
        for arm in self.arms:
            cells = [_curve(arm.held_out[node], low, high) for node in nodes]
            if not any(cells):
                cells[0] = arm.state()
            progress = f"{arm.rounds_done:>3}/{arm.num_rounds} {bar(arm.rounds_done / arm.num_rounds, 8)}"
            table.add_row(arm.label, progress, *cells)
        return Group(Text(self._headline(), no_wrap=True, overflow="ellipsis"), table)

    def new_lines(self) -> list[str]:
        """One line for each accuracy that has come in since the last call."""
        lines = []
        for arm in self.arms:
            for node, curve in arm.held_out.items():
                if len(curve) > self._told.get((arm.run_dir.path, node), 0):
                    self._told[arm.run_dir.path, node] = len(curve)
                    lines.append(
                        f"t={time.monotonic() - self._began:.0f}s arm={arm.label.replace(' ', '_')} "
                        f"round={arm.rounds_done}/{arm.num_rounds} node={node} held_out={curve[-1]:.3f} "
                        f"start={curve[0]:.3f}"
                    )
        return lines

    def _count_rounds(self) -> int:
        return sum(arm.rounds_done for arm in self.arms)

    def _headline(self) -> str:
        now = time.monotonic()
        return f"{len(self.arms)} runs of the same models   {clock(now - self._began)}{self._left(now)}"

    def _left(self, now: float) -> str:
        """From the rounds done so far, examinations included; nothing before there are enough of them."""
        fresh = self._done - self._done_at_start
        missing = sum(arm.num_rounds for arm in self.arms) - self._done
        if fresh <= _ENOUGH_ROUNDS:
            return ""
        left = (self._advanced - self._began) / fresh * missing - (now - self._advanced)
        return f", about {clock(left)} left" if left >= 1 else ", nearly done"


def _curve(values: Sequence[float], low: float, high: float) -> str:
    if not values:
        return ""
    return f"{100 * values[0]:.0f} -> {100 * values[-1]:.0f} {spark(values, low, high)}"
