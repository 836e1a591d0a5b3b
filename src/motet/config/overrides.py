"""`--set section.key=value`: settings given on the command line, laid over those of the file."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any

from motet.config.fields import all_settings
from motet.config.positions import Loc


class BadOverrideError(ValueError):
    """A `--set` that cannot be carried out; the text says why."""


def apply_override(data: dict[str, Any], flag: str) -> Loc:
    """Put one `section.key=value` into a parsed run file, in place.

    The value is read as TOML and, where that fails or the setting is text, taken as it stands. A node is named by its
    name or its number from 0: `node.small.model=tiny:large`.

    Returns:
        The place that was set.

    Raises:
        BadOverrideError: no "=", no section, or no such node.
    """
    key, equals, value = flag.partition("=")
    key = key.strip()
    if not equals or "." not in key.strip("."):
        raise BadOverrideError("write it as section.key=value, such as --set rollout.group_size=16")
    loc = _place(data, key)
    parent: Any = data["node"] if loc[0] == "node" else data
    for part in loc[1:-1] if loc[0] == "node" else loc[:-1]:
        parent = parent.setdefault(part, {}) if isinstance(parent, dict) else parent[part]
        if not isinstance(parent, dict):
            raise BadOverrideError(f"{part} is no section in the run file, so nothing in it can be set")
    parent[loc[-1]] = _parsed(".".join(part for part in loc if isinstance(part, str)), value.strip())
    return loc


def _place(data: Mapping[str, Any], key: str) -> Loc:
    section, _, rest = key.partition(".")
    if section != "node":
        return (section, *rest.split("."))
    nodes = data.get("node")
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise BadOverrideError("the run file has no [[node]] tables")
    names = {str(node.get("name", index)): index for index, node in enumerate(nodes)}
    numbers = {str(index): index for index in range(len(nodes))}
    for label, index in [*sorted(names.items(), key=lambda item: -len(item[0])), *numbers.items()]:
        if rest.startswith(label + "."):
            return ("node", index, *rest.removeprefix(label + ".").split("."))
    asked = rest.partition(".")[0]
    nearest = difflib.get_close_matches(asked, names, n=1)
    hint = f'; did you mean "{nearest[0]}"?' if nearest else ""
    raise BadOverrideError(f'no node "{asked}"; write node.NAME.key=value with NAME one of {", ".join(names)}{hint}')


def _parsed(key: str, value: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {value}")
    except ValueError:
        return value
    setting = all_settings().get(key)
    is_raw = len(parsed) > 1 or (setting is not None and setting.is_text and not isinstance(parsed["value"], str))
    return value if is_raw else parsed["value"]
