"""A swarm's state between two rounds on disk: its nodes, its hubs, its place in the files of the run. Without torch."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from motet.config import RunFile, all_settings, dump_run_file
from motet.errors import RunFailed, UsageError
from motet.journal import RunDir, keep_rounds_below, read_jsonl, write_json
from motet.simulation.crew import Crew
from motet.swarm import HubState, MemoryHub, Parcel

_STATE_FILE = "swarm.json"
# What may change between two parts of a run, since it does not decide what is learned: where the run lies, how its
# groups travel and how long they are waited for, what is kept of it and who else is told; and whose key is pinned.
_IS_PIN = re.compile(r"node\..+\.key")
_MAY_CHANGE = frozenset(
    {
        "run.dir",
        "run.keep_checkpoints",
        "run.keep_best",
        "run.trackers",
        "swarm.transport",
        "swarm.listen",
        "swarm.connect",
        "swarm.tls",
        "swarm.deadline_s",
    }
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where an interrupted run continues.

    Attributes:
        folder: the checkpoint.
        rounds_done: rounds that are behind it.
        seconds: wall time spent on them.
        archive_bytes: length of each node's archive then.
        nodes: per node: ledger, groups that its gate has seen, what it sampled ahead, and the state of its hub.
    """

    folder: Path
    rounds_done: int
    seconds: float
    archive_bytes: Mapping[str, int]
    nodes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint so far: after how many rounds, and its mean held-out accuracy over the nodes."""

    rounds_done: int
    accuracy: float


def claim_run_dir(run: RunFile, path: Path | None = None, *, is_replay: bool = False) -> tuple[RunDir, Position | None]:
    """The run's directory, new or existing, and where to continue (None: at the beginning).

    It is `path`, or follows from run.dir and run.name.

    What the journal holds beyond the checkpoint is cut off: it will be written again.

    Raises:
        UsageError: E-RESUME-01 if the directory holds a run of other settings, E-REPLAY-04 if it holds a replay and the
            run is none, or the other way round.
        RunFailed: E-CHECKPOINT-01 if the checkpoint is damaged, E-RESUME-02 if the run's config.toml is.
    """
    path = path or Path(run.run.dir) / run.run.name
    wanted = dump_run_file(run)
    if not (path / "run.json").exists():
        run_dir = RunDir.create(path, seed=run.run.seed)
        run_dir.config.write_text(wanted, encoding="utf-8")
        return run_dir, None
    run_dir = RunDir.open(path)
    if run_dir.replay.exists() != is_replay:
        there, here = ("no replay", "a replay") if is_replay else ("a replay", "none")
        raise UsageError(
            f"{path} holds a run that is {there}, and this is {here}; use another name, or --clean to delete that run",
            code="E-REPLAY-04",
        )
    found = run_dir.config.read_text(encoding="utf-8") if run_dir.config.is_file() else wanted
    differences = _differences(run_dir.config, found, wanted)
    if differences:
        raise UsageError(
            f"{path} holds a run of other settings ({'; '.join(differences[:3])}); "
            "use another run.name, or --clean to delete that run",
            code="E-RESUME-01",
        )
    run_dir.config.write_text(wanted, encoding="utf-8")
    folder = run_dir.latest_checkpoint()
    position = read_position(folder) if folder is not None else None
    if not run_dir.summary.exists():
        first = position.rounds_done if position is not None else -1
        for journal in (run_dir.metrics, *(run_dir.completions(node.name) for node in run.node)):
            keep_rounds_below(journal, first)
        if position is None:
            for node in run.node:
                run_dir.archive(node.name).unlink(missing_ok=True)
    return run_dir, position


def save(
    run_dir: RunDir, crew: Crew, *, rounds_done: int, seconds: float, keep: int = 2, keep_best: bool = False
) -> None:
    """Write a checkpoint aside, rename it, and remove all but the last `keep` and, if it is wanted, the best."""
    with run_dir.writing_checkpoint(rounds_done) as folder:
        kept = crew.save(folder)
        state = {
            "rounds_done": rounds_done,
            "seconds": seconds,
            "archive_bytes": {name: part.archive_bytes for name, part in kept.items()},
            "nodes": {
                name: {
                    "ledger": part.ledger,
                    "gate": part.gate,
                    "ahead": part.ahead,
                    "hub": _hub_to_json(crew.hubs[name].snapshot()) if name in crew.hubs else None,
                }
                for name, part in kept.items()
            },
        }
        write_json(folder / _STATE_FILE, state)
    best = find_best(run_dir) if keep_best else None
    if best is not None:
        run_dir.note_best(best.rounds_done, accuracy=best.accuracy)
    run_dir.prune_checkpoints(keep=keep, best=None if best is None else best.rounds_done)


def find_best(run_dir: RunDir) -> Best | None:
    """The checkpoint on disk that did best when it was examined; of equals the earliest.

    What counts is the mean of accuracy/test over the nodes. None if no checkpoint has been examined. It follows from
    the journal alone, so a run that was interrupted finds the same one.
    """
    marks: dict[int, list[float]] = {}
    for row in read_jsonl(run_dir.metrics):
        if "accuracy/test" in row:
            marks.setdefault(int(row["round"]) + 1, []).append(float(row["accuracy/test"]))
    examined = [Best(done, fmean(marks[done])) for done in run_dir.checkpoint_rounds() if done in marks]
    return max(examined, key=lambda best: best.accuracy, default=None)


def restore_hubs(position: Position, hubs: Mapping[str, MemoryHub]) -> None:
    """Put every hub where the checkpoint left it. Raises RunFailed (E-CHECKPOINT-01) if that cannot be done."""
    restored: set[int] = set()
    try:
        for name, hub in hubs.items():
            state = position.nodes[name]["hub"]  # None: groups travelled over a network, and what was under way is lost
            if state is not None and id(hub) not in restored:  # nodes that share a hub saved the same state
                hub.restore(_hub_from_json(state))
                restored.add(id(hub))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(position.folder, error) from error


def read_position(folder: Path) -> Position:
    """The state in the folder of a checkpoint. Raises RunFailed (E-CHECKPOINT-01) if it is damaged."""
    try:
        state = json.loads((folder / _STATE_FILE).read_text(encoding="utf-8"))
        return Position(
            folder=folder,
            rounds_done=int(state["rounds_done"]),
            seconds=float(state["seconds"]),
            archive_bytes={str(name): int(count) for name, count in state["archive_bytes"].items()},
            nodes=state["nodes"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder, error) from error


def damaged(folder: Path, error: Exception) -> RunFailed:
    """What is said of a checkpoint whose state cannot be used."""
    return RunFailed(
        f"{folder / _STATE_FILE}: damaged ({error}); remove the folder {folder} to continue from the one before",
        code="E-CHECKPOINT-01",
    )


def _hub_to_json(state: HubState) -> dict[str, object]:
    return {
        "published": dict(state.published),
        "late": {receiver: dict(counts) for receiver, counts in state.late.items()},
        "undelivered": [
            [receiver, parcel.peer, parcel.round, base64.b64encode(parcel.payload).decode("ascii")]
            for receiver, parcel in state.undelivered
        ],
    }


def _hub_from_json(plain: Mapping[str, Any]) -> HubState:
    return HubState(
        published={str(name): int(round) for name, round in plain["published"].items()},
        late={str(receiver): {str(p): int(n) for p, n in counts.items()} for receiver, counts in plain["late"].items()},
        undelivered=tuple(
            (str(receiver), Parcel(str(peer), int(round), base64.b64decode(payload, validate=True)))
            for receiver, peer, round, payload in plain["undelivered"]
        ),
    )


def _differences(path: Path, found: str, wanted: str) -> list[str]:
    """Settings in which two resolved run files differ, of those that must agree."""
    try:
        there = _flat(tomllib.loads(found))
    except tomllib.TOMLDecodeError as error:
        raise RunFailed(
            f"{path}: damaged ({error}); restore it, or --clean deletes the run", code="E-RESUME-02"
        ) from error
    here = _flat(tomllib.loads(wanted))
    return [
        f"{key}: there {there.get(key, 'not set')!r}, here {here.get(key, 'not set')!r}"
        for key in sorted(there.keys() | here.keys())
        if key not in _MAY_CHANGE and not _IS_PIN.fullmatch(key) and there.get(key, _default(key)) != here.get(key)
    ]


def _default(key: str) -> object:
    """What held before there was this setting."""
    setting = all_settings().get(key)
    return None if setting is None else setting.default


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for item in value:
                flat |= _flat(item, f"{prefix}{key}.{item.get('name', '?')}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
