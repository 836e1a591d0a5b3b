"""The report as Markdown: verdict, notes and tables, for a pull request or a page of documentation."""

from __future__ import annotations

from collections.abc import Sequence

from motet.reports.compare import Comparison
from motet.reports.estimates import Estimate, as_points, standing

_SPLITS = {"test": "held-out", "ood": "OOD"}
_STANDING = {"above": "above", "below": "below", "level": "level", "unclear": "not separated", "unknown": "-"}


def render_markdown(comparison: Comparison) -> str:
    """Accuracies in percent with one standard error, costs, and the differences between arms in points."""
    parts = [comparison.verdict, "", _accuracies(comparison)]
    if comparison.differences:
        parts += ["", _differences(comparison)]
    if comparison.notes:
        parts += ["", *(f"- {note}" for note in comparison.notes)]
    return "\n".join(parts) + "\n"


def _accuracies(comparison: Comparison) -> str:
    arms = comparison.arms
    rows: list[Sequence[str]] = []
    for node in comparison.nodes:
        found = [comparison.cells.get((node, arm.label)) for arm in arms]
        for split in comparison.splits:
            journeys = [cell.accuracy.get(split) if cell else None for cell in found]
            start = next((journey.start for journey in journeys if journey and journey.start), None)
            ends = [_percent(journey.end if journey else None) for journey in journeys]
            rows.append([node, _SPLITS.get(split, split), _percent(start), *ends])
        rows.append(
            [
                node,
                "completions generated",
                "",
                *(_number(cell.completions_generated if cell else None, 0) for cell in found),
            ]
        )
        rows.append(
            [node, "bytes per token", "", *(_number(cell.bytes_per_token if cell else None, 1) for cell in found)]
        )
    return _table(["model", "accuracy in %", "before", *(arm.label for arm in arms)], rows)


def _differences(comparison: Comparison) -> str:
    rows = [
        [
            row.node,
            _SPLITS.get(row.split, row.split),
            f"{row.arm} - {row.minus}",
            as_points(row.estimate),
            _STANDING[standing(row.estimate)],
        ]
        for row in comparison.differences
    ]
    return _table(["model", "prompts", "difference", "points", "reading"], rows)


def _percent(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{100 * estimate.value:.1f} \u00b1 {100 * (estimate.se or 0.0):.1f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
