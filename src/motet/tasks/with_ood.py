"""A task whose out-of-distribution prompts are another task's test prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from hashlib import blake2b

from motet.errors import UsageError
from motet.tasks.faults import Faults, faults_of
from motet.tasks.prompt_id import parse_prompt_id
from motet.tasks.table import TableTask
from motet.tasks.task import Prompt, Score, Split, Task


class WithOod:
    """Implements `Task`: train and test of one task, and the test prompts of another as "ood/<index>".

    Where both tasks are tables, prompts of `ood` that `task` trains on are left out. Tasks of reasoning-gym never test
    what another of them trains on. Between other kinds nothing is compared.

    Args:
        task: what is trained and tested.
        ood: the other task.

    Attributes:
        num_left_out: prompts of `ood` that are left out because `task` trains on them.

    Raises:
        UsageError: `ood` has no test prompts that are not trained on.
    """

    def __init__(self, task: Task, ood: Task) -> None:
        self._task = task
        self._ood = ood
        self._kept: Sequence[int] = range(ood.num_prompts("test"))
        if isinstance(task, TableTask) and isinstance(ood, TableTask):
            trained = {task.prompt(f"train/{i}").text for i in range(task.num_prompts("train"))}
            self._kept = [i for i in self._kept if ood.prompt(f"test/{i}").text not in trained]
        self.num_left_out = ood.num_prompts("test") - len(self._kept)
        if not self._kept:
            raise UsageError(f"task.ood: {ood.name} has no test prompts that are not trained on", code="E-TASK-05")

    @property
    def name(self) -> str:
        """Name for reports: that of the task that is trained."""
        return self._task.name

    @property
    def fingerprint(self) -> str:
        """Hex digest of both tasks'."""
        return blake2b(f"{self._task.fingerprint} {self._ood.fingerprint}".encode(), digest_size=16).hexdigest()

    @property
    def faults(self) -> Faults:
        """Completions without a score, by cause."""
        both = Faults()
        for task in (self._task, self._ood):
            both.add(faults_of(task))
        return both

    def num_prompts(self, split: Split) -> int:
        """How many prompts the split has."""
        return len(self._kept) if split == "ood" else self._task.num_prompts(split)

    def prompt(self, prompt_id: str) -> Prompt:
        """The prompt with this id.

        Raises:
            KeyError: no such id.
        """
        split, index = parse_prompt_id(prompt_id, self.num_prompts)
        if split != "ood":
            return self._task.prompt(prompt_id)
        return dataclasses.replace(self._ood.prompt(f"test/{self._kept[index]}"), id=prompt_id)

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """Scores by the task that the prompt is of."""
        if not prompt.id.startswith("ood/"):
            return self._task.score(prompt, completions)
        _, index = parse_prompt_id(prompt.id, self.num_prompts)
        return self._ood.score(dataclasses.replace(prompt, id=f"test/{self._kept[index]}"), completions)
