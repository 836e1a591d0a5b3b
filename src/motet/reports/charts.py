"""What the curves show: series averaged over seeds and thinned out, as charts that `plots` draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from motet.reports.arms import Arm
from motet.reports.compare import Comparison
from motet.reports.estimates import Estimate, over_seeds
from motet.reports.run_view import NodeView, RunView, Series

MAX_POINTS = 60
"""Points of a curve; longer series are averaged over neighbouring rounds."""
MAX_NODES = 6
"""Nodes that are drawn; tables hold them all."""

_SPLIT_TITLES = {"test": "in distribution", "ood": "out of distribution"}
_DROP_REASONS = {
    "advantage": "advantage not above 0",
    "kl": "KL above the limit",
    "advantage_and_kl": "both",
    "non_finite": "not finite",
    "rule": "own rule",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        label: its entry in the legend; lines of equal label look alike.
        style: method or reason, which decides the colour.
        rounds: x.
        values: y.
        errors: one standard error over seeds per point; empty with one seed.
        end_error: standard error of the last point alone, if that is known.
        is_dashed: drawn dashed.
    """

    label: str
    style: str
    rounds: tuple[float, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...] = ()
    end_error: float | None = None
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. `level` is a horizontal line with its words."""

    title: str
    lines: tuple[Line, ...]
    level: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure.

    Attributes:
        title: heading.
        caption: what is drawn, for people who did not train the models.
        unit: label of the y axis.
        panels: row by row.
        num_columns: panels in a row.
        kind: "line", "stacked" (areas add up), or "log" (logarithmic y).
        shows_ends: write the last value beside each line.
    """

    title: str
    caption: str
    unit: str
    panels: tuple[Panel, ...]
    num_columns: int
    kind: str = "line"
    shows_ends: bool = False


def accuracy_chart(comparison: Comparison) -> Chart | None:
    """Held-out accuracy over rounds: a row for each split, a column for each node, a line for each arm."""
    nodes = comparison.nodes[:MAX_NODES]
    num_columns = min(len(nodes), 3)
    panels = []
    for first in range(0, len(nodes), num_columns):
        for split in comparison.splits:
            panels += [_accuracy_panel(comparison, node, split) for node in nodes[first : first + num_columns]]
    if not any(panel.lines for panel in panels):
        return None
    return Chart(
        title="Held-out accuracy",
        caption=(
            "Share of held-out prompts solved, each sampled once. "
            + _drawn_error(comparison)
            + " Dotted: before training."
        ),
        unit="solved, %",
        panels=tuple(panels),
        num_columns=num_columns,
        shows_ends=True,
    )


def process_charts(comparison: Comparison) -> list[Chart]:
    """The other curves, in the order of the page; those without data are left out."""
    kl_limits = {run.settings.get("method.kl_limit_nats") for run in comparison.runs if run.method.startswith("f_")}
    charts = [
        _per_node(
            comparison,
            Chart("Reward", "Mean reward of a node's own completions while training.", "reward", (), 1),
            {"reward/own_mean": False},
        )
        or _per_node(
            comparison,
            Chart("Reward", "Mean reward of the completions in a node's batch while training.", "reward", (), 1),
            {"reward/mean": False},
        ),
        _per_node(
            comparison,
            Chart(
                "Distance of external completions",
                "KL(pi_gen || pi_old) of external completions, summed over tokens: how unlike this node's own policy "
                "they are. Solid: median. Dashed: 95th percentile.",
                "nats",
                (),
                1,
                kind="log",
            ),
            {"kl_gen_old/sum_p50": False, "kl_gen_old/sum_p95": True},
            level=_limit(kl_limits),
        ),
        _dropped_chart(comparison),
        _per_node(
            comparison,
            Chart(
                "Influence of others",
                "External part of the sum of |advantage x weight| over the tokens that a node learned from.",
                "%",
                (),
                1,
            ),
            {"external/influence_share": False},
            scale=100.0,
        ),
        _per_node(
            comparison,
            Chart("Sent", "Payload published so far.", "MB", (), 1),
            {"wire/bytes_sent": False},
            scale=1e-6,
            prepare=_cumulative,
        ),
        _per_node(
            comparison,
            Chart("Bytes per token", "Payload published, by completion tokens in it.", "bytes", (), 1),
            {"wire/bytes_per_token": False},
        ),
    ]
    return [chart for chart in charts if chart is not None]


def line_over_seeds(label: str, style: str, series: Sequence[Series], *, scale: float = 1.0) -> Line | None:
    """Mean over seeds on the rounds that all have, with the standard error of several; None without such rounds.

    x counts the rounds that are done: the journal's round -1, before training, is 0.

    >>> line_over_seeds("F-TIS", "f_tis", [Series((0, 1), (1.0, 2.0)), Series((0, 1, 2), (3.0, 2.0, 9.0))]).values
    (2.0, 2.0)
    """
    by_round = [dict(zip(one.rounds, one.values, strict=True)) for one in series]
    rounds = sorted(set.intersection(*(set(one) for one in by_round))) if by_round else []
    if not rounds:
        return None
    points = [over_seeds([Estimate(scale * one[round], None) for one in by_round]) for round in rounds]
    known = [point for point in points if point is not None]
    return Line(
        label=label,
        style=style,
        rounds=tuple(float(round + 1) for round in rounds),
        values=tuple(point.value for point in known),
        errors=tuple(point.se or 0.0 for point in known) if len(series) > 1 else (),
    )


