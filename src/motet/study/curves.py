"""The curves of a study as charts that `motet.reports.plots` draws: a row for each split, a column for each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from motet.reports.charts import Chart, Line, Panel
from motet.study.intervals import Mean
from motet.study.rows import SPLITS
from motet.study.table import Table, accuracy

_WORDS: Final = {"test": "in distribution", "ood": "out of distribution"}
METHODS: Final = ("alone", "f_tis", "tis", "f_vis", "vis", "f_nois", "nois")
"""Arms that are drawn, where a study has them: more lines cannot be told apart."""


def curves_of(table: Table, pair: str, *, title: str) -> Chart:
    """Held-out accuracy over rounds of every node of a pair.

    Args:
        table: the results.
        pair: its name.
        title: for people.
    """
    nodes = table.nodes(pair)
    arms = [arm for arm in table.arms_of(pair) if arm in METHODS] or table.arms_of(pair)
    panels = [
        Panel(
            f"{node}, {_WORDS[split]}", tuple(_lines(table, pair, node, split, arms)), _start(table, pair, node, split)
        )
        for split in SPLITS
        for node in nodes
    ]
    return Chart(
        title=title,
        caption="Share of held-out prompts solved, each sampled once. Lines are means over seeds, bands one standard "
        "error either way. Dotted: before training.",
        unit="solved, %",
        panels=tuple(panels),
        num_columns=min(len(nodes), 3),
        shows_ends=True,
    )


def _start(table: Table, pair: str, node: str, split: str) -> tuple[float, str] | None:
    rows = table.cell(pair, table.baseline, node)
    return (100 * rows[0].start[split], "") if rows and split in rows[0].start else None


def _lines(table: Table, pair: str, node: str, split: str, arms: Sequence[str]) -> list[Line]:
    lines = []
    for arm in arms:
        rows = [row for row in table.cell(pair, arm, node) if row.curve.of(split)]
        if not rows or len({row.curve.rounds for row in rows}) > 1:
            continue
        points = [Mean.of(values) for values in zip(*(row.curve.of(split) for row in rows), strict=True)]
        end = table.mean(pair, arm, node, accuracy(split))
        lines.append(
            Line(
                label=arm,
                style=rows[0].method,
                rounds=tuple(map(float, rows[0].curve.rounds)),
                values=tuple(100 * point.value for point in points),
                errors=tuple(100 * (point.se or 0.0) for point in points) if len(rows) > 1 else (),
                end_error=None if end is None or end.se is None else 100 * end.se,
            )
        )
    return lines
