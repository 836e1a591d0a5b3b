from __future__ import annotations

import os
import time
from typing import Any

import pytest

from motet.bench.process import Children, call, take_turns
from motet.errors import RunFailed, UsageError

HERE = "test_process"


class Counting:
    """An arm that counts its steps."""

    def __init__(self, name: str) -> None:
        self.settings = {"name": name}
        self._steps = 0

    def step(self) -> dict[str, float]:
        self._steps += 1
        return {"part_s": float(self._steps)}

    def figures(self) -> dict[str, Any]:
        return {"steps": self._steps, "pid": os.getpid()}


def answers(number: int) -> dict[str, Any]:
    return {"twice": 2 * number}


def complains(text: str) -> dict[str, Any]:
    raise UsageError(text, code="E-MODEL-01")


def breaks(text: str) -> dict[str, Any]:
    raise ZeroDivisionError(text)


def dies(code: int) -> dict[str, Any]:
    os.kill(os.getpid(), code)
    return {}


def sleeps(seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return {}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children import this file by its name."""
    monkeypatch.syspath_prepend(os.path.dirname(__file__))


def silent(text: str) -> None:
    """Nobody listens."""


def test_a_function_is_called_in_a_process_of_its_own_and_progress_is_told() -> None:
    heard: list[str] = []
    assert call(f"{HERE}:answers", 21, say=heard.append, text="doubling") == {"twice": 42}
    assert set(heard) == {"doubling"}


def test_own_faults_of_a_child_are_raised_as_they_were() -> None:
    with pytest.raises(UsageError, match="no such model") as caught:
        call(f"{HERE}:complains", "no such model", say=silent, text="x")
    assert caught.value.code == "E-MODEL-01"


@pytest.mark.parametrize(
    ("target", "argument", "says"),
    [("breaks", "boom", "ZeroDivisionError: boom"), ("dies", 9, "killed by SIGKILL, perhaps for want of memory")],
)
def test_a_child_that_breaks_down_leaves_one_line(target: str, argument: object, says: str) -> None:
    with pytest.raises(RunFailed, match=says) as caught:
        call(f"{HERE}:{target}", argument, say=silent, text="the arm")
    assert caught.value.code == "E-BENCH-03"


def test_an_interruption_ends_the_children() -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with Children() as children:
        child = children.start("x", f"{HERE}:sleeps", 600.0)
        process = child._process
        with pytest.raises(KeyboardInterrupt):
            child.answer(say=interrupt, text="x")
    assert process.exitcode == -9


def test_arms_take_turns_and_the_warm_up_does_not_count() -> None:
    heard: list[str] = []
    arms: dict[str, tuple[str, object]] = {name: (f"{HERE}:Counting", name) for name in ("one", "two")}
    turns = take_turns(arms, repeats=2, say=heard.append)
    steps = [text for text in dict.fromkeys(heard) if "step" in text or "warm" in text]
    assert steps == ["one: warm-up", "two: warm-up"] + [f"{a}: step {n} of 2" for n in (1, 2) for a in ("one", "two")]
    for name, found in turns.items():
        assert found.first["settings"] == {"name": name}
        assert found.parts == {"part_s": [2.0, 3.0]}
        assert len(found.seconds) == 2
        assert found.last["did"]["steps"] == 3
        assert found.last["peak"] >= found.first["memory_before"] * 0.5 > 0
    assert turns["one"].last["did"]["pid"] != turns["two"].last["did"]["pid"]
