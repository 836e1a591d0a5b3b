"""What one node came to in one run of a study: a row of `study.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from motet.config import Planned, RunFile, load_run_file
from motet.errors import UsageError
from motet.journal import RunDir, read_jsonl

SPLITS: Final = ("test", "ood")
_WORK: Final = ("generate", "publish", "admit", "top_up", "learn")
_VERSION: Final = 1
_MAY_CHANGE: Final = frozenset(
    ["run.dir", "run.keep_checkpoints", "run.keep_best", "run.trackers", "swarm.transport", "swarm.deadline_s"]
)
"""Settings with which a run that has begun may go on."""


class Curve(msgspec.Struct, frozen=True):
    """Held-out accuracy over the rounds of a run.

    Attributes:
        rounds: rounds that were over when it was measured; 0 is before training.
        seconds: what this node had worked by then: sampling, gate, learning; without examinations, and without waiting
            unless each node has a process of its own.
        test: accuracy on held-out prompts.
        ood: accuracy on out-of-distribution prompts.
    """

    rounds: tuple[int, ...]
    seconds: tuple[float, ...]
    test: tuple[float, ...]
    ood: tuple[float, ...]

    def of(self, split: str) -> tuple[float, ...]:
        """The accuracies of a split."""
        return self.ood if split == "ood" else self.test


class Row(msgspec.Struct, frozen=True):
    """One node in one run.

    Attributes:
        pair: name of the pair.
        arm: name of the arm.
        method: as in the run file.
        seed: of the run.
        node: its name.
        model: its model.
        settings: of the pair and the arm, dotted key to value, on top of what all runs share.
        accuracy: by split ("test", "ood", "test_greedy", "ood_greedy"): at the end.
        start: the same before training.
        num_prompts: prompts of each of these.
        curve: the course of sampled accuracy.
        completions: completions that the node sampled.
        steps: optimiser steps.
        tokens_sent: completion tokens that it published.
        bytes_per_token: bytes of payload to each; None if it sent nothing.
        kept_share: share of the peers' completions that the filter let through, over the run; None without a peer.
        rounds: of the run.
        node_seconds: what the node worked: sampling, gate, learning; with waiting, as in the curve.
        seconds: of the whole run, all nodes and examinations included.
    """

    pair: str
    arm: str
    method: str
    seed: int
    node: str
    model: str
    settings: Mapping[str, Any]
    accuracy: Mapping[str, float]
    start: Mapping[str, float]
    num_prompts: int
    curve: Curve
    completions: int
    steps: int
    tokens_sent: int
    bytes_per_token: float | None
    kept_share: float | None
    rounds: int
    node_seconds: float
    seconds: float


class _File(msgspec.Struct, frozen=True):
    version: int
    study: str
    rows: tuple[Row, ...]


def is_finished(planned: Planned) -> bool:
    """True if this very run has been finished; a replay since the run that it learns from."""
    summary = run_dir_of(planned).summary
    return summary.is_file() and not is_outdated(planned) and _begun(planned) == planned.run


def is_outdated(planned: Planned) -> bool:
    """True if this is a replay that was finished before the run was that it learns from."""
    if planned.archive is None:
        return False
    ours, theirs = run_dir_of(planned).summary, RunDir(planned.archive).summary
    return ours.is_file() and theirs.is_file() and ours.stat().st_mtime_ns < theirs.stat().st_mtime_ns


def has_begun(planned: Planned) -> bool:
    """True if something would be lost with what lies in this run's place: a checkpoint, or a result."""
    run_dir = run_dir_of(planned)
    return run_dir.summary.is_file() or run_dir.latest_checkpoint() is not None


def other_settings(planned: Planned) -> list[str]:
    """In which settings a run that lies in this one's place differs from it: "run.rounds: 4 there, 60 here" each."""
    begun = _begun(planned)
    if begun is None:
        return []
    there, here = (_all_settings(run) for run in (begun, planned.run))
    return [
        f"{key}: {json.dumps(there.get(key))} there, {json.dumps(here.get(key))} here"
        for key in dict.fromkeys([*here, *there])
        if there.get(key) != here.get(key) and key not in _MAY_CHANGE
    ]


