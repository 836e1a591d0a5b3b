"""Rewards and tasks that run in a process of their own, with a time limit for each completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.errors import MotetError, RunFailed, UsageError
from motet.tasks.faults import Faults
from motet.tasks.isolated_process import START_LIMIT_S, FaultError, IsolatedProcess, StoppedError
from motet.tasks.isolated_wire import prompt_from_json, prompt_to_json, scores_from_json
from motet.tasks.prompt_id import parse_prompt_id
from motet.tasks.task import Prompt, Score, Split, Task

GYM_PREFIX = "gym:"
_PROMPT_LIMIT_S = 600.0


class IsolatedReward:
    """A reward in a process of its own; implements `RewardFunction`.

    Args:
        name: "math", "boxed", "module:function" or "file.py:function".
        digest: what decides the scores. Without it the process is asked, and the name is the function's.
        timeout_s: longest time to score one completion.

    Attributes:
        faults: completions without a score, by cause.

    Raises:
        UsageError: the function cannot be loaded.
    """

    def __init__(self, name: str, *, digest: str | None = None, timeout_s: float = 10.0) -> None:
        is_ours = digest is not None
        self.faults = Faults()
        self.needs_answer = is_ours
        self._calls = _Calls({"kind": "reward", "name": name}, timeout_s, self.faults, is_ours=is_ours)
        self.name, self.digest = name, digest or ""
        if not is_ours:
            self.name, self.digest = self._calls.start("task.reward", "E-REWARD-03")

    def problem_with(self, answer: str) -> str | None:
        """Why this cannot be a reference answer, or None if it can."""
        return "is empty" if self.needs_answer and not answer.strip() else None

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Try the reward on two rows.

        Raises:
            UsageError: it does not work, or takes too long.
        """
        if self.needs_answer:
            return  # one of ours; its process starts with the first completion
        rows = [prompts[0], prompts[min(1, len(prompts) - 1)]]
        self._calls.check([prompt_to_json(row) for row in rows], what=f"task.reward: {self.name}")

    def __call__(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """Scores; None for a completion on which the reward raised, or took too long."""
        return self._calls.score(prompt_to_json(prompt), completions)

    def close(self) -> None:
        """End the process."""
        self._calls.close()


class IsolatedTask:
    """A task in a process of its own; implements `Task`.

    Args:
        name: "gym:<name>", "module:Class", "file.py:Class" or the name of an installed task.
        arguments: how it is made; plain values.
        timeout_s: longest time to score one completion.

    Attributes:
        faults: completions without a score, by cause.

    Raises:
        UsageError: the task cannot be made.
    """

    def __init__(self, name: str, arguments: Mapping[str, object], *, timeout_s: float = 10.0) -> None:
        is_gym = name.startswith(GYM_PREFIX)
        self.faults = Faults()
        target = {"kind": "task", "name": name, "arguments": dict(arguments)}
        self._calls = _Calls(target, timeout_s, self.faults, is_ours=is_gym)
        self.name, self.fingerprint, self._sizes = self._calls.start(f"task.name: {name}", "E-TASK-09")
        self._prompts: dict[str, Prompt] = {}

    def num_prompts(self, split: Split) -> int:
        """How many prompts the split has."""
        return int(self._sizes[split])

    def prompt(self, prompt_id: str) -> Prompt:
        """The prompt with this id.

        Raises:
            KeyError: no such id.
            RunFailed: the task cannot make it.
        """
        parse_prompt_id(prompt_id, self.num_prompts)
        if prompt_id not in self._prompts:
            self._prompts[prompt_id] = prompt_from_json(self._calls.prompt(prompt_id, self.name))
        return self._prompts[prompt_id]

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """Scores of the prompt with this id; None for a completion on which the task raised, or took too long."""
        return self._calls.score(prompt.id, completions)

    def close(self) -> None:
        """End the process."""
        self._calls.close()


def make_task(name: str, arguments: Mapping[str, Any]) -> Task:
    """The task itself, in this process. Raises `UsageError` if it cannot be made."""
    if name.startswith(GYM_PREFIX):
        from motet.tasks.gym import GymTask  # its library takes seconds to import

        return GymTask(name.removeprefix(GYM_PREFIX), arguments)
    from motet.tasks.own_task import load_own_task

    return load_own_task(name, arguments)


class _Calls:
    """Calls of one process, with what happens when it hangs or crashes."""

    def __init__(self, target: Mapping[str, object], timeout_s: float, faults: Faults, *, is_ours: bool) -> None:
        self._process = IsolatedProcess(target, silent=is_ours)
        self._timeout_s = timeout_s
        self._faults = faults
        self._is_ours = is_ours
        self.close = self._process.close

    def start(self, what: str, code: str) -> Any:
        try:
            return self._process.call("describe", limit_s=START_LIMIT_S)
        except (StoppedError, FaultError) as error:
            raise UsageError(f"{what}: cannot be loaded: {error}", code=code) from error

    def check(self, prompts: Sequence[object], *, what: str) -> None:
        limit_s = len(prompts) * self._timeout_s
        try:
            self._process.call("check", prompts, limit_s=limit_s)
        except (StoppedError, FaultError) as error:
            raise UsageError(f"{what} failed when tried on two rows: {error}", code="E-REWARD-02") from error

    def prompt(self, prompt_id: str, name: str) -> Any:
        try:
            return self._process.call("prompt", prompt_id, limit_s=_PROMPT_LIMIT_S)
        except (StoppedError, FaultError) as error:
            raise RunFailed(f"{name}: prompt {prompt_id} could not be made: {error}", code="E-TASK-10") from error

    def score(self, prompt: object, completions: Sequence[str]) -> list[Score | None]:
        if not completions:
            return []
        if len(completions) > 1:
            limit_s = self._timeout_s * (1 if self._is_ours else len(completions))  # ours take milliseconds
            try:
                return self._ask(prompt, completions, limit_s)
            except (StoppedError, FaultError, MotetError):
                pass  # one of them is to blame; which?
        return [self._alone(prompt, completion) for completion in completions]

    def _alone(self, prompt: object, completion: str) -> Score | None:
        try:
            return self._ask(prompt, [completion], self._timeout_s)[0]
        except StoppedError as error:
            self._faults.add(Faults(timed_out=1, first=f"scoring {error}"))
        except (FaultError, MotetError) as error:
            self._faults.add(Faults(raised=1, first=str(error)))
        return None

    def _ask(self, prompt: object, completions: Sequence[str], limit_s: float) -> list[Score | None]:
        reply = self._process.call("score", prompt, list(completions), limit_s=limit_s)
        self._faults.add(Faults(raised=reply["raised"], first=reply["first"]))
        return scores_from_json(reply["scores"])
