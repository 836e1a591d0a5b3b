"""The page of a study: verdicts first, then the tables that they rest on. Markdown, made of the rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from motet.config import StudyFile
from motet.study.claims import Verdict, judge, nobody_leaves_worse, points
from motet.study.intervals import Mean
from motet.study.rows import Row
from motet.study.table import Measure, Table, accuracy

_SPLITS: Final = {
    "test": "held-out",
    "ood": "OOD",
    "test_greedy": "held-out, greedy",
    "ood_greedy": "OOD, greedy",
}


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


def render_page(study: StudyFile, rows: Sequence[Row], now: Circumstances, pictures: Mapping[str, str]) -> str:
    """The whole page.

    Args:
        study: its file.
        rows: of finished runs; at least one.
        now: circumstances.
        pictures: path of the curves of each pair, as the page names it.
    """
    table = Table(rows, baseline=study.study.baseline)
    margin = study.study.margin_points / 100
    parts = [
        _head(study, rows, now),
        _verdicts("Claims", judge(table, margin=margin)),
        _verdicts("Does anybody leave worse?", _leavers(table, margin)),
    ]
    for pair in table.pairs:
        title = study.pair[pair].title or pair
        parts += [f"## {pair}: {title}", *_pair(table, pair, pictures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(study: StudyFile, rows: Sequence[Row], now: Circumstances) -> str:
    runs = {(row.pair, row.arm, row.seed) for row in rows}
    seeds = sorted({row.seed for row in rows})
    note = f" {now.missing} runs of the study are not finished and not in it." if now.missing else ""
    return (
        f"# Study: {study.study.name}\n\n"
        "This page is written by the command below from its results; nothing in it is edited by hand.\n\n"
        f"```\n{now.command}\n```\n\n"
        f"{now.date}; {now.machine}; {len(runs)} runs, {now.workers} side by side, {now.seconds / 60:.0f} minutes of "
        f"run time in all; seeds {', '.join(map(str, seeds))}.{note}\n\n"
        "All runs of a pair begin with the same weights and are asked the same held-out prompts; a seed decides "
        "training prompts and sampling. Accuracies are in percent, each prompt answered once at the run's "
        "temperature unless it says greedy, +- one standard error over seeds. Differences are in points, paired by seed, with their 95 % "
        "interval by Student's t, not corrected for their number. Raw numbers: one row for each run and node in the "
        "JSON file beside this page."
    )


def _verdicts(title: str, verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    rows = [[verdict.claim, f"**{verdict.standing}**", verdict.numbers] for verdict in verdicts]
    return f"## {title}\n\n" + _markdown(["claim", "verdict", "numbers"], rows)


def _leavers(table: Table, margin: float) -> list[Verdict]:
    return [found for arm in table.arms if (found := nobody_leaves_worse(table, arm, margin)) is not None]


def _pair(table: Table, pair: str, pictures: Mapping[str, str]) -> Iterator[str]:
    if pair in pictures:
        yield f"![curves of {pair}]({pictures[pair]})"
    arms = table.arms_of(pair)
    header = ["node", "accuracy", "before", *arms]
    yield _markdown(header, list(_accuracies(table, pair, arms)))
    others = [arm for arm in arms if arm != table.baseline]
    if others and table.baseline in arms:
        yield f"Difference from `{table.baseline}`, points:"
        yield _markdown(["node", "accuracy", *others], list(_differences(table, pair, others)))
    yield _markdown(["node", "per run", *arms], list(_costs(table, pair, arms)))


def _accuracies(table: Table, pair: str, arms: Sequence[str]) -> Iterator[list[str]]:
    for node in table.nodes(pair):
        for split, words in _SPLITS.items():
            means = [table.mean(pair, arm, node, accuracy(split)) for arm in arms]
            if any(means):
                start = next(row for row in table.rows if (row.pair, row.node) == (pair, node)).start.get(split)
                before = "-" if start is None else f"{100 * start:.1f}"
                yield [node, words, before, *map(_percent, means)]


def _differences(table: Table, pair: str, arms: Sequence[str]) -> Iterator[list[str]]:
    for node in table.nodes(pair):
        for split, words in _SPLITS.items():
            means = [table.difference(pair, node, arm, table.baseline, accuracy(split)) for arm in arms]
            if any(means):
                yield [node, words, *("-" if mean is None else points(mean) for mean in means)]


def _costs(table: Table, pair: str, arms: Sequence[str]) -> Iterator[list[str]]:
    for node in table.nodes(pair):
        reached = [table.to_baseline(pair, node, arm) for arm in arms]
        num_seeds = [len(table.cell(pair, arm, node)) for arm in arms]
        yield [
            node,
            f"rounds to the end of `{table.baseline}` (seeds that get there)",
            *(
                "-" if rounds is None else f"{rounds.value:.0f} ({count}/{total})"
                for (rounds, _, count), total in zip(reached, num_seeds, strict=True)
            ),
        ]
        yield [
            node,
            "seconds of own work until then",
            *("-" if seconds is None else f"{seconds.value:.0f}" for _, seconds, _ in reached),
        ]
        yield [node, "completions sampled", *_numbers(table, pair, node, arms, lambda row: row.completions, ",.0f")]
        yield [node, "seconds of own work", *_numbers(table, pair, node, arms, lambda row: row.node_seconds, ".0f")]
        yield [node, "bytes per token", *_numbers(table, pair, node, arms, lambda row: row.bytes_per_token, ".1f")]
        yield [node, "kept by the filter, %", *_numbers(table, pair, node, arms, _kept_percent, ".0f")]


def _numbers(table: Table, pair: str, node: str, arms: Sequence[str], measure: Measure, form: str) -> list[str]:
    means = [table.mean(pair, arm, node, measure) for arm in arms]
    return ["-" if mean is None else format(mean.value, form) for mean in means]


def _kept_percent(row: Row) -> float | None:
    return None if row.kept_share is None else 100 * row.kept_share


def _percent(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{100 * mean.value:.1f}" + ("" if mean.se is None else f" +- {100 * mean.se:.1f}")


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
