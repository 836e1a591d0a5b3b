"""The task "running sums": add up one-digit numbers and write down every partial sum.

    prompt      3+5+9=
    completion  08.17;      (3+5 = 08, 08+9 = 17; ';' is the end token)

Small models learn it in minutes, and longer sums are a natural out-of-distribution test. No data file: each prompt is
computed from its id by a hash, the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate

from motet.errors import UsageError
from motet.tasks.prompt_id import parse_prompt_id
from motet.tasks.task import Prompt, Score, Split

MAX_TERMS = 20
_NUM_PROMPTS: dict[Split, int] = {"train": 100_000, "test": 4096, "ood": 4096}
_NUMBER = re.compile(r"[0-9]+")
_HELD_OUT_KEY = b"motet running_sums held out"


class RunningSums:
    """Sums of one-digit numbers (1 to 9) with their running totals; implements `Task`.

    A sum is held out (splits "test" and "ood") iff a keyed hash of its text falls into a fixed fifth, so no training
    prompt is ever tested, whatever the lengths.

    Args:
        terms: numbers of terms in the training and test sums, mixed evenly: index i has `terms[i % len(terms)]`.
        ood_terms: numbers of terms in the out-of-distribution sums; none gives an empty split.

    Raises:
        UsageError: no training length, a length outside 2..20, or a length in both.

    >>> task = RunningSums()
    >>> prompt = task.prompt("train/0")
    >>> prompt.text, task.solution(prompt)
    ('9+6+8=', '15.23;')
    >>> [score.value for score in task.score(prompt, [task.solution(prompt), "15.24", ""])]
    [1.0, 0.0, 0.0]
    """

    def __init__(self, terms: Sequence[int] = (3, 4, 5, 6), ood_terms: Sequence[int] = (7,)) -> None:
        _check_terms(terms, ood_terms)
        self._terms: dict[Split, tuple[int, ...]] = {
            "train": tuple(terms),
            "test": tuple(terms),
            "ood": tuple(ood_terms),
        }

    @property
    def name(self) -> str:
        """Name for reports."""
        return "running_sums"

    @property
    def fingerprint(self) -> str:
        """Hex digest of the settings and of the version of this task."""
        settings = f"running_sums/1 terms={self._terms['train']} ood_terms={self._terms['ood']}"
        return blake2b(settings.encode(), digest_size=16).hexdigest()

    def num_prompts(self, split: Split) -> int:
        """Prompts of a split; there are fewer different sums than that where the sums are short."""
        return _NUM_PROMPTS[split] if self._terms[split] else 0

    def prompt(self, prompt_id: str) -> Prompt:
        """The sum with this id.

        Raises:
            KeyError: no such id.
        """
        split, index = parse_prompt_id(prompt_id, self.num_prompts)
        terms = self._terms[split]
        digits = _draw(split, index, terms[index % len(terms)])
        return Prompt(id=prompt_id, text=_text(digits), answer=str(sum(digits)), columns={"terms": len(digits)})

    def solution(self, prompt: Prompt) -> str:
        """The whole right completion, end token included: "08.17;"."""
        digits = [int(digit) for digit in prompt.text[:-1].split("+")]
        return ".".join(f"{total:02d}" for total in list(accumulate(digits))[1:]) + ";"

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """1.0 if the last number before the last ';' (or in all of the text, without one) is the sum, else 0.0.

        The part "working" is 1.0 if every partial sum is right and nothing else is written. It does not count.
        """
        solution = self.solution(prompt)
        return [_score(completion, prompt.answer, solution) for completion in completions]


def _check_terms(terms: Sequence[int], ood_terms: Sequence[int]) -> None:
    if not terms:
        raise UsageError("task.terms: is empty; give at least one length, such as [3, 4, 5, 6]", code="E-TASK-06")
    for key, values in (("terms", terms), ("ood_terms", ood_terms)):
        for value in values:
            if not 2 <= value <= MAX_TERMS:
                raise UsageError(f"task.{key}: {value} is outside 2..{MAX_TERMS}", code="E-TASK-06")
    both = sorted(set(terms) & set(ood_terms))
    if both:
        raise UsageError(
            f"task.ood_terms: {both[0]} is also in task.terms; out-of-distribution lengths must be others",
            code="E-TASK-06",
        )


def _draw(split: Split, index: int, num_terms: int) -> list[int]:
    attempt = 0
    while True:
        seed = f"running_sums/{split}/{index}/{attempt}".encode()
        number = int.from_bytes(blake2b(seed, digest_size=64).digest(), "big")
        digits = []
        for _ in range(num_terms):
            number, digit = divmod(number, 9)
            digits.append(digit + 1)
        if _is_held_out(_text(digits)) == (split != "train"):
            return digits
        attempt += 1


def _text(digits: Sequence[int]) -> str:
    return "+".join(str(digit) for digit in digits) + "="


def _is_held_out(text: str) -> bool:
    digest = blake2b(text.encode(), digest_size=8, key=_HELD_OUT_KEY).digest()
    return int.from_bytes(digest, "big") % 5 == 0


def _score(completion: str, answer: str, solution: str) -> Score:
    body = completion.rpartition(";")[0] if ";" in completion else completion
    numbers = _NUMBER.findall(body)
    extracted = numbers[-1] if numbers else None
    value = float(extracted is not None and extracted.lstrip("0") == answer)
    working = float(body == solution[:-1])
    return Score(value=value, parts={"answer": value, "working": working}, extracted=extracted)
