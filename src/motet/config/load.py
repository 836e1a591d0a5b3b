"""Reading a run file. Every mistake in it is reported at once, one line each: where, which key, what, what instead."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from motet.config.mistakes import Mistake, check
from motet.config.overrides import BadOverrideError, apply_override
from motet.config.positions import Loc, key_lines
from motet.config.settings import RunFile
from motet.errors import UsageError

MAX_FILE_BYTES: Final = 1_000_000

_START: Final = {
    "run file": "`motet init {}` writes one to start from",
    "study file": "configs/study/sums.toml is one to start from",
}
_SYNTAX_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SYNTAX_HINTS: Final = (
    ("Cannot overwrite", "this key stands twice"),
    ("Cannot declare", "this section stands twice"),
    ("Invalid value", 'text needs quotes ("..."), and true and false are written small'),
    ("Invalid initial character", "a key is expected; { ... } must stand on one line"),
    ("Illegal character", "a quote is opened and not closed on this line"),
    ("Invalid statement", 'a section is written [name], a setting name = "value"'),
    ("Expected '='", "a setting is written key = value"),
    ("Expected newline", "a setting ends with its line; text needs quotes"),
    ("Unclosed inline table", "{ ... } must stand on one line, with no comma at its end"),
)


def load_run_file(path: str | Path, overrides: Sequence[str] = ()) -> RunFile:
    """Read a run file and lay `--set` flags over it.

    Args:
        path: a TOML file.
        overrides: "section.key=value" each; a node by name or number, "node.small.model=tiny:large".

    Raises:
        UsageError: the file cannot be read (E-CONFIG-01), is no TOML (E-CONFIG-02), has wrong settings (E-CONFIG-03),
            or a flag cannot be carried out (E-CONFIG-04). The message has one line for each mistake.
    """
    data, lines = read_toml(path)
    if isinstance(data.get("study"), dict) and isinstance(data.get("arm"), dict):
        raise UsageError(f"{path}: a study file, not a run file; `motet study {path}` runs it", code="E-CONFIG-03")
    flags: dict[Loc, str] = {}
    bad_flags = []
    for flag in overrides:
        try:
            flags[apply_override(data, flag)] = flag
        except BadOverrideError as error:
            bad_flags.append(f"--set {flag}: {error}")
    found = check(data)
    if isinstance(found, RunFile):
        if bad_flags:
            raise UsageError("\n".join(bad_flags), code="E-CONFIG-04")
        return found
    found.sort(key=lambda mistake: line_of(mistake.loc, lines) or 0)
    described = [f"{_source(path, mistake, lines, flags)}  {mistake.key}: {mistake.what}" for mistake in found]
    raise UsageError("\n".join([*described, *bad_flags]), code="E-CONFIG-03")


def with_overrides(plain: dict[str, Any], overrides: Sequence[str] = ()) -> RunFile:
    """The run file of settings that come from no file of the user's.

    Args:
        plain: the settings; changed in place.
        overrides: "section.key=value" each.

    Raises:
        UsageError: E-CONFIG-03 or E-CONFIG-04, as for a run file.
    """
    bad = []
    for flag in overrides:
        try:
            apply_override(plain, flag)
        except BadOverrideError as error:
            bad.append(f"--set {flag}: {error}")
    if bad:
        raise UsageError("\n".join(bad), code="E-CONFIG-04")
    found = check(plain)
    if isinstance(found, RunFile):
        return found
    raise UsageError("\n".join(f"{mistake.key}: {mistake.what}" for mistake in found), code="E-CONFIG-03")


def read_toml(path: str | Path, *, kind: str = "run file") -> tuple[dict[str, Any], Mapping[Loc, int]]:
    """A TOML file, parsed, and the line of each of its keys.

    Args:
        path: the file.
        kind: what it should be, for messages.

    Raises:
        UsageError: it cannot be read (E-CONFIG-01), or is no TOML (E-CONFIG-02).
    """
    text = _read(Path(path), kind)
    try:
        return tomllib.loads(text), key_lines(text)
    except ValueError as error:
        raise UsageError(_syntax_message(path, text, error, kind), code="E-CONFIG-02") from None
    except RecursionError:
        raise UsageError(f"{path}: not a {kind}: lists or tables nested too deep", code="E-CONFIG-02") from None


def line_of(loc: Loc, lines: Mapping[Loc, int]) -> int | None:
    """The line of a place, or of the nearest table around it."""
    return next((lines[loc[:length]] for length in range(len(loc), 0, -1) if loc[:length] in lines), None)


def _read(path: Path, kind: str) -> str:
    problem = ""
    try:
        if path.is_dir():
            problem = f"a folder, not a {kind}"
        elif path.exists() and not path.is_file():
            problem = "not an ordinary file"
        elif path.exists() and path.stat().st_size > MAX_FILE_BYTES:
            problem = f"too large for a {kind} ({path.stat().st_size:,} bytes; at most {MAX_FILE_BYTES:,})"
        else:
            text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
            problem = "" if text.strip() else f"empty; {_START[kind].format('FILE')}"
    except FileNotFoundError:
        problem = "no such file; " + _instead_of(path, kind)
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text (byte {error.start}); save it as UTF-8"
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if problem:
        raise UsageError(f"{path}: {problem}", code="E-CONFIG-01")
    return text


def _instead_of(path: Path, kind: str) -> str:
    """What to do about a file that is not there."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    names = [entry.name for entry in path.parent.glob("*.toml")]
    nearest = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / nearest[0]}?" if nearest else _START[kind].format(path)


def _syntax_message(path: str | Path, text: str, error: ValueError, kind: str) -> str:
    message = str(error)
    place = _SYNTAX_PLACE.search(message)
    where = str(path)
    if place is not None:
        line, column = place.groups() if place.group(1) else (str(text.rstrip().count("\n") + 1), "")
        where += f":{line}" + (f":{column}" if column else "")
        message = message[: place.start()]
    if Path(path).suffix.lower() in {".yaml", ".yml", ".json"}:
        start = _START[kind].format("FILE")
        return f"{where}: a {kind} is TOML, and this is {Path(path).suffix}; {start}"
    hint = next((hint for start, hint in _SYNTAX_HINTS if message.startswith(start)), "")
    return f"{where}: not TOML: {message[:1].lower()}{message[1:]}" + (f"; {hint}" if hint else "")


def _source(path: str | Path, mistake: Mistake, lines: Mapping[Loc, int], flags: Mapping[Loc, str]) -> str:
    """Where a setting comes from: file and line, or the flag."""
    loc = mistake.loc
    for set_loc, flag in flags.items():
        if loc[: len(set_loc)] == set_loc or (set_loc[: len(loc)] == loc and loc not in lines):
            return f"--set {flag}"
    line = line_of(loc, lines)
    return str(path) if line is None else f"{path}:{line}"
