from __future__ import annotations

import pytest

from motet.errors import UsageError
from motet.tasks import Faults, JsonLinesTask, Prompt, faults_of, load_reward

CODE = """
def act(completions, answer):
    rewards = []
    for text, right in zip(completions, answer):
        while text == "hang":
            pass
        if text == "raise":
            raise ValueError("no such thing")
        if text == "die":
            import os
            os._exit(3)
        rewards.append(float("nan") if text == "nan" else float(text == right))
    return rewards
"""
SLOW_TO_LOAD = "import os\nos._exit(4)\n"
HANGS_ON_ANSWERS = "def act(completions):\n    while True:\n        pass\n"
PROMPT = Prompt("train/0", "q", "7")


@pytest.fixture
def reward(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acts.py").write_text(CODE)
    reward = load_reward("acts.py:act", timeout_s=0.5)
    yield reward
    reward.close()


def values(scores):
    return [None if score is None else score.value for score in scores]


def test_one_hang_one_crash_and_one_error_cost_three_completions(reward):
    found = reward(PROMPT, ["7", "hang", "8", "raise", "die", "7", "nan", "\ud800"])
    assert values(found) == [1.0, None, 0.0, None, None, 1.0, None, 0.0]
    assert (reward.faults.raised, reward.faults.timed_out) == (2, 1)
    assert reward.faults.first == "scoring stopped after 0.5 s"


def test_an_error_is_counted_with_its_line(reward):
    assert values(reward(PROMPT, ["7", "raise", "raise"])) == [1.0, None, None]
    assert reward.faults == Faults(raised=2, first="ValueError: no such thing (acts.py:8)")


def test_no_completions_need_no_process(reward):
    reward.close()
    assert reward(PROMPT, []) == []


def test_a_file_whose_reward_misbehaves_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ends.py").write_text(SLOW_TO_LOAD)
    with pytest.raises(
        UsageError, match=r"task\.reward: cannot be loaded: the scoring process ended \(exit code 4\)"
    ) as e:
        load_reward("ends.py:act")
    assert e.value.code == "E-REWARD-03"
    (tmp_path / "hangs.py").write_text(HANGS_ON_ANSWERS)
    (tmp_path / "sums.jsonl").write_text('{"prompt": "p", "answer": "1"}\n{"prompt": "q", "answer": "2"}\n')
    with pytest.raises(UsageError, match=r"act failed when tried on two rows: stopped after 0\.4 s") as e:
        JsonLinesTask("sums.jsonl", reward="hangs.py:act", score_timeout_s=0.2)
    assert e.value.code == "E-REWARD-02"


def test_a_tasks_faults_are_those_of_its_reward(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acts.py").write_text(CODE)
    (tmp_path / "sums.jsonl").write_text('{"prompt": "p", "answer": "1"}\n{"prompt": "q", "answer": "2"}\n')
    task = JsonLinesTask("sums.jsonl", reward="acts.py:act")
    assert values(task.score(task.prompt("train/0"), ["1", "raise"])) == [1.0, None]
    assert faults_of(task).raised == 1
