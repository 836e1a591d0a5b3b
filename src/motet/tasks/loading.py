"""From the settings of a run's task to the task."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from motet.errors import UsageError
from motet.tasks.jsonl import JsonLinesTask
from motet.tasks.running_sums import RunningSums
from motet.tasks.task import Task

_NAMES = ("running_sums",)
_ENDINGS = (".jsonl", ".json")


def load_task(
    *,
    name: str = "running_sums",
    terms: Sequence[int] = (3, 4, 5, 6),
    ood_terms: Sequence[int] = (7,),
    test_file: str | None = None,
    ood_file: str | None = None,
    prompt_column: str | None = None,
    answer_column: str | None = None,
    reward: str = "exact",
) -> Task:
    """The task that these settings describe; they are those of the run file's [task], with its defaults.

    Raises:
        UsageError: no task or file of this name, or a task file that is wrong.

    >>> load_task(name="running_sums", terms=(3,)).prompt("test/0").columns["terms"]
    3
    """
    if name == "running_sums":
        only_files = {"test_file": test_file, "ood_file": ood_file}
        only_files.update(prompt_column=prompt_column, answer_column=answer_column)
        for key, value in only_files.items():
            if value is not None:
                raise UsageError(f'task.{key}: is for JSON-lines files, but task.name = "{name}"', code="E-TASK-01")
        return RunningSums(terms, ood_terms)
    if name.endswith(_ENDINGS):
        if not Path(name).is_file():
            raise UsageError(f"task.name: no file {name} (looked in {Path.cwd()}){_near_file(name)}", code="E-TASK-02")
        return JsonLinesTask(
            name,
            test_file=test_file,
            ood_file=ood_file,
            prompt_column=prompt_column,
            answer_column=answer_column,
            reward=reward,
        )
    if Path(name).is_file():
        raise UsageError(
            f"task.name: {name} is a file, but not named .jsonl; task files are JSON lines, one object a line",
            code="E-TASK-01",
        )
    nearest = difflib.get_close_matches(name, _NAMES, n=1)
    hint = f'did you mean "{nearest[0]}"? ' if nearest else ""
    raise UsageError(
        f'task.name: "{name}" is unknown; {hint}allowed: "running_sums", or the path of a .jsonl file',
        code="E-TASK-01",
    )


def _near_file(name: str) -> str:
    folder = Path(name).parent
    if not folder.is_dir():
        return f"; there is no folder {folder}"
    files = [path.name for path in folder.iterdir() if path.name.endswith(_ENDINGS)]
    nearest = difflib.get_close_matches(Path(name).name, files, n=1)
    return f"; did you mean {folder / nearest[0]}?" if nearest else ""
