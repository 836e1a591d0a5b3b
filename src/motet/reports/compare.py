"""One run, or several beside each other: the numbers, the verdict, and both as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from motet.reports.arms import Arm, Cell, Difference, cell_of, differences_of, group_into_arms
from motet.reports.estimates import standing
from motet.reports.run_view import RunView
from motet.reports.verdict import notes_on, verdict_on


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one run, or several beside each other, came to.

    Attributes:
        arms: training alone first.
        nodes: names in the order of the run files.
        cells: by (node, label of the arm).
        differences: every arm against training alone, and every other arm against F-TIS, per node and split.
        verdict: one to three sentences made of these numbers and nothing else.
        notes: what a reader must know before trusting them, one sentence each.
    """

    arms: tuple[Arm, ...]
    nodes: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    differences: tuple[Difference, ...]
    verdict: str
    notes: tuple[str, ...]

    @property
    def runs(self) -> tuple[RunView, ...]:
        """All runs, arm by arm."""
        return tuple(run for arm in self.arms for run in arm.runs)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that were evaluated in any run, "test" first."""
        seen = {split for cell in self.cells.values() for split in cell.accuracy}
        return tuple(sorted(seen, key=lambda split: (split != "test", split != "ood", split)))

    def to_json(self) -> dict[str, object]:
        """The same as plain dictionaries and lists of JSON values; shares and accuracies in 0..1."""
        return {
            "verdict": self.verdict,
            "notes": list(self.notes),
            "runs": [_run_to_json(arm, run) for arm in self.arms for run in arm.runs],
            "nodes": {node: self._node_to_json(node) for node in self.nodes},
            "differences": [
                {
                    "node": row.node,
                    "split": row.split,
                    "arm": row.arm,
                    "minus": row.minus,
                    **asdict(row.estimate),
                    "standing": standing(row.estimate),
                }
                for row in self.differences
            ],
        }

    def _node_to_json(self, node: str) -> dict[str, object]:
        views = [view for run in self.runs if (view := run.node(node)) is not None]
        return {
            "model": next((view.model for view in views if view.model), None),
            "parameters": next((view.num_parameters for view in views if view.num_parameters), None),
            "arms": {arm.label: _cell_to_json(self.cells[node, arm.label], arm) for arm in self._arms_with(node)},
        }

    def _arms_with(self, node: str) -> list[Arm]:
        return [arm for arm in self.arms if (node, arm.label) in self.cells]


def compare(runs: Sequence[RunView]) -> Comparison:
    """Groups runs into arms, compares them node by node, and judges.

    Args:
        runs: at least one.
    """
    arms = group_into_arms(runs)
    nodes = tuple(dict.fromkeys(view.name for arm in arms for run in arm.runs for view in run.nodes))
    found = [cell_of(node, arm) for arm in arms for node in nodes]
    cells = {(cell.node, cell.arm): cell for cell in found if cell is not None}
    differences = differences_of(arms, cells)
    return Comparison(
        arms=arms,
        nodes=nodes,
        cells=cells,
        differences=differences,
        verdict=verdict_on(arms, cells, differences),
        notes=notes_on(runs, arms),
    )


def _run_to_json(arm: Arm, run: RunView) -> dict[str, object]:
    return {
        "path": str(run.path),
        "name": run.name,
        "arm": arm.label,
        "method": run.method,
        "seed": run.seed,
        "rounds": run.rounds_done,
        "finished": run.is_finished,
        "seconds": run.seconds,
    }


def _cell_to_json(cell: Cell, arm: Arm) -> dict[str, object]:
    seconds = [run.seconds for run in arm.runs if run.seconds is not None]
    return {
        "method": arm.method,
        "seeds": [run.seed for run in arm.runs],
        "accuracy": {
            split: {
                name: None if estimate is None else asdict(estimate)
                for name, estimate in (("start", both.start), ("end", both.end), ("gain", both.gain))
            }
            for split, both in cell.accuracy.items()
        },
        "completions_generated": cell.completions_generated,
        "tokens_sent": cell.tokens_sent,
        "bytes_sent": cell.bytes_sent,
        "bytes_per_token": cell.bytes_per_token,
        "seconds": sum(seconds) / len(seconds) if seconds else None,
    }
