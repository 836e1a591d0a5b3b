"""The page of a study: verdicts first, then the tables that they rest on. Markdown, made of the rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from motet.config import StudyFile
from motet.config.dump import toml_value
from motet.study.claims import Verdict, judge, nobody_leaves_worse, points
from motet.study.intervals import Mean
from motet.study.rows import Row, dotted
from motet.study.table import CLOSE_ENOUGH, Table, accuracy, gain, has_collapsed

_SPLITS: Final = {
    "test": "held-out",
    "ood": "OOD",
    "test_greedy": "held-out, greedy",
    "ood_greedy": "OOD, greedy",
}
_COSTS: Final = (
    "rounds to the baseline",
    "work until then, s",
    "speed-up",
    "completions sampled",
    "work, s",
    "bytes per token",
    "kept by the filter, %",
    "collapsed",
)
_CLAIMS_NOTE: Final = (
    "*Holds* and *does not hold* need three seeds or more and intervals that leave no other reading; all else is *not "
    "shown*. Where one node among several decides, its interval is widened for their number; that many claims are "
    "judged is not corrected for."
)
_LEAVERS_NOTE: Final = (
    "A test of non-inferiority for each arm: it holds if, for every node, the one-sided 95 % bound of its difference "
    "from the baseline is above the margin, in distribution and out of it. Kept gain: what the weaker node of each "
    "pair gains from start to end, as a share of what it gains under `f_tis`. The best of several arms was partly "
    "chosen by luck: confirm it with other seeds."
)
_FRESH_NOTE: Final = (
    "The same test on seeds {seeds} alone, which had no part in the table above: what was picked there is confirmed "
    "here, or not."
)
_REPLAY_NOTE: Final = (
    "Held-out accuracy at the end minus at the start, points, with 95 % intervals over seeds; the share is that of the "
    "two means, where the first is above 0."
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a reader must know besides the rows.

    Attributes:
        command: the one that makes the page again.
        machine: what it ran on.
        date: of the page.
        seconds: work of all runs, from their own summaries.
        workers: runs side by side.
        missing: runs that the study has and the page has not.
    """

    command: str
    machine: str
    date: str
    seconds: float
    workers: int
    missing: int


