"""A node's held-out examinations: the same prompts every time."""

from __future__ import annotations

from collections.abc import Mapping

from motet.evaluation import Evaluation, evaluate
from motet.generation import Generator
from motet.models import Tokenizer
from motet.node.sampling import derived_seed
from motet.tasks import Split, Task

HELD_OUT: tuple[Split, ...] = ("test", "ood")
GREEDY = "_greedy"
"""What follows the name of a split that was asked at temperature 0 beside the run's own temperature."""


class Examiner:
    """Evaluates one node's policy on the held-out splits.

    Args:
        seed: of the run. All nodes of a run answer the same prompts with the same random numbers.
        generator: of the node.
        tokenizer: of its model.
        task: prompts and rewards.
        max_new_tokens: longest completion.
        temperature: sampling temperature.
    """

    def __init__(
        self,
        *,
        seed: int,
        generator: Generator,
        tokenizer: Tokenizer,
        task: Task,
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self._seed = seed
        self._generator = generator
        self._tokenizer = tokenizer
        self._task = task
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature

    def examine(self, *, num_prompts: int, also_greedy: bool = False) -> Mapping[str, Evaluation]:
        """Evaluations of the splits that the task has, by split; greedy ones as "test_greedy" and "ood_greedy".

        Args:
            num_prompts: of each split.
            also_greedy: ask each prompt a second time, at temperature 0.
        """
        temperatures = {"": self._temperature} | ({GREEDY: 0.0} if also_greedy else {})
        results: dict[str, Evaluation] = {}
        for suffix, temperature in temperatures.items():
            for split in HELD_OUT:
                result = evaluate(
                    self._generator,
                    self._tokenizer,
                    self._task,
                    split,
                    num_prompts=num_prompts,
                    max_new_tokens=self._max_new_tokens,
                    temperature=temperature,
                    seed=derived_seed(self._seed, "evaluate", split),
                )
                if result is not None:
                    results[split + suffix] = result
        return results
