"""What is wrong with a run file, in plain words: pydantic's findings become one line for each mistake."""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from motet.config.dialects import FOREIGN_KEYS, FOREIGN_SECTIONS
from motet.config.dump import toml_value
from motet.config.fields import all_sections, all_settings
from motet.config.positions import Loc
from motet.config.settings import RunFile

LONGEST_VALUE: Final = 60

_MISSING: Final = {
    "run": 'missing; a run file needs a section [run] with at least name = "..."',
    "node": "missing; a run file needs a table [[node]] with name and model for each node",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake of the user's.

    Attributes:
        loc: where in the parsed file.
        key: the same for people: "node.small.model".
        what: what is wrong, what is allowed, and what is nearest.
    """

    loc: Loc
    key: str
    what: str


def check(data: Mapping[str, Any]) -> RunFile | list[Mistake]:
    """The run file, or all that is wrong with it."""
    try:
        return _validated(data)
    except ValidationError as error:
        findings = error.errors(include_url=False)
    mistakes: dict[Loc, Mistake] = {}
    for finding in findings:
        for mistake in _mistakes(finding, data):
            mistakes.setdefault(mistake.loc, mistake)
    if all(finding["type"] != "contradiction" for finding in findings):
        for mistake in _contradictions_beside(data, mistakes):
            mistakes.setdefault(mistake.loc, mistake)
    return _without_consequences(list(mistakes.values()))


def shown(value: object) -> str:
    """A value as the user wrote it, cut to a length that fits in a line."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "a list of tables"
    text = toml_value(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "..."


def _validated(data: Mapping[str, Any]) -> RunFile:
    return RunFile.model_validate(_with_tuples(data), strict=True)


def _with_tuples(value: Any) -> Any:
    """TOML's arrays as the tuples that strict validation asks for."""
    if isinstance(value, dict):
        return {key: _with_tuples(inner) for key, inner in value.items()}
    return tuple(_with_tuples(inner) for inner in value) if isinstance(value, list) else value


def _mistakes(finding: Mapping[str, Any], data: Mapping[str, Any]) -> list[Mistake]:
    if finding["type"] == "too_short" and _at(data, finding["loc"]):
        return []  # a list is also called too short when its entries are wrong, which is reported for each
    if finding["type"] == "contradiction":
        return [Mistake(found.key, _key(found.key, data), found.message) for found in finding["ctx"]["found"]]
    loc, say = _located(finding, data)
    return [Mistake(loc, _key(loc, data), say(loc, data))]


def _located(
    finding: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[Loc, Callable[[Loc, Mapping[str, Any]], str]]:
    """The place in the file that a finding is about (pydantic's own goes into members of unions and lists)."""
    full: Loc = finding["loc"]
    if finding["type"] == "extra_forbidden":
        return full, _say_unknown
    if finding["type"] == "missing":
        return full, _say_missing
    for length in range(1, len(full) + 1):
        if _plain(full[:length]) in all_settings() or not _has(data, full[: length + 1]):
            return full[:length], _say_bad_value
    return full, _say_bad_value


def _plain(loc: Iterable[str | int]) -> str:
    return ".".join(part for part in loc if isinstance(part, str))


def _has(data: Any, loc: Loc) -> bool:
    for part in loc:
        in_table = isinstance(data, dict) and part in data
        in_list = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if not (in_table or in_list):
            return False
        data = data[part]
    return True


def _at(data: Any, loc: Loc) -> Any:
    for part in loc:
        data = data[part]
    return data


def _key(loc: Loc, data: Mapping[str, Any]) -> str:
    """A place for people; a node by its name where it has one."""
    parts = [str(part) for part in loc]
    if len(loc) > 1 and loc[0] == "node" and _has(data, (*loc[:2], "name")):
        parts[1] = str(_at(data, (*loc[:2], "name")))
    return ".".join(part if part.isprintable() else ascii(part) for part in parts)


# --- what to say -----------------------------------------------------------------------------------------------------


def _say_missing(loc: Loc, data: Mapping[str, Any]) -> str:
    del data
    key = _plain(loc)
    return _MISSING[key] if key in _MISSING else f"missing; {all_settings()[key].description.rstrip('.')}"


def _say_bad_value(loc: Loc, data: Mapping[str, Any]) -> str:
    value = _at(data, loc)
    setting = all_settings().get(_plain(loc))
    if setting is None:
        return _say_no_section(loc, value)
    allowed = setting.allowed
    if isinstance(value, float) and not math.isfinite(value):
        allowed = allowed.replace("a number", "a finite number")
    nearest = _nearest(value, setting.choices) if isinstance(value, str) else None
    return f"got {shown(value)}; allowed: {allowed}" + (f'; did you mean "{nearest}"?' if nearest else "")


def _say_no_section(loc: Loc, value: object) -> str:
    key = _plain(loc)
    if key == "node":
        if len(loc) > 1:
            return f"got {shown(value)}; allowed: a table with name and model"
        if not isinstance(value, list):
            return f"got {shown(value)}; write [[node]] in double brackets, once for each node"
        return _MISSING["node"]
    example = f"{key.rpartition('.')[2]} = {{ name = {shown(value)} }}"
    hint = f", or {example}" if f"{key}.name" in all_settings() and isinstance(value, str) else ""
    return f"got {shown(value)}; this is a section: write [{key}] and its settings below it{hint}"


def _say_unknown(loc: Loc, data: Mapping[str, Any]) -> str:
    section, word = _plain(loc[:-1]), str(loc[-1])
    name = word.lower().replace("-", "_")
    is_table = isinstance(_at(data, loc), dict | list)
    if not section and is_table:
        return _say_unknown_section(name)
    settings = all_settings()
    here = [key.rpartition(".")[2] for key in settings if key.rpartition(".")[0] == section]
    around = _key(loc[:-1], data)
    if name in here:
        return f"unknown; did you mean {around}.{name}?"
    elsewhere = [key for key in settings if key.rpartition(".")[2] == name]
    if elsewhere:
        where = f"in {_section_name(section)}" if section else "outside a section"
        return f"unknown {where}; did you mean {elsewhere[0]}?"
    if name in FOREIGN_KEYS:
        return _say_foreign(name, word)
    if nearest := _nearest(name, here):
        return f"unknown; did you mean {around}.{nearest}?"
    far = _nearest(name, [key.rpartition(".")[2] for key in settings], cutoff=0.7)
    if far:
        return f"unknown; did you mean {next(key for key in settings if key.rpartition('.')[2] == far)}?"
    return f"unknown; {_section_name(section)} has {', '.join(here)}" if here else "unknown; " + _say_sections()


def _say_unknown_section(name: str) -> str:
    if name in FOREIGN_SECTIONS:
        return f"unknown section; its settings stand in {FOREIGN_SECTIONS[name]} here"
    if nearest := _nearest(name, list(all_sections())):
        return f"unknown section; did you mean {_section_name(nearest)}?"
    return "unknown section; " + _say_sections()


def _say_sections() -> str:
    return f"there are {', '.join(_section_name(section) for section in all_sections() if '.' not in section)}"


def _say_foreign(name: str, word: str) -> str:
    foreign = FOREIGN_KEYS[name]
    whose = f"{foreign.dialect}'s {word}" if foreign.dialect else word
    if not foreign.key:
        return f"unknown. {whose} has no counterpart here: {foreign.note}"
    return f"unknown. {whose} is {foreign.key} here" + (f" ({foreign.note})" if foreign.note else "")


def _section_name(section: str) -> str:
    return "[[node]]" if section == "node" else f"[{section}]"


def _nearest(word: str, known: Sequence[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=cutoff)), None)


# --- all at once -----------------------------------------------------------------------------------------------------


def _contradictions_beside(data: Mapping[str, Any], mistakes: Mapping[Loc, Mistake]) -> list[Mistake]:
    """Contradictions among those settings that are right by themselves, so that they are not reported a round later."""
    mended = copy.deepcopy(dict(data))
    for loc in sorted(mistakes, key=len, reverse=True):
        if not _mend(mended, loc):
            return []
    try:
        _validated(mended)
    except ValidationError as error:
        return [
            Mistake(found.key, _key(found.key, data), found.message)
            for finding in error.errors(include_url=False)
            for found in finding.get("ctx", {}).get("found", ())
            if not any(place[: len(loc)] == loc for loc in mistakes for place in (found.key, *found.others))
        ]
    return []


def _mend(data: dict[str, Any], loc: Loc) -> bool:
    """Put the default, or a stand-in, where a mistake is. False if that cannot be done."""
    setting = all_settings().get(_plain(loc))
    if loc == ("run",):
        data["run"] = {"name": "unnamed"}
    elif setting is not None and setting.required:
        _at(data, loc[:-1])[loc[-1]] = "cpu" if loc[-1] == "model" else f"unnamed-{'-'.join(map(str, loc[:-1]))}"
    elif _has(data, loc) and isinstance(loc[-1], str) and loc != ("node",):
        del _at(data, loc[:-1])[loc[-1]]
    else:
        return False
    return True


def _without_consequences(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Without "missing" where an unknown key of the same table already asks whether it was meant."""
    meant = {mistake.what.rpartition(" ")[2] for mistake in mistakes}
    return [mistake for mistake in mistakes if not (mistake.what.startswith("missing") and f"{mistake.key}?" in meant)]
