"""A task whose prompts all lie in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from motet.tasks.faults import Faults, faults_of
from motet.tasks.prompt_id import parse_prompt_id
from motet.tasks.rewards import RewardFunction
from motet.tasks.task import SPLITS, Prompt, Score, Split


class TableTask:
    """Prompts of a table, scored by a reward function; implements `Task`.

    Args:
        name: for reports.
        prompts: of each split, in the order of their ids.
        reward: what completions earn.

    Attributes:
        reward: the reward function.
    """

    def __init__(self, name: str, prompts: Mapping[Split, Sequence[Prompt]], *, reward: RewardFunction) -> None:
        self.reward = reward
        self._name = name
        self._prompts = {split: tuple(prompts[split]) for split in SPLITS}
        self._fingerprint = self._digest()

    @property
    def name(self) -> str:
        """Name for reports."""
        return self._name

    @property
    def fingerprint(self) -> str:
        """Hex digest of all prompts, answers and columns, and of the reward; not of the files' places."""
        return self._fingerprint

    @property
    def faults(self) -> Faults:
        """Completions without a score, by cause."""
        return faults_of(self.reward)

    def num_prompts(self, split: Split) -> int:
        """How many prompts the split has."""
        return len(self._prompts[split])

    def prompt(self, prompt_id: str) -> Prompt:
        """The prompt with this id.

        Raises:
            KeyError: no such id.
        """
        split, index = parse_prompt_id(prompt_id, self.num_prompts)
        return self._prompts[split][index]

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """Scores by the reward function; None where it gave none."""
        return self.reward(prompt, completions)

    def _digest(self) -> str:
        digest = blake2b(f"{self.reward.name}\n{self.reward.digest}\n".encode(), digest_size=16)
        for split in SPLITS:
            for prompt in self._prompts[split]:
                row: list[object] = [split, prompt.text, prompt.answer, dict(prompt.columns)]
                if prompt.messages:
                    row.append(prompt.messages)
                digest.update(json.dumps(row, sort_keys=True, default=repr).encode() + b"\n")
        return digest.hexdigest()
