"""The verdict in words. Every clause follows from a number; what the numbers do not show is not said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from motet.reports.arms import Arm, Cell, Difference, differing_settings
from motet.reports.estimates import Estimate, Standing, as_percent, as_points, standing
from motet.reports.run_view import RunView

FEW_SEEDS = 5
"""Below this many seeds the standard error over seeds is itself little known, and a note says so."""

_AGAINST_ALONE: Mapping[Standing, str] = {
    "level": "ends level with training alone on",
    "above": "ends above training alone on",
    "below": "ends below training alone on",
    "unclear": "is not separated from training alone at this length on",
    "unknown": "cannot be judged against training alone, for want of a standard error, on",
}
_AGAINST_FTIS: Mapping[Standing, str] = {
    "below": "ends below {other} on",
    "above": "ends above {other} on",
    "level": "is not separated from {other} at this length on",
    "unclear": "is not separated from {other} at this length on",
    "unknown": "cannot be judged against {other}, for want of a standard error, on",
}
_GAIN: Mapping[Standing, str] = {
    "above": "improved",
    "below": "got worse",
    "level": "shows no change beyond chance",
    "unclear": "shows no change beyond chance",
    "unknown": "cannot be judged, for want of a standard error",
}


def verdict_on(arms: Sequence[Arm], cells: Mapping[tuple[str, str], Cell], differences: Sequence[Difference]) -> str:
    """One to three sentences on held-out accuracy in distribution."""
    swarm = _main_swarm(arms)
    if not any("test" in cell.accuracy and cell.accuracy["test"].end for cell in cells.values()):
        return "No held-out accuracy has been measured after training, so there is nothing to judge yet."
    headline = [row for row in differences if row.split == "test"]
    sentences = []
    if swarm is not None:
        against = [row for row in headline if row.arm == swarm.label and _method(arms, row.minus) == "on_policy"]
        if against:
            sentences.append(_sentence(swarm.label, against, _AGAINST_ALONE) + _generated(swarm, arms, cells) + ".")
    naive = next((arm for arm in arms if arm.method == "nois"), None)
    if naive is not None and swarm is not None and naive is not swarm:
        against = [row for row in headline if row.arm == naive.label and row.minus == swarm.label]
        if against:
            words = {key: phrase.format(other=swarm.label) for key, phrase in _AGAINST_FTIS.items()}
            sentences.append(_sentence(naive.label, against, words) + ".")
    judged = swarm or arms[0]
    if not sentences:
        return _gains(judged, cells, is_one_of_several=len(arms) > 1)
    stuck = _not_improved(judged, cells)
    return " ".join([*sentences, stuck] if stuck else sentences)


def notes_on(runs: Sequence[RunView], arms: Sequence[Arm]) -> tuple[str, ...]:
    """What a reader must know before trusting the numbers."""
    notes = [
        f"{run.name} was interrupted after round {run.rounds_done} of {run.rounds_planned or '?'}: it left no summary, "
        "its numbers are those of its last evaluation."
        for run in runs
        if not run.is_finished
    ]
    counted = [run for arm in arms for run in arm.runs]
    notes += [
        f"{run.path} repeats settings and seed of another run and is not counted." for run in runs if run not in counted
    ]
    notes += _on_lengths(counted)
    notes += _on_seeds(arms)
    if not any(arm.method == "on_policy" for arm in arms) and any(len(run.nodes) > 1 for run in counted):
        notes.append(
            "No run with method on_policy is given, so this does not say whether learning together beat training alone."
        )
    unlike = [key for key in differing_settings(counted) if key.startswith(("task.", "rollout.", "evaluation."))]
    if unlike:
        notes.append(f"The runs differ in {', '.join(unlike)}: their accuracies may not be comparable.")
    return tuple(notes)


def _on_lengths(runs: Sequence[RunView]) -> list[str]:
    lengths = sorted({run.rounds_done for run in runs})
    if len(lengths) < 2:
        return []
    return [f"The runs are not equally long: {', '.join(map(str, lengths))} rounds."]


def _on_seeds(arms: Sequence[Arm]) -> list[str]:
    counts = {len(arm.runs) for arm in arms}
    notes = []
    if 1 in counts:
        notes.append(
            "One seed: the standard error is that of the evaluation's prompts; how much another seed would differ "
            "is not in it."
        )
    if any(1 < count < FEW_SEEDS for count in counts):
        notes.append(f"Fewer than {FEW_SEEDS} seeds: the standard error over seeds is itself a rough estimate.")
    seeds = {tuple(run.seed for run in arm.runs) for arm in arms}
    if len(seeds) > 1:
        notes.append("The arms do not have the same seeds; differences use the seeds that both have.")
    return notes


def _main_swarm(arms: Sequence[Arm]) -> Arm | None:
    together = [arm for arm in arms if arm.method != "on_policy"]
    return next((arm for arm in together if arm.method == "f_tis"), together[0] if together else None)


def _method(arms: Sequence[Arm], label: str) -> str:
    return next(arm.method for arm in arms if arm.label == label)


def _sentence(label: str, rows: Sequence[Difference], words: Mapping[Standing, str]) -> str:
    by_phrase: dict[str, list[str]] = {phrase: [] for phrase in words.values()}
    for row in rows:
        by_phrase[words[standing(row.estimate)]].append(f"{row.node} ({as_points(row.estimate)})")
    clauses = [f"{phrase} {_listed(nodes)}" for phrase, nodes in by_phrase.items() if nodes]
    return f"{label} {'; it '.join(clauses)}"


def _generated(swarm: Arm, arms: Sequence[Arm], cells: Mapping[tuple[str, str], Cell]) -> str:
    """How much less a node generated than alone; nothing if runs of unequal length make that meaningless."""
    alone = next(arm for arm in arms if arm.method == "on_policy")
    if len({run.rounds_done for arm in (swarm, alone) for run in arm.runs}) > 1:
        return ""
    shares = []
    for (node, label), cell in cells.items():
        other = cells.get((node, alone.label))
        if label == swarm.label and other and cell.completions_generated and other.completions_generated:
            shares.append(round(100 * cell.completions_generated / other.completions_generated))
    if not shares:
        return ""
    share = f"{min(shares)}" if min(shares) == max(shares) else f"{min(shares)} to {max(shares)}"
    return f", each node generating {share} % of the completions that it generates alone"


def _gains(arm: Arm, cells: Mapping[tuple[str, str], Cell], *, is_one_of_several: bool) -> str:
    clauses = [
        f"{node} {_gain_words(start, end, gain)}" for node, start, end, gain in _journeys(arm, cells) if end is not None
    ]
    if not clauses:
        return "No held-out accuracy has been measured after training, so there is nothing to judge yet."
    lead = f"{arm.label}: " if is_one_of_several else ""
    return f"{lead}{'; '.join(clauses)}."


def _gain_words(start: Estimate | None, end: Estimate, gain: Estimate | None) -> str:
    if start is None or gain is None:
        return f"ends at {as_percent(end)}; its accuracy before training was not measured"
    return f"{_GAIN[standing(gain)]}: {as_percent(start)} before, {as_percent(end)} after ({as_points(gain)})"


def _not_improved(arm: Arm, cells: Mapping[tuple[str, str], Cell]) -> str:
    """The sentence without which "level with training alone" could mean that nobody learned anything."""
    stuck = [
        f"{node} ({as_points(gain)} from the start)"
        for node, _, _, gain in _journeys(arm, cells)
        if gain is not None and standing(gain) != "above"
    ]
    return f"No improvement beyond chance under {arm.label}: {_listed(stuck)}." if stuck else ""


def _journeys(
    arm: Arm, cells: Mapping[tuple[str, str], Cell]
) -> Iterable[tuple[str, Estimate | None, Estimate | None, Estimate | None]]:
    for (node, label), cell in cells.items():
        if label == arm.label and "test" in cell.accuracy:
            both = cell.accuracy["test"]
            yield node, both.start, both.end, both.gain


def _listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
