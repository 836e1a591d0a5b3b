"""A task of your own: sorting letters.

In a run file:   [task]
                 name = "examples/own_task.py:SortLetters"
                 arguments = { length = 5 }

Prompts must follow from the arguments and the id alone, since every node makes them for itself. A reward that raises or
hangs costs that completion only. A package offers tasks under the entry point group "motet.tasks".
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from motet.tasks import Prompt, Score, Split

NUM_PROMPTS: dict[Split, int] = {"train": 2000, "test": 200, "ood": 200}


class SortLetters:
    def __init__(self, length: int = 5) -> None:
        self._length = length
        self.name = "sort_letters"
        self.fingerprint = f"sort_letters/1 length={length}"

    def num_prompts(self, split: Split) -> int:
        return NUM_PROMPTS[split]

    def prompt(self, prompt_id: str) -> Prompt:
        split, index = prompt_id.split("/")
        length = self._length + (split == "ood")
        letters = random.Random(f"{split} {index}").sample("abcdefghijklmnopqrstuvwxyz", length)
        # what is tested follows from the letters, so that nothing is both trained on and tested
        while (sum(map(ord, letters)) % 5 == 0) != (split == "test") and split != "ood":
            index += "+"
            letters = random.Random(f"{split} {index}").sample("abcdefghijklmnopqrstuvwxyz", length)
        text = f"Sort these letters: {' '.join(letters)}\nSorted:"
        return Prompt(prompt_id, text, " ".join(sorted(letters)))

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        wanted = prompt.answer.split()
        scores: list[Score | None] = []
        for completion in completions:
            found = completion.split()[: len(wanted)]
            right = sum(a == b for a, b in zip(found, wanted, strict=False)) / len(wanted)
            scores.append(Score(right, parts={"answer": float(right == 1)}, extracted=" ".join(found) or None))
        return scores
