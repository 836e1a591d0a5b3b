"""The settings as data: key, description, default, and what is allowed in plain words. For errors, `init` and docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from motet.config.settings import RunFile, Section


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        key: dotted, without a node's number: "rollout.group_size", "node.lora.rank".
        description: what it does, with its unit; one line.
        allowed: what it may be, such as "a whole number from 2 to 1024".
        choices: the words that it may be, if it is one of a few.
        default: its default; None if it has none.
        required: True if a run file must give it.
        is_text: True if any value is text.
    """

    key: str
    description: str
    allowed: str
    choices: tuple[str, ...]
    default: object
    required: bool
    is_text: bool


@cache
def all_settings() -> Mapping[str, Setting]:
    """Every setting by its key, in the order of the run file.

    >>> all_settings()["rollout.group_size"].allowed
    'a whole number from 2 to 1024'
    """
    definitions: dict[str, Any] = RunFile.model_json_schema()["$defs"]
    return {setting.key: setting for setting in _settings(RunFile, "", definitions)}


@cache
def all_sections() -> Mapping[str, str]:
    """Every table of a run file by its key, with its purpose: "run", "task", ..., "node", "node.lora"."""
    return dict(_sections(RunFile, ""))


def _sections(section: type[Section], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        inner = _section_in(field.annotation)
        if inner is not None:
            yield prefix + name, inner.__doc__ or ""
            yield from _sections(inner, f"{prefix}{name}.")


def _settings(section: type[Section], prefix: str, definitions: Mapping[str, Any]) -> Iterator[Setting]:
    for name, field in section.model_fields.items():
        key = prefix + name
        inner = _section_in(field.annotation)
        if inner is not None:
            yield from _settings(inner, key + ".", definitions)
            continue
        schema = definitions[section.__name__]["properties"][name]
        description = " ".join((field.description or "").split())
        yield Setting(
            key=key,
            description=description,
            allowed=_allowed(schema, description),
            choices=tuple(_choices(schema)),
            default=None if field.is_required() else field.get_default(call_default_factory=True),
            required=field.is_required(),
            is_text=all(
                option.get("type") == "string" and not _choices(option)
                for option in _options(schema)
                if option.get("type") != "null"
            ),
        )


def _section_in(annotation: object) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part)) is not None), None)


def _options(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options: list[Mapping[str, Any]] = schema.get("anyOf", [schema])
    return options


def _choices(schema: Mapping[str, Any]) -> list[str]:
    return [
        str(choice)
        for option in _options(schema)
        for choice in (option.get("enum") or ([option["const"]] if "const" in option else []))
    ]


def _allowed(schema: Mapping[str, Any], description: str) -> str:
    options = [option for option in _options(schema) if option.get("type") != "null"]
    options.sort(key=lambda option: option.get("type") == "array")
    return " or ".join(_allowed_one(option, description) for option in options)


def _allowed_one(schema: Mapping[str, Any], description: str) -> str:
    if choices := _choices(schema):
        quoted = ", ".join(f'"{choice}"' for choice in choices)
        return quoted if len(choices) == 1 else f"one of {quoted}"
    if examples := schema.get("examples"):
        return f'"{examples[0]}"'
    if schema.get("pattern"):
        return description.split(". ")[0].split(": ")[-1].removesuffix(".")
    if schema["type"] == "array":
        some = "a list of at least one" if schema.get("minItems") else "a list"
        return f"{some} in [ ], each {_allowed_one(schema['items'], description)}"
    if schema["type"] == "string":
        return "text in quotes"
    if schema["type"] == "object":
        return "a table in { }"
    if schema["type"] == "boolean":
        return "true or false"
    return ("a whole number" if schema["type"] == "integer" else "a number") + _range(schema)


def _range(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if below is not None and schema["type"] == "integer":
        high, below = below - 1, None
    lower = f" above {above:g}" if above is not None else f" from {low:g}" if low is not None else ""
    upper = f" and below {below:g}" if below is not None else f" to {high}" if high is not None else ""
    return lower + (upper or (" up" if low is not None else ""))
