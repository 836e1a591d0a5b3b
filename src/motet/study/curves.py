"""The curves of a study as charts that `motet.reports.plots` draws: a row for each split, a column for each node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from motet.reports.charts import MAX_NODES, Chart, Line, Panel
from motet.study.intervals import Mean
from motet.study.rows import SPLITS
from motet.study.table import Table, accuracy

_WORDS: Final = {"test": "in distribution", "ood": "out of distribution"}
_FIRST: Final = ("f_tis", "tis", "f_vis", "vis", "f_nois", "nois")
"""Arms that are drawn first, beside one another; all others follow in the order of the study."""
_MOST_ARMS: Final = 6
"""Arms of one chart besides the baseline: more lines cannot be told apart."""
_COLUMNS: Final = 3


def curves_of(table: Table, pair: str, *, title: str) -> list[Chart]:
    """Held-out accuracy over rounds of every node of a pair under every arm, in as many charts as that takes.

    Args:
        table: the results.
        pair: its name.
        title: for people.
    """
    drawn = {row.arm for row in table.rows if row.pair == pair and row.curve.rounds}
    arms = [arm for arm in table.arms_of(pair) if arm in drawn]
    baseline = [arm for arm in arms if arm == table.baseline]
    others: list[str] = [arm for arm in _FIRST if arm in arms and arm not in baseline]
    others += [arm for arm in arms if arm not in others and arm not in baseline]
    parts = list(product(_cut(table.nodes(pair), MAX_NODES), _cut(others, _MOST_ARMS) or [[]]))
    return [
        _chart(
            table, pair, nodes, [*baseline, *lines], f"{title} ({part} of {len(parts)})" if len(parts) > 1 else title
        )
        for part, (nodes, lines) in enumerate(parts, 1)
    ]


def _cut(names: Sequence[str], most: int) -> list[Sequence[str]]:
    return [names[first : first + most] for first in range(0, len(names), most)]


def _chart(table: Table, pair: str, nodes: Sequence[str], arms: Sequence[str], title: str) -> Chart:
    splits = [split for split in SPLITS if any(row.curve.of(split) for row in table.rows if row.pair == pair)]
    return Chart(
        title=title,
        caption="Share of held-out prompts solved, each sampled once. Lines are means over seeds, bands one standard "
        "error either way. Dotted: before training.",
        unit="solved, %",
        panels=tuple(
            Panel(
                f"{node}, {_WORDS[split]}",
                tuple(line for arm in arms if (line := _line(table, pair, node, split, arm)) is not None),
                _level(table.start(pair, node, split)),
            )
            for row in _cut(nodes, _COLUMNS)
            for split in splits
            for node in row
        ),
        num_columns=min(len(nodes), _COLUMNS),
        shows_ends=True,
    )


def _level(start: Mean | None) -> tuple[float, str] | None:
    return None if start is None else (100 * start.value, "")


def _line(table: Table, pair: str, node: str, split: str, arm: str) -> Line | None:
    """Mean over seeds on the rounds that all have."""
    rows = [row for row in table.cell(pair, arm, node) if row.curve.of(split)]
    by_round = [dict(zip(row.curve.rounds, row.curve.of(split), strict=True)) for row in rows]
    rounds = sorted(set.intersection(*map(set, by_round))) if by_round else []
    if not rounds:
        return None
    points = [Mean.of([values[round] for values in by_round]) for round in rounds]
    end = table.mean(pair, arm, node, accuracy(split))
    return Line(
        label=arm,
        style=rows[0].method,
        rounds=tuple(map(float, rounds)),
        values=tuple(100 * point.value for point in points),
        errors=tuple(100 * (point.se or 0.0) for point in points) if len(rows) > 1 else (),
        end_error=None if end is None or end.se is None else 100 * end.se,
    )
