"""From the settings of a run's task to the task."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from motet.errors import UsageError
from motet.tasks.isolated import GYM_PREFIX, IsolatedTask
from motet.tasks.jsonl import JsonLinesTask
from motet.tasks.math_sets import MATH_SETS, load_math_set
from motet.tasks.own_task import installed_tasks
from motet.tasks.running_sums import RunningSums
from motet.tasks.task import Task
from motet.tasks.with_ood import WithOod

_RUNNING_SUMS: Final = "running_sums"
_ENDINGS: Final = (".jsonl", ".json")
_TERMS: Final = (3, 4, 5, 6)
_OOD_TERMS: Final = (7,)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings beside the name."""

    arguments: Mapping[str, Any]
    score_timeout_s: float
    terms: Sequence[int] = _TERMS
    ood_terms: Sequence[int] = _OOD_TERMS
    test_file: str | None = None
    ood_file: str | None = None
    prompt_column: str | None = None
    answer_column: str | None = None
    reward: str = "exact"


def load_task(  # noqa: PLR0913 - the keys of [task]
    *,
    name: str = _RUNNING_SUMS,
    arguments: Mapping[str, Any] | None = None,
    ood: str | None = None,
    ood_arguments: Mapping[str, Any] | None = None,
    score_timeout_s: float = 10.0,
    terms: Sequence[int] = _TERMS,
    ood_terms: Sequence[int] = _OOD_TERMS,
    test_file: str | None = None,
    ood_file: str | None = None,
    prompt_column: str | None = None,
    answer_column: str | None = None,
    reward: str = "exact",
    for_training: bool = True,
) -> Task:
    """The task that these settings describe; they are those of the run file's [task], with its defaults.

    Args:
        for_training: whether a task without training prompts, such as "math500", is an error.

    Raises:
        UsageError: no task or file of this name, a setting that the task does not have, or a task file that is wrong.
        EnvironmentFault: a package or the network is missing.

    >>> load_task(name="running_sums", terms=(3,)).prompt("test/0").columns["terms"]
    3
    """
    settings = _Settings(
        arguments=arguments or {},
        score_timeout_s=score_timeout_s,
        terms=tuple(terms),
        ood_terms=tuple(ood_terms),
        test_file=test_file,
        ood_file=ood_file,
        prompt_column=prompt_column,
        answer_column=answer_column,
        reward=reward,
    )
    if ood is None and ood_arguments:
        raise UsageError("task.ood_arguments: are given, but task.ood is not", code="E-TASK-01")
    if ood is not None and ood_file is not None:
        raise UsageError(
            "task.ood_file: and task.ood are given; out-of-distribution prompts come from one of them", code="E-TASK-01"
        )
    task = _load("task.name", name, settings)
    if for_training and not task.num_prompts("train"):
        raise UsageError(
            f'task.name: "{name}" has no training prompts, only test prompts; use it as task.ood, or evaluate on it',
            code="E-TASK-13",
        )
    if ood is None:
        return task
    return WithOod(task, _load("task.ood", ood, _Settings(ood_arguments or {}, score_timeout_s)))


def _load(key: str, name: str, settings: _Settings) -> Task:
    kind, _, folder = name.partition(":")
    if name.endswith(_ENDINGS):
        _refuse(name, settings, terms=True, arguments=True)
        return _json_lines(key, name, settings)
    if name == _RUNNING_SUMS:
        _refuse(name, settings, files=True, arguments=True)
        return RunningSums(settings.terms, settings.ood_terms)
    _refuse(name, settings, files=True, terms=True)
    if kind in MATH_SETS:
        _refuse(name, settings, arguments=True)
        return load_math_set(kind, folder or None, timeout_s=settings.score_timeout_s)
    if name.startswith(GYM_PREFIX) or ":" in name or name in installed_tasks():
        return IsolatedTask(name, settings.arguments, timeout_s=settings.score_timeout_s)
    raise _unknown(key, name)


def _json_lines(key: str, name: str, settings: _Settings) -> JsonLinesTask:
    if not Path(name).is_file():
        raise UsageError(f"{key}: no file {name} (looked in {Path.cwd()}){_near_file(name)}", code="E-TASK-02")
    return JsonLinesTask(
        name,
        test_file=settings.test_file,
        ood_file=settings.ood_file,
        prompt_column=settings.prompt_column,
        answer_column=settings.answer_column,
        reward=settings.reward,
        score_timeout_s=settings.score_timeout_s,
    )


def _refuse(
    name: str, settings: _Settings, *, files: bool = False, terms: bool = False, arguments: bool = False
) -> None:
    """Raise for a setting that is not at its default, although it is for other tasks than `name`."""
    default = _Settings({}, settings.score_timeout_s)
    groups = {
        "JSON-lines files": ("test_file", "ood_file", "prompt_column", "answer_column", "reward") if files else (),
        _RUNNING_SUMS: ("terms", "ood_terms") if terms else (),
        "gym:<name> and installed tasks": ("arguments",) if arguments else (),
    }
    for owner, keys in groups.items():
        for key in keys:
            if getattr(settings, key) != getattr(default, key):
                raise UsageError(f'task.{key}: is for {owner}, but task.name = "{name}"', code="E-TASK-01")


def _unknown(key: str, name: str) -> UsageError:
    if Path(name).is_file():
        return UsageError(
            f"{key}: {name} is a file, but not named .jsonl; task files are JSON lines, one object a line",
            code="E-TASK-01",
        )
    names = [_RUNNING_SUMS, *MATH_SETS, *installed_tasks()]
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f'did you mean "{nearest[0]}"? ' if nearest else ""
    allowed = ", ".join(f'"{allowed}"' for allowed in names)
    return UsageError(
        f'{key}: "{name}" is unknown; {hint}allowed: {allowed}, "gym:<name>", "module:Class", or the path of a '
        ".jsonl file",
        code="E-TASK-01",
    )


def _near_file(name: str) -> str:
    folder = Path(name).parent
    if not folder.is_dir():
        return f"; there is no folder {folder}"
    files = [path.name for path in folder.iterdir() if path.name.endswith(_ENDINGS)]
    nearest = difflib.get_close_matches(Path(name).name, files, n=1)
    return f"; did you mean {folder / nearest[0]}?" if nearest else ""
