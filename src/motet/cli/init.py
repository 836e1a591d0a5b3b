"""`motet init`: a commented run file to start from, and the JSON Schema that lets an editor complete it."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from motet.cli.main import VERBS
from motet.config import Setting, all_settings, json_schema
from motet.config.dump import toml_value
from motet.config.fields import all_sections
from motet.errors import UsageError

DEFAULT_FILE: Final = Path("run.toml")
DEFAULT_SCHEMA: Final = "motet.schema.json"
WIDTH: Final = 100

CHOSEN_FOR_SUMS: Final[Mapping[str, object]] = {
    "run.rounds": 90,
    "task.name": "running_sums",
    "method.name": "f_tis",
    "method.kl_limit_nats": 10.0,
    "learner.learning_rate": 5e-4,
    "learner.schedule": "linear",
    "learner.final_learning_rate": 5e-5,
}
CHOSEN_FOR_FILE: Final[Mapping[str, object]] = {
    "task.reward": "exact",
    "rollout.max_new_tokens": 256,
    "method.name": "f_tis",
    "learner.precision": "bf16",
}
NODES_FOR_SUMS: Final = (("small", "tiny:small"), ("large", "tiny:large"))
NODES_FOR_FILE: Final = (
    ("small", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ("large", "HuggingFaceTB/SmolLM2-360M-Instruct"),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser("init", description=f"{VERBS['init'].capitalize()}.")
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help=f"file to write (default: {DEFAULT_FILE})")
    parser.add_argument(
        "--task",
        default="running_sums",
        help='"running_sums" (default), or a JSON-lines file with a prompt and an answer in each line',
    )
    parser.add_argument(
        "--schema",
        metavar="SCHEMA",
        type=Path,
        help="also write the JSON Schema for editors here; without FILE, write nothing else",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    schema_only = args.schema is not None and args.file is None
    file = DEFAULT_FILE if args.file is None else args.file
    contents: dict[Path, str] = {}
    if args.schema is not None:
        contents[args.schema] = json_schema()
    if not schema_only:
        schema = DEFAULT_SCHEMA if args.schema is None else os.path.relpath(args.schema, file.parent)
        contents[file] = starting_file(file.stem, _checked_task(args.task), schema=schema)
    for path in contents:
        _check_free(path, force=args.force)
    for path, content in contents.items():
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path}")
    if not schema_only:
        print(f"next: motet swarm {file} --dry-run")
    return 0


def starting_file(name: str, task: str, *, schema: str) -> str:
    """A commented run file: what differs from the defaults is set, every other setting stands in a comment.

    Args:
        name: of the run; characters that a name cannot have become "-".
        task: "running_sums" or the path of a JSON-lines file.
        schema: path of the JSON Schema, relative to the run file.
    """
    is_sums = task == "running_sums"
    chosen: Mapping[str, object] = {
        "run.name": _as_name(name),
        "task.name": task,
        **(CHOSEN_FOR_SUMS if is_sums else CHOSEN_FOR_FILE),
    }
    nodes = NODES_FOR_SUMS if is_sums else NODES_FOR_FILE
    lines = [
        f"#:schema {Path(schema).as_posix()}",
        "# A run of motet. Settings in comments show their defaults; take away the # to change one.",
        f"# The first line lets editors complete and check this file: motet init --schema {Path(schema).as_posix()}",
    ]
    for section, purpose in all_sections().items():
        if not section.startswith("node"):
            lines += ["", f"# {purpose}", f"[{section}]", *_section_lines(section, chosen)]
    (first, *others), purposes = nodes, all_sections()
    lines += ["", f"# {purposes['node']}", "[[node]]", *_section_lines("node", _node(*first))]
    for section in purposes:
        if section.startswith("node."):
            lines += [f"# {purposes[section]}", f"# [{section}]", *_section_lines(section, {})]
    for node in others:
        lines += ["", "[[node]]", *_pairs(_node(*node))]
    return "\n".join(lines) + "\n"


def _node(name: str, model: str) -> Mapping[str, object]:
    return {"node.name": name, "node.model": model}


def _section_lines(section: str, chosen: Mapping[str, object]) -> Iterator[str]:
    for setting in all_settings().values():
        if setting.key.rpartition(".")[0] == section:
            yield from textwrap.wrap(
                _explained(setting), WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
            )
            yield from _pairs({setting.key: chosen[setting.key]}) if setting.key in chosen else [_as_comment(setting)]


def _explained(setting: Setting) -> str:
    """The description, with the choices where it does not name them itself."""
    named = all(choice in setting.description for choice in setting.choices)
    return setting.description if named else f"{setting.description} {setting.allowed.capitalize()}."


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"{key.rpartition('.')[2]} = {toml_value(value)}" for key, value in values.items()]


def _as_comment(setting: Setting) -> str:
    key = setting.key.rpartition(".")[2]
    return f"# {key} =" if setting.default is None else f"# {key} = {toml_value(setting.default)}"


def _as_name(stem: str) -> str:
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in stem)[:64]
    return kept if kept[:1].isalnum() else f"run{kept}"[:64]


def _checked_task(task: str) -> str:
    if task != "running_sums" and not Path(task).is_file():
        raise UsageError(
            f'--task {task}: no such file; allowed: "running_sums", or a JSON-lines file of prompts and answers',
            code="E-CLI-04",
        )
    return task


def _check_free(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file to write", code="E-CLI-05")
    if path.exists() and not force:
        raise UsageError(f"{path}: there already; --force overwrites it", code="E-CLI-05")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", code="E-CLI-05")
