"""The report as one page: no script, no network, and every text of a run escaped, since strangers chose the names."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from motet.reports.arms import Arm
from motet.reports.charts import Chart, accuracy_chart, process_charts
from motet.reports.compare import Comparison
from motet.reports.estimates import Standing, as_percent, as_points, standing
from motet.reports.page_style import CSS
from motet.reports.plots import draw_svg
from motet.reports.run_view import PeerRow, RunView
from motet.reports.samples import Answer, before_and_after

MAX_EVENTS = 100
"""Rows of the table of events; the journal holds them all."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SPLITS = {"test": "in distribution", "ood": "out of distribution"}
_STANDING_WORDS: dict[Standing, str] = {
    "above": "above",
    "below": "below",
    "level": "level",
    "unclear": "not separated",
    "unknown": "no standard error",
}
_PHASES = {
    "time/generate_s": "generate",
    "time/publish_s": "publish",
    "time/wait_s": "wait for peers",
    "time/admit_s": "admit",
    "time/learn_s": "learn",
    "time/evaluate_s": "evaluate",
}
_SHORT = 24  # characters of a cell that is not broken into lines
_ROUTINE_EVENTS = frozenset({"started", "evaluated", "checkpoint", "finished"})


def render_page(comparison: Comparison) -> str:
    """The whole page: verdict, numbers, curves, ledger, time, events, settings, how to run again, versions."""
    title = ", ".join(dict.fromkeys(run.name for run in comparison.runs))
    sections = [
        _header(comparison, title),
        _section("Held-out accuracy", _accuracy_table(comparison) + _differences_table(comparison)),
        _section("Curves", _curves(comparison)),
        _section("The same prompts before and after", _samples(comparison)),
        _section("Cost", _cost_table(comparison)),
        _section("Who learned from whom", _ledger_table(comparison)),
        _section("Time per phase", _time_table(comparison)),
        _section("Events", _events_table(comparison)),
        _section("Settings", _settings(comparison)),
        _section("Run it again", _commands(comparison)),
        _section("Runs, seeds and versions", _versions(comparison)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} - motet report</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _header(comparison: Comparison, title: str) -> str:
    seeds = sorted({run.seed for run in comparison.runs})
    kicker = f"motet report: {title}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return (
        f'<header>\n<p class="kicker">{escape(kicker)}</p>\n<h1>{escape(_unbroken(comparison.verdict))}</h1>\n'
        f'<div class="tiles">{"".join(_tile(comparison, node) for node in comparison.nodes)}</div>\n'
        '<p class="soft">Held-out accuracy; &plusmn; is one standard error. Above and below: by more than two. '
        "Level: within two, and within 3 points. Not separated: neither.</p>\n"
        f'<ul class="notes">{notes}</ul>\n</header>\n'
    )


def _unbroken(text: str) -> str:
    """A number stays on one line with its error."""
    return text.replace(" \u00b1 ", "\u00a0\u00b1\u00a0")


def _tile(comparison: Comparison, node: str) -> str:
    arms = [arm for arm in comparison.arms if (node, arm.label) in comparison.cells]
    together = [arm for arm in arms if arm.method != "on_policy"]
    shown = (together or arms)[0]
    journey = comparison.cells[node, shown.label].accuracy.get("test")
    start, end = (journey.start, journey.end) if journey else (None, None)
    others = "; ".join(
        f"{arm.label}: {as_percent(both.end)}"
        for arm in arms
        if arm is not shown and (both := comparison.cells[node, arm.label].accuracy.get("test")) is not None
    )
    before = f"{100 * start.value:.1f}" if start else "?"
    return (
        f'<div class="tile"><span class="name">{escape(node)}</span> <small>{escape(_model(comparison, node))}</small>'
        f"<b>{before} &rarr; {escape(as_percent(end))}</b><small>{escape(shown.label)}"
        f"{'; ' if others else ''}{escape(others)}</small></div>"
    )


