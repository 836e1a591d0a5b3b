"""Rewards of (completion, answer) pairs: "exact", "numeric", "math", "boxed", or a function of the user's own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Protocol

from motet.errors import UsageError
from motet.tasks.isolated import IsolatedReward
from motet.tasks.math_reward import MathReward, math_digest
from motet.tasks.numbers import last_number
from motet.tasks.own_reward import OwnReward, load_function
from motet.tasks.task import Prompt, Score


class RewardFunction(Protocol):
    """Scores the completions of one prompt. MUST NOT raise on any text."""

    @property
    def name(self) -> str:
        """Name for reports."""
        ...

    @property
    def digest(self) -> str:
        """What decides the scores, for the task's fingerprint."""
        ...

    @property
    def needs_answer(self) -> bool:
        """Whether every prompt must have a reference answer."""
        ...

    def problem_with(self, answer: str) -> str | None:
        """Why this cannot be a reference answer, or None if it can."""
        ...

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Try the function on two rows. Raises `UsageError` if it does not work."""
        ...

    def __call__(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """One score for each completion; None where there is none."""
        ...


class AnswerReward:
    """A built-in reward: 1.0 if the completion gives the reference answer, else 0.0.

    Args:
        name: "exact" or "numeric".
        extract: the answer that a text gives, to be compared, or None if it gives none.
    """

    def __init__(self, name: str, extract: Callable[[str], object | None]) -> None:
        self.name = name
        self.digest = f"{name}/1"
        self.needs_answer = True
        self._extract = extract

    def problem_with(self, answer: str) -> str | None:
        """Why this cannot be a reference answer, or None if it can."""
        return "holds no number" if self._extract(answer) is None else None

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Nothing to try."""

    def __call__(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """1.0 or 0.0 for each completion."""
        expected = self._extract(prompt.answer)
        scores: list[Score | None] = []
        for completion in completions:
            found = self._extract(completion)
            value = float(found is not None and found == expected)
            scores.append(Score(value, parts={"answer": value}, extracted=None if found is None else str(found)))
        return scores


_BUILT_IN: dict[str, Callable[[str], object | None]] = {"exact": str.strip, "numeric": last_number}


_BY_MATH_VERIFY = ("math", "boxed")


def load_reward(spec: str, *, timeout_s: float = 10.0) -> RewardFunction:
    """The reward with this name.

    Args:
        spec: "exact": completion and answer are the same text, apart from blanks around them. "numeric": the last
            number in the completion equals the last number in the answer. "math": math-verify finds the answer
            anywhere in the completion. "boxed": math-verify finds it in the last \\boxed{} of the completion.
            "module:function" or "file.py:function": a function in TRL's signature,
            `f(completions, **columns) -> list[float | None]`. All but the first two run in a process of their own.
        timeout_s: longest time to score one completion, where a process of its own does.

    Raises:
        UsageError: no such reward.
        EnvironmentFault: math-verify is not installed.

    >>> reward = load_reward("numeric")
    >>> [score.value for score in reward(Prompt("train/0", "6 x 200 =", "1200"), ["It is 1,200.", "12"])]
    [1.0, 0.0]
    """
    if spec in _BUILT_IN:
        return AnswerReward(spec, _BUILT_IN[spec])
    if spec in _BY_MATH_VERIFY:
        return IsolatedReward(spec, digest=math_digest(spec), timeout_s=timeout_s)
    if ":" in spec:
        return IsolatedReward(spec, timeout_s=timeout_s)
    nearest = difflib.get_close_matches(spec, [*_BUILT_IN, *_BY_MATH_VERIFY], n=1)
    hint = f'did you mean "{nearest[0]}"? ' if nearest else ""
    raise UsageError(
        f'task.reward: "{spec}" is unknown; {hint}allowed: "exact", "numeric", "math", "boxed", "module:function", '
        '"file.py:function"',
        code="E-REWARD-01",
    )


def make_reward(spec: str) -> RewardFunction:
    """A reward other than the two built-in ones, in this process. Raises `UsageError` if it cannot be loaded."""
    return MathReward(spec) if spec in _BY_MATH_VERIFY else OwnReward(load_function(spec))
