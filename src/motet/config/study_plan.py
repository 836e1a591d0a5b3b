"""The runs of a study: every pair under every arm with every seed, each an ordinary run file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.config.dump import dump_run_file
from motet.config.mistakes import check
from motet.config.overrides import BadOverrideError, apply_override
from motet.config.replaying import replay_settings
from motet.config.settings import RunFile
from motet.config.study_file import DECIDED, StudyFile
from motet.errors import UsageError


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a study.

    Attributes:
        pair: name of the pair.
        arm: name of the arm.
        seed: of the run.
        run: its settings.
        archive: of a replay, the directory of the run whose groups it learns from.
    """

    pair: str
    arm: str
    seed: int
    run: RunFile
    archive: Path | None = None

    @property
    def label(self) -> str:
        """For people: "size/f_tis/0", or of a replay "size/replay/0/small"."""
        return f"{self.pair}/{self.arm}/{self.seed}" + (f"/{self.run.node[0].name}" if self.archive else "")


def plan_runs(study: StudyFile, *, source: Path, overrides: Sequence[str] = ()) -> list[Planned]:
    """Every run of a study: all pairs and arms of the first seed, then of the next; and after them all replays.

    Args:
        study: the study.
        source: its file, for messages.
        overrides: "section.key=value" each, over the settings of every run.

    Raises:
        UsageError: E-STUDY-02, a combination that is no run file; E-CONFIG-04, an override that cannot be carried out.
    """
    planned = []
    for seed in sorted({seed for arm in study.arm.values() for seed in arm.seeds or study.study.seeds}):
        for pair in study.pair:
            for arm, its in study.arm.items():
                if seed in (its.seeds or study.study.seeds) and _has(study, pair, arm, seed):
                    planned.append(Planned(pair, arm, seed, _run_file(study, pair, arm, seed, source, overrides)))
    return [*planned, *(replayed for source_run in planned for replayed in _replays(study, source_run, source))]


def _replays(study: StudyFile, live: Planned, source: Path) -> Iterator[Planned]:
    """What is to learn from a run's archives: each of its nodes, for each replay of its arm."""
    for name, replay in study.replay.items():
        if replay.of != live.arm or (replay.pairs and live.pair not in replay.pairs):
            continue
        if replay.seeds and live.seed not in replay.seeds:
            continue
        place = {"dir": str(study.folder / "runs" / live.pair / name / f"seed_{live.seed}")}
        plain = tomllib.loads(dump_run_file(live.run))
        asked = check(merged(plain, replay.settings, {"run": place}))
        if not isinstance(asked, RunFile):
            lines = (f"{source}: pair {live.pair}, replay {name}: {mistake.key}: {mistake.what}" for mistake in asked)
            raise UsageError("\n".join(lines), code="E-STUDY-02")
        mistake = _why_no_replay(asked, live)
        if mistake is not None:
            raise UsageError(f"{source}: pair {live.pair}, replay {name}: {mistake}", code="E-STUDY-02")
        for node in asked.node:
            run = replay_settings(asked, node, name=node.name)
            yield Planned(live.pair, name, live.seed, run, Path(live.run.run.dir) / live.run.run.name)


def _why_no_replay(asked: RunFile, live: Planned) -> str | None:
    """What is wrong with the settings of a replay; None if nothing is."""
    if asked.trains_alone:
        return 'method.name: the arm trains alone; write settings = { method = { name = "f_tis" } }, or another'
    if asked.run.rounds > live.run.run.rounds:
        return f"run.rounds: got {asked.run.rounds}; no more than the arm's own {live.run.run.rounds} are stored"
    return None


def _has(study: StudyFile, pair: str, arm: str, seed: int) -> bool:
    """True if a pair is trained under an arm, with this seed of the arm's."""
    pairs, its = study.arm[arm].pairs, study.pair[pair]
    return (not pairs or pair in pairs) and (not its.arms or arm in its.arms) and (not its.seeds or seed in its.seeds)


def _run_file(study: StudyFile, pair: str, arm: str, seed: int, source: Path, overrides: Sequence[str]) -> RunFile:
    place = {"dir": str(study.folder / "runs" / pair / arm), "name": f"seed_{seed}", "seed": seed}
    settings = merged(study.settings, study.pair[pair].settings, study.arm[arm].settings)
    run = settings.get("run", {})
    place_of_run = {"run": run | place} if isinstance(run, dict) else {}
    data = settings | place_of_run | {"node": [merged(node) for node in study.pair[pair].node]}
    for flag in overrides:
        try:
            if apply_override(data, flag)[:2] in DECIDED:
                raise BadOverrideError("the study decides this itself")
        except BadOverrideError as error:
            raise UsageError(f"--set {flag}: pair {pair}: {error}", code="E-CONFIG-04") from None
    found = check(data)
    if isinstance(found, RunFile) and not found.is_networked:
        return found
    mistakes = [] if isinstance(found, RunFile) else [f"{mistake.key}: {mistake.what}" for mistake in found]
    lines = mistakes or ['swarm.transport: the runs of a study stay on this machine; allowed: "memory", "pipes"']
    raise UsageError(
        "\n".join(f"{source}: pair {pair}, arm {arm}: {line}" for line in lines),
        code="E-STUDY-02",
    )


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over one another, the last on top; tables within them too.

    >>> merged({"method": {"name": "tis", "cap": 2.0}}, {"method": {"cap": 3.0}})
    {'method': {'name': 'tis', 'cap': 3.0}}
    """
    result: dict[str, Any] = {}
    for table in tables:
        for key, given in table.items():
            value, below = given, result.get(key)
            if isinstance(value, dict):
                value = merged(below, value) if isinstance(below, dict) else merged(value)
            result[key] = value
    return result