def _model(comparison: Comparison, node: str) -> str:
    views = [view for run in comparison.runs if (view := run.node(node)) is not None]
    size = next((view.num_parameters for view in views if view.num_parameters), None)
    return ", ".join(filter(None, [views[0].model, f"{size:,} parameters" if size else ""]))


def _accuracy_table(comparison: Comparison) -> str:
    rows = []
    for node in comparison.nodes:
        for split in comparison.splits:
            found = [comparison.cells.get((node, arm.label)) for arm in comparison.arms]
            journeys = [cell.accuracy.get(split) if cell else None for cell in found]
            start = next((both.start for both in journeys if both and both.start), None)
            ends = [as_percent(both.end if both else None) for both in journeys]
            gain = [as_points(both.gain if both else None) for both in journeys]
            tail = gain if len(comparison.arms) == 1 else []
            rows.append([node, _SPLITS.get(split, split), as_percent(start), *ends, *tail])
    single = len(comparison.arms) == 1
    head = [
        "node",
        "held-out prompts",
        "before",
        *(arm.label for arm in comparison.arms),
        *(["change"] if single else []),
    ]
    return _table(head, rows, num_text=2)


def _differences_table(comparison: Comparison) -> str:
    if not comparison.differences:
        return ""
    rows = [
        [
            row.node,
            _SPLITS.get(row.split, row.split),
            f"{row.arm} minus {row.minus}",
            _STANDING_WORDS[standing(row.estimate)],
            as_points(row.estimate),
        ]
        for row in comparison.differences
    ]
    return (
        f"<h3>Differences at the end</h3>{_table(['node', 'held-out prompts', 'of', 'reading', ''], rows, num_text=4)}"
    )


def _curves(comparison: Comparison) -> str:
    first = accuracy_chart(comparison)
    charts = [*([first] if first else []), *process_charts(comparison)]
    return "".join(_figure(chart, f"c{position}") for position, chart in enumerate(charts))


def _figure(chart: Chart, name: str) -> str:
    return (
        f"<h3>{escape(chart.title)}</h3><figure><figcaption>{escape(chart.caption)}</figcaption>"
        f"{draw_svg(chart, name=name)}</figure>\n"
    )


def _samples(comparison: Comparison) -> str:
    """Answers of the first run together (or of the only one): what the numbers look like as text."""
    run = next((run for run in comparison.runs if run.method != "on_policy"), comparison.runs[0])
    rows = [
        [view.name, _SPLITS.get(row.split, row.split), row.prompt, *_texts(row.before), *_texts(row.after)]
        for view in run.nodes
        for row in before_and_after(run, view.name)
    ]
    head = ["node", "prompts", "prompt", "before", "reward", "after", "reward"]
    caption = f"<p>Run {escape(run.name)}, seed {run.seed}; one sample each.</p>"
    return caption + _table(head, rows, num_text=len(head)) if rows else ""


def _texts(answer: Answer) -> tuple[str, str]:
    return answer.text, "-" if answer.reward is None else f"{answer.reward:g}"


def _cost_table(comparison: Comparison) -> str:
    rows = []
    for node in comparison.nodes:
        for arm in comparison.arms:
            cell = comparison.cells.get((node, arm.label))
            if cell is None:
                continue
            rows.append(
                [
                    node,
                    arm.label,
                    _whole(cell.completions_generated),
                    _whole(cell.tokens_sent),
                    "-" if cell.bytes_sent is None else f"{cell.bytes_sent / 1e6:,.2f}",
                    "-" if cell.bytes_per_token is None else f"{cell.bytes_per_token:.2f}",
                ]
            )
    head = ["node", "arm", "completions generated", "tokens sent", "MB sent", "bytes per token"]
    return _table(head, rows, num_text=2) + _over_seeds(comparison)