def _all_settings(run: RunFile) -> dict[str, Any]:
    data = run.model_dump(mode="json")
    return dotted(data | {"node": {node["name"]: node for node in data["node"]}})


def _begun(planned: Planned) -> RunFile | None:
    """The settings of the run that lies where this one belongs; those that did not exist then have their defaults."""
    run_dir = run_dir_of(planned)
    if not run_dir.info.is_file() or not run_dir.config.is_file():
        return None
    try:
        return load_run_file(run_dir.config)
    except UsageError:
        return None


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one.

    >>> dotted({"method": {"name": "tis", "cap": 2.0}})
    {'method.name': 'tis', 'method.cap': 2.0}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def run_dir_of(planned: Planned) -> RunDir:
    """Where a run of a study lies."""
    return RunDir(Path(planned.run.run.dir) / planned.run.run.name)


def read_rows(planned: Planned, settings: Mapping[str, Any]) -> list[Row]:
    """The rows of a finished run, one for each node.

    Args:
        planned: the run.
        settings: what `Row.settings` is to hold.
    """
    run_dir = run_dir_of(planned)
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    by_node: dict[str, list[dict[str, Any]]] = {node.name: [] for node in planned.run.node}
    for row in read_jsonl(run_dir.metrics):
        by_node[row["node"]].append(row)
    return [
        _row(planned, settings, node, facts, by_node[node], summary["seconds"])
        for node, facts in summary["nodes"].items()
    ]


def _row(
    planned: Planned,
    settings: Mapping[str, Any],
    node: str,
    facts: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    seconds: float,
) -> Row:
    kept = sum(peer["kept"] + peer["dropped"].get("influence", 0) for peer in facts["ledger"].values())
    phases = _WORK if planned.run.swarm.transport == "memory" else (*_WORK, "wait")
    external = sum(peer["kept"] + sum(peer["dropped"].values()) for peer in facts["ledger"].values())
    return Row(
        pair=planned.pair,
        arm=planned.arm,
        method=planned.run.method.name,
        seed=planned.seed,
        node=node,
        model=facts["model"],
        settings=settings,
        accuracy={split: ends["end"]["value"] for split, ends in facts["accuracy"].items()},
        start={split: ends["start"]["value"] for split, ends in facts["accuracy"].items()},
        num_prompts=facts["accuracy"]["test"]["end"]["n"],
        curve=_curve(rows, phases),
        completions=facts["completions_generated"],
        steps=facts["optimizer_steps"],
        tokens_sent=facts["tokens_sent"],
        bytes_per_token=facts["bytes_per_token"],
        kept_share=kept / external if external else None,
        rounds=planned.run.run.rounds,
        node_seconds=round(sum(_worked(row, phases) for row in rows), 3),
        seconds=round(seconds, 3),
    )


def _curve(rows: Sequence[Mapping[str, Any]], phases: Sequence[str]) -> Curve:
    worked, seconds, examined = 0.0, [], []
    for row in rows:
        worked += _worked(row, phases)
        if "accuracy/test" in row:
            seconds.append(round(worked, 3))
            examined.append(row)
    has_ood = all("accuracy/ood" in row for row in examined)
    return Curve(
        rounds=tuple(row["round"] + 1 for row in examined),
        seconds=tuple(seconds),
        test=tuple(row["accuracy/test"] for row in examined),
        ood=tuple(row["accuracy/ood"] for row in examined) if has_ood else (),
    )


def _worked(row: Mapping[str, Any], phases: Sequence[str]) -> float:
    return float(sum(row.get(f"time/{phase}_s", 0.0) for phase in phases))


def rows_to_json(study: str, rows: Iterable[Row]) -> bytes:
    """`study.json`: one row a line."""
    lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
    return f'{{"version": {_VERSION}, "study": {json.dumps(study)}, "rows": [\n{lines}\n]}}\n'.encode()


def rows_from_json(path: Path) -> list[Row]:
    """Read `study.json`.

    Raises:
        UsageError: E-STUDY-03, no such file, or not one of these.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: cannot be read as the results of a study: {error}", code="E-STUDY-03") from None
    if file.version != _VERSION:
        raise UsageError(
            f"{path}: results of a study in version {file.version}; this motet reads version {_VERSION}",
            code="E-STUDY-03",
        )
    return list(file.rows)
