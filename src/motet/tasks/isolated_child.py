"""What runs in the process that scores: makes a task or a reward, and answers calls until its parent is gone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from motet.errors import MotetError
from motet.tasks.faults import Fault, Faults, call_own_code, faults_of
from motet.tasks.isolated import make_task
from motet.tasks.isolated_wire import encode, prompt_from_json, prompt_to_json, scores_to_json
from motet.tasks.rewards import RewardFunction, make_reward
from motet.tasks.task import SPLITS, Prompt, Score, Task

_GRACE_S = 2.0


class RewardCalls:
    """What can be asked of a reward."""

    def __init__(self, reward: RewardFunction) -> None:
        self._reward = reward

    def describe(self) -> list[object]:
        """Name and digest."""
        return [self._reward.name, self._reward.digest]

    def check(self, prompts: Sequence[Any]) -> None:
        """See `RewardFunction.check`."""
        self._reward.check([prompt_from_json(prompt) for prompt in prompts])

    def score(self, prompt: Any, completions: Sequence[str]) -> dict[str, object]:
        """Scores, and the faults on the way."""
        return _scored(lambda texts: self._reward(prompt_from_json(prompt), texts), completions, self._reward)


class TaskCalls:
    """What can be asked of a task."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def describe(self) -> list[object]:
        """Name, fingerprint and the number of prompts of each split."""
        return [self._task.name, self._task.fingerprint, {split: self._task.num_prompts(split) for split in SPLITS}]

    def prompt(self, prompt_id: str) -> object:
        """See `Task.prompt`."""
        return prompt_to_json(self._task.prompt(prompt_id))

    def score(self, prompt_id: str, completions: Sequence[str]) -> dict[str, object]:
        """Scores, and the faults on the way."""
        return _scored(lambda texts: self._task.score(self._prompt(prompt_id), texts), completions, self._task)

    def _prompt(self, prompt_id: str) -> Prompt:
        return self._task.prompt(prompt_id)


def main(handle: int) -> None:
    """Answer calls on this connection."""
    connection = Connection(handle)
    try:
        target = json.loads(connection.recv_bytes())
        if not target["silent"]:
            os.dup2(2, 1)
        calls = _answer(connection, lambda: _make(target))
        while calls is not None:
            method, limit_s, *arguments = json.loads(connection.recv_bytes())
            with _Alarm(limit_s + _GRACE_S):
                _answer(connection, partial(getattr(calls, method), *arguments))
    except (EOFError, OSError):
        return  # the parent is gone


class _Alarm:
    """Ends this process if the parent, which should have done so, is gone."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def __exit__(self, *_error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _make(target: dict[str, Any]) -> RewardCalls | TaskCalls:
    if target["kind"] == "reward":
        return RewardCalls(make_reward(target["name"]))
    return TaskCalls(make_task(target["name"], target["arguments"]))


def _answer(connection: Connection, call: Callable[[], Any]) -> Any:
    outcome = call_own_code(lambda: _result_or_error(call))
    if isinstance(outcome, Fault):
        reply: dict[str, object] = {"fault": outcome.line}
    elif isinstance(outcome, MotetError):
        reply = {"error": [type(outcome).__name__, str(outcome), outcome.code]}
    else:
        reply = {"result": None if isinstance(outcome, RewardCalls | TaskCalls) else outcome}
    connection.send_bytes(encode(reply))
    return outcome if "result" in reply else None


def _result_or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except MotetError as error:
        return error


def _scored(
    score: Callable[[Sequence[str]], Sequence[Score | None]], completions: Sequence[str], scorer: object
) -> dict[str, object]:
    before = faults_of(scorer)
    raised, first = before.raised, before.first
    found, own = _each(score, completions)
    after = faults_of(scorer)
    own.add(Faults(raised=after.raised - raised, first=None if first else after.first))
    return {"scores": found, "raised": own.raised, "first": own.first}


def _each(score: Callable[[Sequence[str]], Sequence[Score | None]], completions: Sequence[str]) -> tuple[Any, Faults]:
    outcome = call_own_code(lambda: _checked(score(completions), completions))
    if not isinstance(outcome, Fault):
        return outcome, Faults()
    if len(completions) == 1:
        return [None], Faults(raised=1, first=outcome.line)
    scores, faults = [], Faults()
    for completion in completions:
        (one,), more = _each(score, [completion])
        scores.append(one)
        faults.add(more)
    return scores, faults


def _checked(scores: Sequence[Score | None], completions: Sequence[str]) -> list[Any]:
    if len(scores) != len(completions):
        raise ValueError(f"score returned {len(scores)} scores for {len(completions)} completions")
    return scores_to_json(scores)
