"""Answers checked by math-verify: "math", anywhere in a text, and "boxed", in its last \\boxed{}.

math-verify stops itself by signals, which works in a main thread alone; here its limits are off, and the process that
these rewards run in is what is stopped. The only file that imports math-verify.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from motet.errors import EnvironmentFault
from motet.tasks.task import Prompt, Score

_BOX: Final = "\\boxed{"
_MAX_BOXED: Final = 2_000
_MAX_TEXT: Final = 20_000
_MAX_EXTRACTED: Final = 200
_MINUS: Final = str.maketrans({"\u2212": "-", "\ufe63": "-", "\uff0d": "-"})


def math_digest(name: str) -> str:
    """What decides the verdicts of this reward: versions.

    Raises:
        EnvironmentFault: math-verify is not installed.
    """
    try:
        packages = [f"{package} {version(package)}" for package in ("math-verify", "latex2sympy2_extended", "sympy")]
    except PackageNotFoundError as error:
        raise EnvironmentFault(
            f"task.reward: {name} needs math-verify, which is not installed: pip install 'motet[tasks]'",
            code="E-REWARD-04",
        ) from error
    return ", ".join([f"{name}/1", *packages])


class MathReward:
    """1.0 if math-verify finds a completion's answer equal to the reference, else 0.0; implements `RewardFunction`.

    Under "boxed" the completion also has to have a \\boxed{...} that is balanced and not empty; of several the last
    counts. The parts "format" and "answer" are then 1.0 or 0.0, and the value is their product.

    Args:
        name: "math" or "boxed".

    Raises:
        EnvironmentFault: math-verify is not installed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.digest = math_digest(name)
        self.needs_answer = True
        self._is_equal("1", _BOX + "1}")  # the first one takes long

    def problem_with(self, answer: str) -> str | None:
        """Why this cannot be a reference answer, or None if it can."""
        return None if answer.strip() else "is empty"

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Nothing to try."""

    def __call__(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """1.0 or 0.0 for each completion."""
        score = self._boxed if self.name == "boxed" else self._anywhere
        answer = reference_answer(prompt.answer)
        return [score(answer, completion) for completion in completions]

    def _boxed(self, answer: str, completion: str) -> Score:
        content = last_boxed(completion)
        if content is None:
            return Score(0.0, parts={"format": 0.0, "answer": 0.0})
        is_readable = len(content) <= _MAX_BOXED
        value = float(is_readable and self._is_equal(answer, f"{_BOX}{content}}}"))
        return Score(value, parts={"format": 1.0, "answer": value}, extracted=_short(content))

    def _anywhere(self, answer: str, completion: str) -> Score:
        found = self._parse(completion[-_MAX_TEXT:])
        value = float(self._verify(self._parse(f"{_BOX}{answer}}}"), found))
        extracted = found[-1] if found and isinstance(found[-1], str) else None
        return Score(value, parts={"answer": value}, extracted=None if extracted is None else _short(extracted))

    def _is_equal(self, answer: str, text: str) -> bool:
        return self._verify(self._parse(f"{_BOX}{answer}}}"), self._parse(text))

    def _parse(self, text: str) -> list[Any]:
        from math_verify import parse

        logging.getLogger("math_verify").setLevel(logging.ERROR)
        return list(parse(text.translate(_MINUS), parsing_timeout=None))

    def _verify(self, expected: list[Any], found: list[Any]) -> bool:
        from math_verify import verify

        return bool(expected and found and verify(expected, found, timeout_seconds=None))


def reference_answer(text: str) -> str:
    r"""The answer in a reference: what is in its last box, else what follows its last ####, else all of it.

    >>> reference_answer("5 * 250 = 1250\n#### 1,250"), reference_answer(r"So $\boxed{3}$."), reference_answer("7")
    ('1,250', '3', '7')
    """
    return last_boxed(text) or text.rpartition("####")[2].strip() or text


def last_boxed(text: str) -> str | None:
    r"""Content of the last \boxed{...} that is balanced and not blank, or None.

    >>> last_boxed(r"so \boxed{\frac{1}{2}}, not \boxed{")
    '\\frac{1}{2}'
    >>> last_boxed(r"\boxed{ }") is None
    True
    """
    found: tuple[int, str] | None = None
    opened: list[int] = []
    i = 0
    while i < len(text):
        if text[i] == "\\":
            i += 1  # an escaped brace is no brace
        elif text[i] == "{":
            opened.append(i + 1)
        elif text[i] == "}" and opened:
            start = opened.pop()
            is_box = text.endswith(_BOX, 0, start) and not text[start:i].isspace() and start < i
            if is_box and (found is None or start > found[0]):
                found = start, text[start:i].strip()
        i += 1
    return None if found is None else found[1]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_EXTRACTED else text[: _MAX_EXTRACTED - 3] + "..."
