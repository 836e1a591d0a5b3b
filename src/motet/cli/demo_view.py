"""The live view of `motet demo`: held-out accuracy of every node in every arm, read from the arms' journals."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.cli.progress import bar, clock
from motet.journal import read_jsonl

if TYPE_CHECKING:
    from rich.console import RenderableType

_BLOCKS = [chr(0x2581 + step) for step in range(8)]
_SPARK_WIDTH = 14


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
        path: the arm's run directory.
        num_rounds: rounds it will have.
        rounds_done: rounds that all nodes have finished.
        held_out: accuracies so far, by node.
    """

    label: str
    path: Path
    num_rounds: int
    rounds_done: int = 0
    held_out: Mapping[str, list[float]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the journal again."""
        rows: list[dict[str, Any]] = read_jsonl(self.path / "metrics.jsonl")
        held_out: dict[str, list[float]] = {}
        last: dict[str, int] = {}
        for row in rows:
            last[row["node"]] = row["round"]
            if isinstance(row.get("accuracy/test"), float):
                held_out.setdefault(row["node"], []).append(row["accuracy/test"])
        self.rounds_done = min(last.values(), default=-1) + 1
        self.held_out = held_out


class DemoView:
    """All arms; renders itself as a table for a live display, or as lines for a pipe."""

    def __init__(self, arms: Sequence[ArmView]) -> None:
        self.arms = arms
        self._began = time.monotonic()
        self._done_at_start: int | None = None
        self._told: dict[tuple[Path, str], int] = {}

    def refresh(self) -> None:
        """Read all journals again."""
        for arm in self.arms:
            arm.refresh()
        if self._done_at_start is None:
            self._done_at_start = sum(arm.rounds_done for arm in self.arms)

    def render(self) -> RenderableType:
        """The table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        nodes = sorted({node for arm in self.arms for node in arm.held_out}, reverse=True)
        values = [value for arm in self.arms for curve in arm.held_out.values() for value in curve]
        low, high = min(values, default=0.0), max(values, default=1.0)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("arm", no_wrap=True)
        table.add_column("round", no_wrap=True)
        for node in nodes:
            table.add_column(f"{node}: held-out accuracy", no_wrap=True)
        for arm in self.arms:
            cells = [_curve(arm.held_out.get(node, []), low, high) for node in nodes]
            progress = f"{arm.rounds_done:>3}/{arm.num_rounds} {bar(arm.rounds_done / arm.num_rounds, 8)}"
            table.add_row(arm.label, progress, *cells)
        return Group(Text(self._headline()), table)

    def new_lines(self) -> list[str]:
        """One line for each accuracy that has come in since the last call."""
        lines = []
        for arm in self.arms:
            for node, curve in arm.held_out.items():
                if len(curve) > self._told.get((arm.path, node), 0):
                    self._told[arm.path, node] = len(curve)
                    lines.append(
                        f"t={time.monotonic() - self._began:.0f}s arm={arm.label} round={arm.rounds_done}/"
                        f"{arm.num_rounds} node={node} held_out={curve[-1]:.3f} start={curve[0]:.3f}"
                    )
        return lines

    def _headline(self) -> str:
        elapsed = time.monotonic() - self._began
        total = sum(arm.num_rounds for arm in self.arms)
        done = sum(arm.rounds_done for arm in self.arms)
        fresh = done - (self._done_at_start or 0)
        left = f", about {clock(elapsed / fresh * (total - done))} left" if fresh > 10 else ""
        return f"two models of different size learn to add, each in {len(self.arms)} arms    {clock(elapsed)}{left}"


def _curve(values: Sequence[float], low: float, high: float) -> str:
    if not values:
        return "-"
    return f"{100 * values[0]:.0f} -> {100 * values[-1]:.0f} % {spark(values, low, high)}"
