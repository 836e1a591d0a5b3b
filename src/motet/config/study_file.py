"""A study file: which pairs of models, under which arms, with which seeds. Each combination is a run file of its own.

    study = { name = "sums", seeds = [0, 1, 2, 3, 4], baseline = "alone" }

    [settings]                                   # of every run: sections of a run file
    run = { rounds = 60 }

    [pair.size]
    title = "two sizes"
    node = [{ name = "small", model = "tiny:small" }, { name = "large", model = "tiny:large" }]

    [arm.alone]
    settings = { method = { name = "on_policy" } }

Where `settings`, those of the pair and those of the arm differ, the arm's count, then the pair's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from motet.config.load import read_toml
from motet.config.mistakes import check
from motet.config.overrides import BadOverrideError, apply_override
from motet.config.settings import PositiveFloat, RunFile, Section
from motet.errors import UsageError

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class StudySettings(Section):
    """What is compared, and how often."""

    name: Name
    """Name of the study. Its runs and results lie in <dir>/<name>."""
    dir: str = "runs"
    """Folder that holds studies; relative to the current folder."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0, 1, 2, 3, 4)
    """Seeds of each combination: prompts and sampling. Initial weights and held-out prompts are the same for all."""
    baseline: str = "alone"
    """The arm that all others are compared with, paired by seed."""
    margin_points: PositiveFloat = 2.0
    """How much worse than the baseline, in points of accuracy, still counts as no worse."""


class PairSettings(Section):
    """Models that learn together; two of them or more."""

    title: str = ""
    """For people."""
    node: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    """The nodes, as in a run file."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, for this pair."""


class ArmSettings(Section):
    """One way to train them."""

    title: str = ""
    """For people."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, for this arm."""
    pairs: tuple[str, ...] = ()
    """Pairs that have this arm. Without it: all."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Seeds of this arm. Without it: those of the study."""


class StudyFile(Section):
    """A whole study."""

    study: StudySettings
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, for every run."""
    pair: Annotated[dict[Name, PairSettings], Field(min_length=1)]
    arm: Annotated[dict[Name, ArmSettings], Field(min_length=1)]

    @property
    def folder(self) -> Path:
        """Where its runs and results lie."""
        return Path(self.study.dir) / self.study.name


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a study.

    Attributes:
        pair: name of the pair.
        arm: name of the arm.
        seed: of the run.
        run: its settings.
    """

    pair: str
    arm: str
    seed: int
    run: RunFile

    @property
    def label(self) -> str:
        """For people: "size/f_tis/0"."""
        return f"{self.pair}/{self.arm}/{self.seed}"


def load_study_file(path: Path) -> StudyFile:
    """Read a study file.

    Raises:
        UsageError: it cannot be read (E-CONFIG-01), is no TOML (E-CONFIG-02), or has wrong settings (E-STUDY-01).
    """
    data, _ = read_toml(path)
    try:
        study = StudyFile.model_validate(data)
    except ValidationError as error:
        lines = [f"{path}: {_place(finding['loc'])}: {_say(finding)}" for finding in error.errors(include_url=False)]
        raise UsageError("\n".join(lines), code="E-STUDY-01") from None
    mistakes = list(_contradictions(study))
    if mistakes:
        raise UsageError("\n".join(f"{path}: {mistake}" for mistake in mistakes), code="E-STUDY-01")
    return study


def plan_runs(study: StudyFile, *, source: Path, overrides: Sequence[str] = ()) -> list[Planned]:
    """Every run of a study: all pairs and arms of the first seed, then of the next.

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
                if seed in (its.seeds or study.study.seeds) and (not its.pairs or pair in its.pairs):
                    planned.append(Planned(pair, arm, seed, _run_file(study, pair, arm, seed, source, overrides)))
    return planned


def _run_file(study: StudyFile, pair: str, arm: str, seed: int, source: Path, overrides: Sequence[str]) -> RunFile:
    place = {"dir": str(study.folder / "runs" / pair / arm), "name": f"seed_{seed}", "seed": seed}
    settings = merged(study.settings, study.pair[pair].settings, study.arm[arm].settings)
    data = merged(settings, {"run": place}) | {"node": [merged(node) for node in study.pair[pair].node]}
    for flag in overrides:
        try:
            apply_override(data, flag)
        except BadOverrideError as error:
            raise UsageError(f"--set {flag}: {error}", code="E-CONFIG-04") from None
    found = check(data)
    if isinstance(found, RunFile):
        return found
    lines = [f"{source}: pair {pair}, arm {arm}: {mistake.key}: {mistake.what}" for mistake in found]
    raise UsageError("\n".join(lines), code="E-STUDY-02")


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


def _contradictions(study: StudyFile) -> Iterator[str]:
    if study.study.baseline not in study.arm:
        yield f'study.baseline: there is no arm "{study.study.baseline}"; arms are {", ".join(study.arm)}'
    for name, arm in study.arm.items():
        for pair in arm.pairs:
            if pair not in study.pair:
                yield f'arm.{name}.pairs: there is no pair "{pair}"; pairs are {", ".join(study.pair)}'
        if unknown := {"name", "dir", "seed"} & set(arm.settings.get("run", {})):
            yield f"arm.{name}.settings.run.{unknown.pop()}: the study decides this itself"


def _place(loc: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in loc) or "the file"


def _say(finding: Any) -> str:
    """What pydantic found, in few words."""
    if finding["type"] == "missing":
        return "missing"
    if finding["type"] == "extra_forbidden":
        return "unknown key"
    return str(finding["msg"][:1].lower() + finding["msg"][1:])