def thinned(series: Series) -> Series:
    """At most `MAX_POINTS` points: means over equally many neighbouring points, at the middle one's round."""
    width = math.ceil(len(series.rounds) / MAX_POINTS)
    if width <= 1:
        return series
    starts = range(0, len(series.rounds), width)
    chunks = [series.values[start : start + width] for start in starts]
    middles = [series.rounds[start : start + width] for start in starts]
    return Series(
        tuple(rounds[len(rounds) // 2] for rounds in middles),
        tuple(math.fsum(chunk) / len(chunk) for chunk in chunks),
    )


def _drawn_error(comparison: Comparison) -> str:
    if all(len(arm.runs) == 1 for arm in comparison.arms):
        return "The bar at the end is one standard error either way."
    return "Lines are means over seeds, bands one standard error over seeds either way."


def _accuracy_panel(comparison: Comparison, node: str, split: str) -> Panel:
    lines, starts = [], []
    for arm in comparison.arms:
        cell = comparison.cells.get((node, arm.label))
        line = line_over_seeds(arm.label, arm.method, _series_of(arm, node, f"accuracy/{split}"), scale=100.0)
        if cell is None or line is None:
            continue
        both = cell.accuracy.get(split)
        if both is not None and both.start is not None:
            starts.append(100 * both.start.value)
        if both is not None and both.end is not None and both.end.se is not None:
            line = replace(line, end_error=100 * both.end.se)
        lines.append(line)
    level = (sum(starts) / len(starts), "") if starts else None
    return Panel(f"{node}, {_SPLIT_TITLES.get(split, split)}", tuple(lines), level)


def _per_node(
    comparison: Comparison,
    chart: Chart,
    metrics: dict[str, bool],
    *,
    scale: float = 1.0,
    level: tuple[float, str] | None = None,
    prepare: Callable[[Series], Series] = lambda series: series,
) -> Chart | None:
    """Fills a chart with one panel per node. `metrics` maps names to whether their line is dashed."""
    panels = []
    for node in comparison.nodes[:MAX_NODES]:
        lines = []
        for arm in comparison.arms:
            for name, is_dashed in metrics.items():
                series = [thinned(prepare(one)) for one in _series_of(arm, node, name)]
                line = line_over_seeds(arm.label, arm.method, series, scale=scale)
                if line is not None and any(value != 0 for value in line.values):
                    lines.append(replace(line, is_dashed=is_dashed))
        panels.append(Panel(node, tuple(lines), level))
    if not any(panel.lines for panel in panels):
        return None
    return replace(
        chart,
        caption=f"{chart.caption}{_thinning(comparison.runs)}",
        panels=tuple(panels),
        num_columns=min(len(panels), 3),
    )


def _dropped_chart(comparison: Comparison) -> Chart | None:
    panels = []
    for arm in comparison.arms:
        for node in comparison.nodes[:MAX_NODES]:
            lines = _dropped_lines(arm, node)
            if lines:
                panels.append(Panel(f"{arm.label}: {node}" if len(comparison.arms) > 1 else node, lines))
    if not panels:
        return None
    return Chart(
        title="Dropped by the filter",
        caption="Share of external completions that the filter dropped, by reason." + _thinning(comparison.runs),
        unit="%",
        panels=tuple(panels),
        num_columns=min(len(comparison.nodes), 3),
        kind="stacked",
    )


def _dropped_lines(arm: Arm, node: str) -> tuple[Line, ...]:
    """The share dropped, divided among the reasons as their counts are."""
    lines = []
    for reason, words in _DROP_REASONS.items():
        shares = [_dropped_share(view, reason) for view in _views_of(arm, node)]
        series = [thinned(share) for share in shares if share is not None]
        line = line_over_seeds(words, reason, series, scale=100.0)
        if line is not None:
            lines.append(replace(line, errors=()))
    lengths = {line.rounds for line in lines}
    has_drops = any(value > 0 for line in lines for value in line.values)
    return tuple(line for line in lines if any(line.values)) if len(lengths) == 1 and has_drops else ()


def _dropped_share(view: NodeView, reason: str) -> Series | None:
    total = view.series.get("filter/dropped_share")
    if total is None:
        return None
    counts = {name: _by_round(view, f"filter/dropped/{name}") for name in _DROP_REASONS}
    values = []
    for round, share in zip(total.rounds, total.values, strict=True):
        num_dropped = math.fsum(by_round.get(round, 0.0) for by_round in counts.values())
        values.append(share * counts[reason].get(round, 0.0) / num_dropped if num_dropped > 0 else 0.0)
    return Series(total.rounds, tuple(values))


def _by_round(view: NodeView, name: str) -> dict[int, float]:
    series = view.series.get(name)
    return dict(zip(series.rounds, series.values, strict=True)) if series else {}


def _cumulative(series: Series) -> Series:
    total, sums = 0.0, []
    for value in series.values:
        total += value
        sums.append(total)
    return Series(series.rounds, tuple(sums))


def _views_of(arm: Arm, node: str) -> list[NodeView]:
    return [view for run in arm.runs if (view := run.node(node)) is not None]


def _series_of(arm: Arm, node: str, name: str) -> list[Series]:
    return [view.series[name] for view in _views_of(arm, node) if name in view.series]


def _limit(limits: set[str | None]) -> tuple[float, str] | None:
    if len(limits) != 1:
        return None
    text = limits.pop()
    return (float(text), "filter's limit") if text is not None and text.replace(".", "", 1).isdigit() else None


def _thinning(runs: Sequence[RunView]) -> str:
    width = math.ceil(max(run.rounds_done for run in runs) / MAX_POINTS)
    return f" A point is the mean of {width} rounds." if width > 1 else ""
