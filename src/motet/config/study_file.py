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
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from motet.config.load import line_of, read_toml
from motet.config.mistakes import shown
from motet.config.positions import Loc
from motet.config.settings import PositiveFloat, PositiveInt, Section
from motet.errors import UsageError

Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class StudySettings(Section):
    """What is compared, and how often."""

    name: Name
    """Name of the study. Its runs and results lie in <dir>/<name>."""
    dir: str = "runs"
    """Folder that holds studies; relative to the current folder."""
    seeds: Seeds = (0, 1, 2, 3, 4)
    """Seeds of each combination: prompts and sampling. Initial weights and held-out prompts are the same for all."""
    fresh_seeds: Seeds = ()
    """Seeds of arms that pick nothing: what others have picked is confirmed by these alone, in a table of its own."""
    baseline: str = "alone"
    """The arm that all others are compared with, paired by seed."""
    margin_points: PositiveFloat = 2.0
    """How much worse than the baseline, in points of accuracy, still counts as no worse."""


class PairSettings(Section):
    """Models that learn together."""

    title: str = ""
    """For people."""
    node: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    """The nodes, as in a run file."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, for this pair."""
    arms: Annotated[tuple[str, ...], Field(min_length=1)] = ()
    """Arms that this pair is trained under. Without it: all."""
    seeds: Seeds = ()
    """The seeds of its arms that this pair is trained with. Without it: all."""
    is_control: bool = False
    """Made so that harm must show. The claims are not judged by it; whether anybody leaves worse is."""


class ArmSettings(Section):
    """One way to train them."""

    title: str = ""
    """For people."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, for this arm."""
    pairs: Annotated[tuple[str, ...], Field(min_length=1)] = ()
    """Pairs that have this arm. Without it: all."""
    seeds: Seeds = ()
    """Seeds of this arm. Without it: those of the study."""


class ReplaySettings(Section):
    """Each node learns once more from what the nodes of a run have sampled, without sampling: `motet replay`."""

    title: str = ""
    """For people."""
    of: str
    """The arm whose stored groups are learned from."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, over those of that arm."""
    pairs: Annotated[tuple[str, ...], Field(min_length=1)] = ()
    """Pairs that are replayed. Without it: all that have the arm."""
    seeds: Seeds = ()
    """The seeds of the arm that are replayed. Without it: all."""


class ChoiceSettings(Section):
    """Of several arms of a seed each node keeps the best that is no worse than the reference: `motet choose`."""

    title: str = ""
    """For people."""
    reference: str
    """The arm that is kept otherwise."""
    of: Annotated[tuple[str, ...], Field(min_length=1)]
    """The arms that may take its place."""
    num_prompts: PositiveInt = 2048
    """Prompts of each split that decide: those after the prompts of the examinations; if there are fewer, the first."""


