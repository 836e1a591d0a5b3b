"""Task classes that users bring: found by entry point, module or file, and tried before they are used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import entry_points
from typing import Any

from motet.errors import MotetError, UsageError
from motet.tasks.faults import Fault, call_own_code
from motet.tasks.own_code import load_own, source_digest
from motet.tasks.task import SPLITS, Prompt, Score, Split, Task

ENTRY_POINTS = "motet.tasks"
_MEMBERS = ("name", "fingerprint", "num_prompts", "prompt", "score")


def installed_tasks() -> list[str]:
    """Names of the tasks that installed packages offer under the entry point group "motet.tasks"."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)})


def load_own_task(name: str, arguments: Mapping[str, Any]) -> Task:
    """Make a user's task and try it.

    Args:
        name: "module:Class", "file.py:Class", or the name of an installed task; what it names is called with the
            arguments and returns the task.
        arguments: its arguments.

    Raises:
        UsageError: it cannot be loaded or made, lacks a member of `Task`, gives other prompts the second time, or
            cannot score.
    """
    factory = _factory(name)
    made = _tried(name, "cannot be made", lambda: factory(**arguments))
    missing = [member for member in _MEMBERS if not hasattr(made, member)]
    if missing:
        raise _fault(name, f"is no task: it has no {', '.join(missing)}")
    task = _OwnTask(made, source_digest(factory, name))
    twin = _tried(name, "cannot be made a second time", lambda: factory(**arguments))
    _tried(name, "failed when tried", lambda: _try(task, twin))
    return task


class _OwnTask:
    """The user's task, with the source of its class in the fingerprint."""

    def __init__(self, task: Task, source: str) -> None:
        self._task = task
        self._source = source

    @property
    def name(self) -> str:
        return str(self._task.name)

    @property
    def fingerprint(self) -> str:
        return blake2b(f"{self._task.fingerprint} {self._source}".encode(), digest_size=16).hexdigest()

    def num_prompts(self, split: Split) -> int:
        return int(self._task.num_prompts(split))

    def prompt(self, prompt_id: str) -> Prompt:
        return self._task.prompt(prompt_id)

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        return list(self._task.score(prompt, completions))


def _factory(name: str) -> Any:
    if ":" in name:
        return load_own(name, setting="task.name", code="E-TASK-09", what="class")
    points = list(entry_points(group=ENTRY_POINTS, name=name))
    return _tried(name, "cannot be loaded", points[0].load)


def _try(task: Task, twin: Task) -> None:
    sizes = {split: task.num_prompts(split) for split in SPLITS}
    if sizes["train"] + sizes["test"] < 1:
        raise ValueError(f"num_prompts says {sizes}; there is nothing to train on and nothing to test")
    split: Split = "train" if sizes["train"] else "test"
    for prompt_id in dict.fromkeys([f"{split}/0", f"{split}/{sizes[split] - 1}"]):
        prompt = task.prompt(prompt_id)
        if not isinstance(prompt, Prompt) or prompt.id != prompt_id or not prompt.text:
            raise TypeError(f'prompt("{prompt_id}") gave no Prompt of this id with a text')
        if task.prompt(prompt_id) != prompt or twin.prompt(prompt_id) != prompt:
            raise ValueError(f'prompt("{prompt_id}") gave another prompt the second time')
        scores = task.score(prompt, [prompt.answer, ""])
        if len(scores) != 2 or not all(score is None or isinstance(score, Score) for score in scores):
            raise TypeError("score gave something else than a Score or None for each of two completions")
        if not all(score is None or math.isfinite(score.value) for score in scores):
            raise ValueError("score gave a value that is not finite")


def _tried(name: str, what: str, call: Any) -> Any:
    def attempt() -> Any:
        try:
            return call()
        except MotetError as error:
            return error

    outcome = call_own_code(attempt)
    if isinstance(outcome, MotetError):
        raise outcome
    if isinstance(outcome, Fault):
        raise _fault(name, f"{what}: {outcome.line}")
    return outcome


def _fault(name: str, what: str) -> UsageError:
    return UsageError(f"task.name: {name} {what}", code="E-TASK-09")
