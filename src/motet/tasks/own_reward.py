"""Reward functions that users bring, in TRL's signature: loaded, tried on two rows, and called without risk.

TRL calls `f(prompts=, completions=, completion_ids=, <column>=, trainer_state=, log_extra=, log_metric=)`, every column
as a list, and expects one number or None for each completion. Here a reward is a function of the text alone, since
other nodes compute it again: `completion_ids` and `trainer_state` are None, the two loggers do nothing. Where the
prompt is a chat, prompts and completions are lists of messages, as TRL passes them.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from motet.errors import UsageError
from motet.tasks.faults import Fault, Faults, call_own_code
from motet.tasks.own_code import load_own, source_digest
from motet.tasks.task import Prompt, Score

_RESERVED = frozenset({"prompt", "completion", "completion_ids"})
_NOT_GIVEN = ("completion_ids", "trainer_state")


class OwnReward:
    """A reward function of the user's.

    Args:
        function: in TRL's signature, plain or `async`.

    Attributes:
        faults: completions that have no reward because the function raised, and what it raised first.

    Raises:
        UsageError: the function cannot be called with keywords.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.needs_answer = False
        self.faults = Faults()
        self._function = function
        self._parameters = _parameters(function, self.name)

    @property
    def digest(self) -> str:
        """Digest of the source file, so that nodes with different rewards notice before they train together."""
        return source_digest(self._function, self.name)

    def problem_with(self, answer: str) -> str | None:  # noqa: ARG002 - any answer will do
        """None: what an answer must look like is up to the function."""
        return None

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Call the function on two rows, with the reference answers as completions.

        Raises:
            UsageError: it asks for a column that is not there, raises, or returns something else than two numbers.
        """
        rows = [prompts[0], prompts[min(1, len(prompts) - 1)]]
        completions = [row.answer for row in rows]
        offered = _arguments(rows, completions)
        for name, parameter in self._parameters.items():
            if parameter.default is parameter.empty and not _is_variadic(parameter) and name not in offered:
                columns = ", ".join(sorted(rows[0].columns))
                raise UsageError(
                    f"task.reward: {self.name} asks for '{name}', which is no column of the task; columns: {columns}",
                    code="E-REWARD-02",
                )
        outcome = call_own_code(lambda: self._rewards(rows, completions))
        if isinstance(outcome, Fault):
            named = [name for name in _NOT_GIVEN if name in self._parameters]
            hint = f" ({' and '.join(named)}: None here, a reward depends on the text only)" if named else ""
            raise UsageError(
                f"task.reward: {self.name} failed when tried on two rows: {outcome.line}{hint}", code="E-REWARD-02"
            )

    def __call__(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """Scores; where the function raises on the batch, it is asked for each completion alone."""
        if not completions:
            return []
        outcome = call_own_code(lambda: self._rewards([prompt] * len(completions), completions))
        if not isinstance(outcome, Fault):
            return [None if value is None else Score(value, parts={self.name: value}) for value in outcome]
        if len(completions) > 1:
            return [self(prompt, [completion])[0] for completion in completions]
        self.faults.add(Faults(raised=1, first=outcome.line))
        return [None]

    def _rewards(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[float | None]:
        arguments = _arguments(prompts, completions)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._parameters.values()):
            arguments = {name: value for name, value in arguments.items() if name in self._parameters}
        result = self._function(**arguments)
        if inspect.isawaitable(result):
            result = asyncio.run(_finish(result))
        if isinstance(result, str | bytes | Mapping) or not hasattr(result, "__len__"):
            raise TypeError(f"returned {type(result).__name__}, not a list of numbers")
        if len(result) != len(completions):
            raise ValueError(f"returned {len(result)} rewards for {len(completions)} completions")
        return [_number_or_none(value) for value in result]


def load_function(spec: str) -> Callable[..., Any]:
    """The function that "module:function" or "file.py:function" names. Raises `UsageError` if there is none."""
    return load_own(spec, setting="task.reward", code="E-REWARD-01")


def _parameters(function: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    signature = call_own_code(lambda: inspect.signature(function))
    if isinstance(signature, Fault):
        raise UsageError(f"task.reward: {name}: its signature cannot be read: {signature.line}", code="E-REWARD-02")
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(
                f"task.reward: {name}: '{parameter.name}' is positional-only, but rewards are called with keywords",
                code="E-REWARD-02",
            )
    return signature.parameters


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)


def _arguments(prompts: Sequence[Prompt], completions: Sequence[str]) -> dict[str, Any]:
    names = {name for prompt in prompts for name in prompt.columns} - _RESERVED
    arguments: dict[str, Any] = {"answer": [prompt.answer for prompt in prompts]}
    arguments.update({name: [prompt.columns.get(name) for prompt in prompts] for name in sorted(names)})
    arguments.update(dict.fromkeys(_NOT_GIVEN))
    arguments.update(log_extra=_ignore, log_metric=_ignore)
    arguments.update(prompts=[_as_given(prompt) for prompt in prompts])
    arguments.update(
        completions=[
            [{"role": "assistant", "content": text}] if prompt.messages else text
            for prompt, text in zip(prompts, completions, strict=True)
        ]
    )
    return arguments


def _as_given(prompt: Prompt) -> str | list[dict[str, str]]:
    return [message._asdict() for message in prompt.messages] if prompt.messages else prompt.text


def _ignore(*_args: object, **_kwargs: object) -> None:
    pass


async def _finish(result: Awaitable[Any]) -> Any:
    return await result


def _number_or_none(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str | bytes):
        raise TypeError(f"returned {type(value).__name__} as a reward, not a number")
    number = float(value)
    return number if math.isfinite(number) else None