class StudyFile(Section):
    """A whole study."""

    study: StudySettings
    settings: dict[str, Any] = Field(default_factory=dict)
    """Sections of a run file, for every run."""
    pair: Annotated[dict[Name, PairSettings], Field(min_length=1)]
    arm: Annotated[dict[Name, ArmSettings], Field(min_length=1)]
    replay: dict[Name, ReplaySettings] = Field(default_factory=dict)
    choice: dict[Name, ChoiceSettings] = Field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where its runs and results lie."""
        return Path(self.study.dir) / self.study.name


def load_study_file(path: Path) -> StudyFile:
    """Read a study file.

    Raises:
        UsageError: it cannot be read (E-CONFIG-01), is no TOML (E-CONFIG-02), or has wrong settings (E-STUDY-01).
    """
    data, lines = read_toml(path, kind="study file")
    if "study" not in data and isinstance(data.get("node"), list):
        raise UsageError(f"{path}: a run file, not a study file; `motet swarm {path}` runs it", code="E-STUDY-01")
    try:
        study = StudyFile.model_validate(data)
        mistakes = list(_contradictions(study))
    except ValidationError as error:
        # a list is also called too short when its entries are wrong, which is reported for each
        found = [f for f in error.errors(include_url=False) if f["type"] != "too_short" or not f["input"]]
        mistakes = [_mistake(finding) for finding in found]
    if mistakes:
        described = []
        for loc, what in sorted(mistakes, key=lambda mistake: line_of(mistake[0], lines) or 0):
            line = line_of(loc, lines)
            described.append(f"{path}{'' if line is None else f':{line}'}  {'.'.join(map(str, loc))}: {what}")
        raise UsageError("\n".join(described), code="E-STUDY-01")
    return study


def _contradictions(study: StudyFile) -> Iterator[tuple[Loc, str]]:
    yield from _unknown_names(study)
    for kind, there in (("replay", study.replay), ("choice", study.choice)):
        for name in there:
            if name in study.arm or (kind == "choice" and name in study.replay):
                yield (kind, name), "an arm or a replay has this name too; they stand in one table"
    for name, choice in study.choice.items():
        if len({choice.reference, *choice.of}) < 1 + len(choice.of):
            yield ("choice", name, "of"), "an arm stands in it twice, or is the reference itself"
    for name, replay in study.replay.items():
        if "swarm" in replay.settings:
            yield ("replay", name, "settings", "swarm"), "a replay meets nobody; leave it out"
        admission = replay.settings.get("admission")
        if isinstance(admission, dict) and "max_influence" in admission:
            of_influence = ("replay", name, "settings", "admission", "max_influence")
            yield of_influence, "a replay has nothing of its own to weigh a peer against; leave it out"
    yield from _fresh_seeds(study)
    tables: list[tuple[Loc, dict[str, Any]]] = [(("settings",), study.settings)]
    tables += [(("pair", name, "settings"), pair.settings) for name, pair in study.pair.items()]
    tables += [(("arm", name, "settings"), arm.settings) for name, arm in study.arm.items()]
    tables += [(("replay", name, "settings"), replay.settings) for name, replay in study.replay.items()]
    for loc, settings in tables:
        yield from _misplaced(loc, settings)


def _fresh_seeds(study: StudyFile) -> Iterator[tuple[Loc, str]]:
    """Seeds that confirm must be trained with, and some must be left to pick with."""
    fresh = study.study.fresh_seeds
    seeds = {seed for arm in study.arm.values() for seed in arm.seeds or study.study.seeds}
    unknown = [seed for seed in fresh if seed not in seeds]
    if unknown:
        all_of_them = ", ".join(map(str, sorted(seeds)))
        yield ("study", "fresh_seeds"), f"no arm has the seed {unknown[0]}; the seeds of all arms are {all_of_them}"
    elif fresh and seeds <= set(fresh):
        yield ("study", "fresh_seeds"), "all seeds are fresh: leave some out, by which something can be picked"


def _unknown_names(study: StudyFile) -> Iterator[tuple[Loc, str]]:
    """Arms and pairs that are named and are not there."""
    arms: list[tuple[Loc, Sequence[str]]] = [(("study", "baseline"), (study.study.baseline,))]
    arms += [(("pair", name, "arms"), pair.arms) for name, pair in study.pair.items()]
    arms += [(("replay", name, "of"), (replay.of,)) for name, replay in study.replay.items()]
    arms += [(("choice", name, "reference"), (choice.reference,)) for name, choice in study.choice.items()]
    arms += [(("choice", name, "of"), choice.of) for name, choice in study.choice.items()]
    pairs: list[tuple[Loc, Sequence[str]]] = [(("arm", name, "pairs"), arm.pairs) for name, arm in study.arm.items()]
    pairs += [(("replay", name, "pairs"), replay.pairs) for name, replay in study.replay.items()]
    for loc, named in arms:
        for arm in _not_in(named, study.arm):
            yield loc, f'there is no arm "{arm}"; arms are {", ".join(study.arm)}'
    for loc, named in pairs:
        for pair in _not_in(named, study.pair):
            yield loc, f'there is no pair "{pair}"; pairs are {", ".join(study.pair)}'


def _not_in(named: Sequence[str], there: Mapping[str, object]) -> list[str]:
    return [name for name in named if name not in there]


def _misplaced(loc: Loc, settings: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    """Settings of a run that stand elsewhere in a study file, or are the study's to make."""
    if "node" in settings:
        yield (*loc, "node"), "nodes stand in a pair: write [pair.NAME] and node = [{ name = ..., model = ... }]"
    run = settings.get("run")
    for _, key in DECIDED:
        if isinstance(run, dict) and key in run:
            yield (*loc, "run", key), "the study decides this itself"


def _mistake(finding: Any) -> tuple[Loc, str]:
    """Where pydantic found what, in plain words."""
    loc: Loc = tuple(part for part in finding["loc"] if part != "[key]")
    kind, value = finding["type"], finding["input"]
    if kind == "missing":
        return loc, _MISSING.get(".".join(map(str, loc)), "missing")
    if kind == "extra_forbidden":
        there = " at the top of the file; settings of the runs stand in [settings]" if len(loc) == 1 else ""
        return loc, f"unknown{there}" + (_meant(loc) if len(loc) > 1 else "")
    if kind == "greater_than_equal":
        return loc, f"got {shown(value)}; allowed: a whole number from {finding['ctx']['ge']} up"
    allowed = _ALLOWED.get(kind) or finding["msg"][:1].lower() + finding["msg"][1:]
    return loc, f"got {shown(value)}; {allowed}"


def _meant(loc: Loc) -> str:
    """The key that may have been meant, or else those that there are."""
    tables: dict[object, type[Section]] = {
        "study": StudySettings,
        "pair": PairSettings,
        "arm": ArmSettings,
        "replay": ReplaySettings,
        "choice": ChoiceSettings,
    }
    keys = list(tables[loc[0]].model_fields)
    nearest = get_close_matches(str(loc[-1]), keys, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(keys)}"


DECIDED: Final[tuple[Loc, ...]] = (("run", "name"), ("run", "dir"), ("run", "seed"))
"""Settings that tell a study's runs apart."""
_MISSING: Final = {
    "study": 'missing; a study file needs a section [study] with at least name = "..."',
    "pair": "missing; a study file needs a table [pair.NAME] with its nodes for each pair of models",
    "arm": "missing; a study file needs a table [arm.NAME] for each way to train them",
}
_ALLOWED: Final = {
    "tuple_type": "allowed: a list",
    "dict_type": "allowed: a table",
    "model_type": "allowed: a table",
    "int_type": "allowed: a whole number",
    "int_parsing": "allowed: a whole number",
    "int_from_float": "allowed: a whole number",
    "float_parsing": "allowed: a number",
    "string_type": "allowed: text in quotes",
    "greater_than": "allowed: a number above 0",
    "too_short": "allowed: one or more",
    "string_pattern_mismatch": "allowed: letters, digits, '.', '_', '-'; 64 at most",
}