def _ledger_table(comparison: Comparison) -> str:
    rows = []
    for arm in comparison.arms:
        for node in comparison.nodes:
            for peer, entries in _by_peer(arm, node).items():
                rows.append(_ledger_row(arm, node, peer, entries))
    if not rows:
        return '<p class="soft">No groups of peers in the ledger.</p>'
    head = ["arm", "node", "from", "rejected, by reason", "dropped, by reason"]
    counts = ["received", "accepted", "late", "kept", "share kept"]
    summed = "" if all(len(arm.runs) == 1 for arm in comparison.arms) else " Sums over seeds."
    return (
        '<p class="soft">The gate accepts or rejects whole groups, so received, accepted, rejected and late count '
        f"groups. The filter keeps or drops single completions of accepted groups.{summed}"
        f"</p>{_table([*head, *counts], rows, num_text=5)}"
    )


def _by_peer(arm: Arm, node: str) -> dict[str, list[PeerRow]]:
    entries: dict[str, list[PeerRow]] = {}
    for run in arm.runs:
        view = run.node(node)
        for row in view.ledger if view else ():
            entries.setdefault(row.peer, []).append(row)
    return entries


def _ledger_row(arm: Arm, node: str, peer: str, entries: Sequence[PeerRow]) -> list[str]:
    kept = sum(row.kept for row in entries)
    judged = kept + sum(sum(row.dropped.values()) for row in entries)
    return [
        arm.label,
        node,
        peer,
        _reasons(row.rejected for row in entries),
        _reasons(row.dropped for row in entries),
        f"{sum(row.received for row in entries):,}",
        f"{sum(row.accepted for row in entries):,}",
        f"{sum(row.late for row in entries):,}",
        f"{kept:,}",
        f"{100 * kept / judged:.0f} %" if judged else "-",
    ]


def _reasons(counts: Iterable[Mapping[str, int]]) -> str:
    total: dict[str, int] = {}
    for by_reason in counts:
        for reason, number in by_reason.items():
            total[reason] = total.get(reason, 0) + number
    told = [f"{number:,} {reason}" for reason, number in sorted(total.items(), key=lambda item: -item[1]) if number]
    return "; ".join(told) or "none"


def _time_table(comparison: Comparison) -> str:
    rows = []
    for arm in comparison.arms:
        for node in comparison.nodes:
            totals = {words: _mean_total(arm, node, metric) for metric, words in _PHASES.items()}
            all_s = math.fsum(total for total in totals.values() if total is not None)
            if all_s > 0:
                shares = [
                    "-" if total is None else f"{total:,.1f} s ({100 * total / all_s:.0f} %)"
                    for total in totals.values()
                ]
                rows.append([arm.label, node, *shares, _idle(arm, node)])
    if not rows:
        return '<p class="soft">The runs wrote no times.</p>'
    words = (
        '<p class="soft">Idle is the mean share of a round in which the node waited for peers and did not sample '
        "either.</p>"
    )
    return words + _table(["arm", "node", *_PHASES.values(), "idle"], rows, num_text=2) + _over_seeds(comparison)


def _idle(arm: Arm, node: str) -> str:
    views = [view for run in arm.runs if (view := run.node(node)) is not None]
    shares = [share for view in views if (idle := view.series.get("time/idle_share")) for share in idle.values]
    return f"{100 * math.fsum(shares) / len(shares):.0f} %" if shares else "-"


def _mean_total(arm: Arm, node: str, metric: str) -> float | None:
    views = [view for run in arm.runs if (view := run.node(node)) is not None]
    totals = [math.fsum(view.series[metric].values) for view in views if metric in view.series]
    return math.fsum(totals) / len(totals) if totals else None