def render_page(
    study: StudyFile, rows: Sequence[Row], now: Circumstances, pictures: Mapping[str, Sequence[str]]
) -> str:
    """The whole page.

    Args:
        study: its file.
        rows: of finished runs; at least one.
        now: circumstances.
        pictures: paths of the curves of each pair, as the page names them.
    """
    table = Table(rows, baseline=study.study.baseline)
    margin = study.study.margin_points / 100
    parts = [
        _head(study, rows, now),
        _verdicts("Claims", _CLAIMS_NOTE + _controls(study), judge(_without_controls(study, table), margin=margin)),
        *_leaving(study, rows, margin),
        _replays(study, table),
        "## Arms",
        _markdown(["arm", "what", "settings", "finished runs"], list(_arms(study, table))),
    ]
    for pair in table.pairs:
        title = study.pair[pair].title
        parts += [f"## {pair}: {title}" if title else f"## {pair}", *_pair(table, pair, pictures.get(pair, ()))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _controls(study: StudyFile) -> str:
    """Which pairs the claims are not judged by."""
    names = [f"`{name}`" for name, pair in study.pair.items() if pair.is_control]
    return f" Not judged by {' and '.join(names)}, made so that harm must show." if names else ""


def _without_controls(study: StudyFile, table: Table) -> Table:
    return Table([row for row in table.rows if not study.pair[row.pair].is_control], baseline=table.baseline)


def run_of(study: StudyFile, row: Row) -> tuple[str, str, int, str]:
    """What tells runs apart: all nodes of a pair train in one, but each replays alone."""
    return row.pair, row.arm, row.seed, row.node if row.arm in study.replay else ""


def _head(study: StudyFile, rows: Sequence[Row], now: Circumstances) -> str:
    runs = {run_of(study, row) for row in rows if row.arm not in study.choice}
    seeds = sorted({row.seed for row in rows})
    is_are = "is" if now.missing == 1 else "are"
    left_out = f" **{now.missing} of the runs of the study {is_are} not finished and not in it.**"
    note = f"{left_out} What earlier calls for other slices have finished is." if now.missing else ""
    return (
        f"# Study: {study.study.name}\n\n"
        "This page is written by the command below from its results; nothing in it is edited by hand.\n\n"
        f"```\n{now.command}\n```\n\n"
        f"{now.date}; {now.machine}; {len(runs)} runs, {now.workers} side by side, {now.seconds / 60:.0f} minutes of "
        f"run time in all; seeds {', '.join(map(str, seeds))}.{note}\n\n"
        "All runs of a pair begin with the same models and are asked the same held-out prompts; a seed decides "
        "training prompts, sampling and the beginning of adapters. Accuracies are in percent, each prompt answered "
        "once at the run's temperature unless it says greedy, +- one standard error over seeds. Differences are in "
        "points, paired by seed, with their 95 % interval by Student's t. Raw numbers: one row for each run and node "
        "in the JSON file beside this page."
    )


def _verdicts(title: str, note: str, verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    rows = [[verdict.claim, f"**{verdict.standing}**", verdict.numbers] for verdict in verdicts]
    return f"## {title}\n\n{note}\n\n" + _markdown(["claim", "verdict", "numbers"], rows)


def _leaving(study: StudyFile, rows: Sequence[Row], margin: float) -> Iterator[str]:
    """Who leaves worse, by the seeds that pick; then by those that confirm."""
    fresh = study.study.fresh_seeds
    picking, confirming = (
        Table([row for row in rows if (row.seed in fresh) == is_fresh], baseline=study.study.baseline)
        for is_fresh in (False, True)
    )
    yield _verdicts("Does anybody leave worse?", _LEAVERS_NOTE, _leavers(picking, margin))
    seeds = ", ".join(map(str, fresh))
    yield _verdicts("Confirmed on fresh seeds?", _FRESH_NOTE.format(seeds=seeds), _leavers(confirming, margin))


def _leavers(table: Table, margin: float) -> list[Verdict]:
    return [found for arm in table.arms if (found := nobody_leaves_worse(table, arm, margin)) is not None]


def _replays(study: StudyFile, table: Table) -> str:
    """How much of what a node gains while it samples it gains from the same groups afterwards."""
    rows = []
    for name, replay in study.replay.items():
        for pair, node in table.members(name, replay.of):
            gains = [table.shared(pair, node, *arms, gain) for arms in ((replay.of, name), (name, replay.of))]
            if gains[0]:
                live, again = map(Mean.of, gains)
                share = f"{100 * again.value / live.value:.0f}" if live.low > 0 else "-"
                rows.append([pair, node, name, points(live), points(again), share])
    if not rows:
        return ""
    header = ["pair", "node", "replay", "gain while sampling", "gain from what was sampled", "share kept, %"]
    return f"## Replay\n\n{_REPLAY_NOTE}\n\n" + _markdown(header, rows)


def _arms(study: StudyFile, table: Table) -> Iterator[list[str]]:
    """Every arm of the study, also one of which no run is finished."""
    for name, arm in study.arm.items():
        settings = ", ".join(f"`{key} = {toml_value(value)}`" for key, value in dotted(arm.settings).items())
        title = arm.title + (" (baseline)" if name == table.baseline else "")
        num_runs = len({(row.pair, row.seed) for row in table.rows if row.arm == name})
        yield [name, title.strip() or "-", settings or "-", str(num_runs)]
    for name, replay in study.replay.items():
        words = replay.title or "learns once more from what was sampled, without sampling"
        changed = ", ".join(f"`{key} = {toml_value(value)}`" for key, value in dotted(replay.settings).items())
        num_runs = len({(row.pair, row.seed, row.node) for row in table.rows if row.arm == name})
        yield [name, words, f"groups of `{replay.of}`" + (f", {changed}" if changed else ""), str(num_runs)]
    for name, choice in study.choice.items():
        taken = Counter(row.settings["taken"] for row in table.rows if row.arm == name)
        counts = ", ".join(f"{arm} {taken[arm]}" for arm in (choice.reference, *choice.of))
        title = choice.title or "the best that is no worse than the reference"
        yield [
            name,
            title,
            f"of `{choice.reference}` and {', '.join(f'`{arm}`' for arm in choice.of)}",
            f"took {counts}",
        ]


def _pair(table: Table, pair: str, pictures: Sequence[str]) -> Iterator[str]:
    for picture in pictures:
        yield f"![curves of {pair}]({picture})"
    arms = table.arms_of(pair)
    splits = [split for split in _SPLITS if any(split in row.accuracy for row in table.rows if row.pair == pair)]
    words = [_SPLITS[split] for split in splits]
    yield _markdown(["node", "arm", *words], list(_accuracies(table, pair, arms, splits)))
    others = [arm for arm in arms if arm != table.baseline]
    if others and table.baseline in arms:
        yield f"Difference from `{table.baseline}`, points:"
        yield _markdown(["node", "arm", *words], list(_differences(table, pair, others, splits)))
    yield (
        f"What it took. Reaching `{table.baseline}`: rounds, and seconds of the node's own work, until held-out "
        f"accuracy is within {100 * CLOSE_ENOUGH:.0f} point of where `{table.baseline}` ends; the mean of the seeds "
        "that get there, whose number stands in brackets. Speed-up: by those seconds, against the baseline's own. "
        "Collapsed: ends below its start by more than chance."
    )
    yield _markdown(["node", "arm", *_COSTS], list(_costs(table, pair, arms)))


def _accuracies(table: Table, pair: str, arms: Sequence[str], splits: Sequence[str]) -> Iterator[list[str]]:
    for node in table.nodes(pair):
        yield [node, "before training", *(_percent(table.start(pair, node, split)) for split in splits)]
        for arm in arms:
            if table.cell(pair, arm, node):
                yield [node, arm, *(_percent(table.mean(pair, arm, node, accuracy(split))) for split in splits)]


def _differences(table: Table, pair: str, arms: Sequence[str], splits: Sequence[str]) -> Iterator[list[str]]:
    for node in table.nodes(pair):
        for arm in arms:
            means = [table.difference(pair, node, arm, table.baseline, accuracy(split)) for split in splits]
            if any(means):
                yield [node, arm, *("-" if mean is None else points(mean) for mean in means)]


def _costs(table: Table, pair: str, arms: Sequence[str]) -> Iterator[list[str]]:
    for node, arm in product(table.nodes(pair), arms):
        rows = table.cell(pair, arm, node)
        if not rows:
            continue
        rounds, seconds, num_reached = table.to_baseline(pair, node, arm)
        num_collapsed = sum(map(has_collapsed, rows))
        yield [
            node,
            arm,
            f"{_number(rounds, '.0f')} ({num_reached}/{len(rows)})" if any(row.curve.rounds for row in rows) else "-",
            _number(seconds, ".0f"),
            _speed_up(table.to_baseline(pair, node, table.baseline)[1], seconds),
            _number(table.mean(pair, arm, node, lambda row: row.completions), ",.0f"),
            _number(table.mean(pair, arm, node, lambda row: row.node_seconds), ",.0f"),
            _number(table.mean(pair, arm, node, lambda row: row.bytes_per_token), ".1f"),
            _number(table.mean(pair, arm, node, _kept_percent), ".0f"),
            f"{num_collapsed}/{len(rows)}",
        ]


def _speed_up(of_baseline: Mean | None, seconds: Mean | None) -> str:
    """How many times sooner; nothing where either never gets there, or begins there."""
    if of_baseline is None or seconds is None or seconds.value <= 0:
        return "-"
    return f"{of_baseline.value / seconds.value:.1f}x"


def _number(mean: Mean | None, form: str) -> str:
    return "-" if mean is None else format(mean.value, form)


def _kept_percent(row: Row) -> float | None:
    return None if row.kept_share is None else 100 * row.kept_share


def _percent(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{100 * mean.value:.1f}" + ("" if mean.se is None else f" +- {100 * mean.se:.1f}")


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
