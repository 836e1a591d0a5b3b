"""Runs grouped into arms, and what each node came to in each arm.

An arm is the runs that differ in nothing but their seed; usually one per method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from motet.reports.estimates import Estimate, difference, over_seeds
from motet.reports.run_view import NodeView, RunView

METHOD_LABELS: Mapping[str, str] = {
    "on_policy": "alone",
    "nois": "NoIS",
    "vis": "VIS",
    "tis": "TIS",
    "f_nois": "F-NoIS",
    "f_vis": "F-VIS",
    "f_tis": "F-TIS",
}
_METHOD_ORDER = ("on_policy", "f_tis", "f_vis", "f_nois", "tis", "vis", "nois")
_SETTINGS_OF_NO_ARM = ("run.seed", "run.name", "run.dir", "run.checkpoint_every")


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs that differ in nothing but their seed.

    Attributes:
        label: for people; unique in a comparison, such as "F-TIS" or "F-TIS, method.cap = 3". Names own functions.
        method: name of the method, as in the run file.
        runs: one per seed, in order of seeds.
    """

    label: str
    method: str
    runs: tuple[RunView, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """Held-out accuracy of one node on one split, before and after training, over the seeds of an arm.

    Attributes:
        start: before the first round.
        end: at the last evaluation.
        gain: end minus start, paired by seed.
        end_by_seed: what `end` was made of.
    """

    start: Estimate | None
    end: Estimate | None
    gain: Estimate | None
    end_by_seed: Mapping[int, Estimate]


@dataclass(frozen=True, slots=True)
class Cell:
    """One node in one arm. Counts are means over seeds, None if the runs did not write them."""

    node: str
    arm: str
    accuracy: Mapping[str, Progress]
    completions_generated: float | None
    tokens_sent: float | None
    bytes_sent: float | None
    bytes_per_token: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Final accuracy of a node under `arm`, minus that under `minus`."""

    node: str
    split: str
    arm: str
    minus: str
    estimate: Estimate


def group_into_arms(runs: Sequence[RunView]) -> tuple[Arm, ...]:
    """Arms in the order alone, F-TIS, the rest. Of two runs with the same settings and seed, the first counts."""
    families: dict[tuple[tuple[str, str], ...], list[RunView]] = {}
    for run in runs:
        family = families.setdefault(_identity(run), [])
        if run.seed not in [other.seed for other in family]:
            family.append(run)
    arms = [
        Arm(_label(identity, families), family[0].method, _by_seed(family)) for identity, family in families.items()
    ]
    return tuple(sorted(arms, key=_arm_order))


def cell_of(node: str, arm: Arm) -> Cell | None:
    """What a node came to in an arm, or None if it took part in none of its runs."""
    views = {run.seed: view for run in arm.runs if (view := run.node(node)) is not None}
    if not views:
        return None
    splits = dict.fromkeys(split for view in views.values() for split in view.accuracy)
    return Cell(
        node=node,
        arm=arm.label,
        accuracy={split: _progress(views, split) for split in splits},
        completions_generated=_mean(views, lambda view: view.completions_generated),
        tokens_sent=_mean(views, lambda view: view.tokens_sent),
        bytes_sent=_mean(views, lambda view: view.bytes_sent),
        bytes_per_token=_mean(views, lambda view: view.bytes_per_token),
    )


def differences_of(arms: Sequence[Arm], cells: Mapping[tuple[str, str], Cell]) -> tuple[Difference, ...]:
    """Every arm minus training alone, and every further arm minus F-TIS, wherever both have an accuracy."""
    alone = next((arm.label for arm in arms if arm.method == "on_policy"), None)
    ftis = next((arm.label for arm in arms if arm.method == "f_tis"), None)
    pairs = [(arm.label, alone) for arm in arms if alone and arm.label != alone]
    pairs += [(arm.label, ftis) for arm in arms if ftis and arm.label not in (alone, ftis)]
    rows = []
    for label, minus in pairs:
        for (node, other), cell in cells.items():
            against = cells.get((node, str(minus)))
            if other != label or against is None:
                continue
            for split in cell.accuracy.keys() & against.accuracy.keys():
                found = difference(cell.accuracy[split].end_by_seed, against.accuracy[split].end_by_seed)
                if found is not None:
                    rows.append(Difference(node, split, label, str(minus), found))
    order = {label: position for position, label in enumerate(pairs)}
    return tuple(sorted(rows, key=lambda row: (order[row.arm, row.minus], row.split != "test", row.split)))


def differing_settings(runs: Iterable[RunView]) -> dict[str, tuple[str, ...]]:
    """Settings that are not the same in all runs: value per run, "-" where a run lacks the setting."""
    runs = list(runs)
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    rows = {key: tuple(run.settings.get(key, "-") for run in runs) for key in keys}
    return {key: values for key, values in rows.items() if any(a != b for a, b in pairwise(values))}


def _identity(run: RunView) -> tuple[tuple[str, str], ...]:
    kept = {
        key: value
        for key, value in run.settings.items()
        if key not in _SETTINGS_OF_NO_ARM and not (key.startswith("node.") and key.endswith(".device"))
    }
    return tuple(sorted({**kept, "method.name": run.method}.items()))


def _label(
    identity: tuple[tuple[str, str], ...], families: Mapping[tuple[tuple[str, str], ...], Sequence[RunView]]
) -> str:
    method = dict(identity)["method.name"]
    label = METHOD_LABELS.get(method, method)
    namesakes = [dict(other) for other in families if dict(other)["method.name"] == method]
    own = dict(identity)
    keys = dict.fromkeys(key for other in namesakes for key in other)
    functions = _own_functions(own)
    telling = [key for key in keys if key in functions or len({other.get(key) for other in namesakes}) > 1]
    return ", ".join([label, *(f"{key} = {own.get(key, 'default')}" for key in telling)])


def _by_seed(runs: Iterable[RunView]) -> tuple[RunView, ...]:
    return tuple(sorted(runs, key=lambda run: run.seed))


def _own_functions(settings: Mapping[str, str]) -> list[str]:
    """Settings that name a function of the user's: what the method's name stands for is then not what was run."""
    return [key for key in ("method.weights", "method.rule") if ":" in settings.get(key, "")]


def _arm_order(arm: Arm) -> tuple[int, bool, str]:
    known = arm.method in _METHOD_ORDER
    order = _METHOD_ORDER.index(arm.method) if known else len(_METHOD_ORDER)
    return (order, bool(_own_functions(arm.runs[0].settings)), arm.label)


def _progress(views: Mapping[int, NodeView], split: str) -> Progress:
    found = {seed: view.accuracy[split] for seed, view in views.items() if split in view.accuracy}
    starts = {seed: both.start for seed, both in found.items() if both.start is not None}
    ends = {seed: both.end for seed, both in found.items() if both.end is not None}
    return Progress(
        start=over_seeds(list(starts.values())),
        end=over_seeds(list(ends.values())),
        gain=difference(ends, starts),
        end_by_seed=ends,
    )


def _mean(views: Mapping[int, NodeView], quantity: Callable[[NodeView], float | None]) -> float | None:
    numbers = [number for view in views.values() if (number := quantity(view)) is not None]
    return sum(numbers) / len(numbers) if numbers else None