def _events_table(comparison: Comparison) -> str:
    events = [(run, event) for run in comparison.runs for event in run.events if event.kind not in _ROUTINE_EVENTS]
    if not events:
        return '<p class="soft">Nothing out of the ordinary: no peer left, no resume, no non-finite step.</p>'
    rows = [
        [
            f"{run.name}, seed {run.seed}",
            "-" if event.round is None else str(event.round),
            event.node,
            event.kind,
            event.text,
        ]
        for run, event in events[:MAX_EVENTS]
    ]
    more = f'<p class="soft">{len(events) - MAX_EVENTS} further events are in the journal.</p>'
    shown = _table(["run", "round", "node", "event", "in words"], rows, num_text=5)
    return shown + (more if len(events) > MAX_EVENTS else "")


def _settings(comparison: Comparison) -> str:
    keys = list(dict.fromkeys(key for run in comparison.runs for key in run.settings))
    if not keys:
        return '<p class="soft">The runs left no config.toml.</p>'
    values = {key: ["; ".join(_values(arm, key)) for arm in comparison.arms] for key in keys}
    differing = [[key, *values[key]] for key in keys if len(set(values[key])) > 1]
    shared = [[key, values[key][0]] for key in keys if len(set(values[key])) == 1]
    head = ["setting", *(arm.label for arm in comparison.arms)]
    several = len(comparison.arms) > 1
    table = "<h3>Where the arms differ</h3>" + _table(head, differing, num_text=len(head)) if several else ""
    heading = "Settings that all arms share" if several else "All settings"
    return f"{table}<details><summary>{heading}</summary>{_table(['setting', 'value'], shared, num_text=2)}</details>"


def _values(arm: Arm, key: str) -> list[str]:
    return list(dict.fromkeys(run.settings.get(key, "-") for run in arm.runs))


def _commands(comparison: Comparison) -> str:
    runs = comparison.runs
    names = [f"{run.name}-again{f'-{position}' if len(runs) > 1 else ''}" for position, run in enumerate(runs, start=1)]
    lines = [
        f"motet swarm {shlex.quote(str(run.path / 'config.toml'))} --set run.name={shlex.quote(name)}"
        for run, name in zip(runs, names, strict=True)
    ]
    return (
        '<p class="soft">Each config.toml holds every setting, the seed included; the same machine and versions give '
        f"the same numbers.</p><pre>{escape(chr(10).join(lines))}</pre>"
    )


def _versions(comparison: Comparison) -> str:
    rows = [
        [run.name, run.method, str(run.seed), _state(run), "-" if run.seconds is None else f"{run.seconds:,.1f}"]
        for run in comparison.runs
    ]
    table = _table(["run", "method", "seed", "state", "seconds"], rows, num_text=4)
    keys = list(dict.fromkeys(key for run in comparison.runs for key in run.provenance if key != "seed"))
    facts = [[key, "; ".join(dict.fromkeys(run.provenance.get(key, "-") for run in comparison.runs))] for key in keys]
    return table + (_table(["", ""], facts, num_text=2) if facts else "")


def _state(run: RunView) -> str:
    planned = f" of {run.rounds_planned}" if run.rounds_planned else ""
    return f"{'finished' if run.is_finished else 'interrupted'}, {run.rounds_done}{planned} rounds"


def _over_seeds(comparison: Comparison) -> str:
    several = any(len(arm.runs) > 1 for arm in comparison.arms)
    return '<p class="soft">Means over seeds.</p>' if several else ""


def _whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _section(title: str, content: str) -> str:
    """Nothing at all where there is nothing to show."""
    if not content:
        return ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, num_text: int) -> str:
    """Escapes every cell. The first `num_text` columns are text, the others numbers."""
    body = "".join(f"<tr>{_cells('td', row, num_text)}</tr>\n" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{_cells("th", head, num_text)}</tr></thead><tbody>\n'
        f"{body}</tbody></table></div>"
    )


def _cells(tag: str, row: Sequence[str], num_text: int) -> str:
    kinds = [
        "number" if position >= num_text else "short" if len(text) <= _SHORT else "long"
        for position, text in enumerate(row)
    ]
    return "".join(f'<{tag} class="{kind}">{escape(text)}</{tag}>' for text, kind in zip(row, kinds, strict=True))
