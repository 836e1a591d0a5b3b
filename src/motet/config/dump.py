"""A run file written out: resolved, as TOML that reads back equal; and the JSON Schema that editors complete from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from motet.config.settings import RunFile

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def dump_run_file(run: RunFile) -> str:
    """TOML with every setting that has a value; `load_run_file` makes an equal `RunFile` of it."""
    content = run.model_dump(exclude_none=True)
    nodes = content.pop("node")
    blocks = [_table(f"[{name}]", section) for name, section in content.items()]
    for node in nodes:
        inner = {name: node.pop(name) for name in ("lora", "generation") if name in node}
        blocks.append(_table("[[node]]", node))
        blocks.extend(_table(f"[node.{name}]", section) for name, section in inner.items())
    return "\n\n".join(blocks) + "\n"


def json_schema() -> str:
    """JSON Schema of a run file, for editors that complete and check TOML."""
    schema = {"$schema": SCHEMA_DIALECT, **RunFile.model_json_schema(), "title": "A run of motet"}
    return json.dumps(schema, indent=2) + "\n"


def toml_value(value: object) -> str:
    r"""A value as TOML.

    >>> print(toml_value(("all", 1, 1e-6, True)))
    ["all", 1, 1e-06, true]
    """
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {toml_value(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def _table(header: str, section: Mapping[str, Any]) -> str:
    return "\n".join([header, *_pairs(section)])


def _pairs(section: Mapping[str, Any]) -> Iterator[str]:
    for key, value in section.items():
        yield f"{key} = {toml_value(value)}"
