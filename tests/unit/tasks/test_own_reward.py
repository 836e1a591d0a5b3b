from __future__ import annotations

import math

import numpy as np
import pytest

from motet.errors import UsageError
from motet.tasks import Faults, Message, Prompt, load_reward
from motet.tasks.own_reward import OwnReward

PROMPTS = [Prompt(f"train/{i}", f"q{i}", str(i), {"level": i, "question": f"q{i}"}) for i in range(3)]


@pytest.fixture
def rewards_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(code, name="my_rewards.py"):
        (tmp_path / name).write_text(code, encoding="utf-8")

    return write


def score(function, completions, prompt=PROMPTS[0]):
    return [None if found is None else found.value for found in OwnReward(function)(prompt, completions)]


def test_called_as_trl_calls_with_every_column_as_a_list():
    seen = {}

    def reward(prompts, completions, **columns):
        seen.update(prompts=prompts, completions=completions, **columns)
        return [1.0, 0.0]

    assert score(reward, ["a", "b"]) == [1.0, 0.0]
    seen.pop("log_extra")("column", ["x", "y"])
    seen.pop("log_metric")("name", 1.0)
    assert seen == {
        "prompts": ["q0", "q0"],
        "completions": ["a", "b"],
        "answer": ["0", "0"],
        "level": [0, 0],
        "question": ["q0", "q0"],
        "completion_ids": None,
        "trainer_state": None,
    }


def test_a_chat_is_passed_as_lists_of_messages_as_trl_does():
    def reward(prompts, completions):
        return [float(prompts[0][-1]["content"] == "q" and text[0]["content"] == "a") for text in completions]

    chat = Prompt("train/0", "q", "a", messages=(Message("system", "s"), Message("user", "q")))
    assert score(reward, ["a", "b"], chat) == [1.0, 0.0]


def test_only_what_the_signature_names_is_passed():
    def reward(completions, level):
        return [float(len(text) + more) for text, more in zip(completions, level, strict=True)]

    assert score(reward, ["a", "bcd"], PROMPTS[2]) == [3.0, 5.0]


def test_async_functions_and_callable_objects():
    async def by_length(completions, **columns):
        return [float(len(text)) for text in completions]

    class Judge:
        def __call__(self, completions, prompts):
            return [0.5 * len(prompts)] * len(completions)

    assert score(by_length, ["abc"]) == [3.0]
    assert score(Judge(), ["abc"]) == [0.5]
    assert OwnReward(Judge()).name == "Judge"


def test_score_carries_the_functions_name_as_its_part():
    def brevity(completions, **columns):
        return [0.25]

    (found,) = OwnReward(brevity)(PROMPTS[0], ["x"])
    assert found.parts == {"brevity": 0.25}


def test_values_that_are_no_finite_number_exclude_the_sample():
    def reward(completions, **columns):
        return [None, math.nan, math.inf, True, np.float32(0.5), 2]

    assert score(reward, list("abcdef")) == [None, None, None, 1.0, 0.5, 2.0]


def test_a_row_on_which_the_function_raises_is_excluded_alone_and_counted():
    def reward(completions, **columns):
        return [float(text) for text in completions]

    own = OwnReward(reward)
    found = own(PROMPTS[0], ["1", "two", "3", "\x1b[31m four"])
    assert [None if each is None else each.value for each in found] == [1.0, None, 3.0, None]
    assert (own.faults.raised, own.faults.timed_out) == (2, 0)
    assert own.faults.first.startswith("ValueError: could not convert string to float: 'two'")
    assert "test_own_reward.py:" in own.faults.first


def test_whatever_a_reward_does_on_a_text_it_gives_none():
    def exits(completions, **columns):
        raise SystemExit(3)

    def loops(completions, **columns):
        return loops(completions)

    def too_few(completions, **columns):
        return []

    def a_text(completions, **columns):
        return "1" * len(completions)

    def texts(completions, **columns):
        return ["1"] * len(completions)

    for reward in (exits, loops, too_few, a_text, texts):
        assert score(reward, ["a", "b"]) == [None, None]


def test_no_completions_need_no_call():
    def reward(completions, **columns):
        raise AssertionError

    own = OwnReward(reward)
    assert own(PROMPTS[0], []) == []
    assert own.faults == Faults()


def test_check_calls_with_two_rows_and_their_answers():
    calls = []

    def reward(prompts, completions, answer, level):
        calls.append((prompts, completions, answer, level))
        return [1.0, None]

    OwnReward(reward).check(PROMPTS)
    OwnReward(reward).check(PROMPTS[2:])
    assert calls == [(["q0", "q1"], ["0", "1"], ["0", "1"], [0, 1]), (["q2", "q2"], ["2", "2"], ["2", "2"], [2, 2])]


def _one(completions, **columns):
    return [1.0]


def _number(completions, **columns):
    return 1.0


def _a_text(completions, **columns):
    return "11"


def _texts(completions, **columns):
    return ["1", "1"]


def _raises(completions, **columns):
    raise ValueError("no\nsuch thing")


def _solution(completions, solution):
    return [1.0, 1.0]


def _ids(completions, completion_ids):
    return [float(len(ids)) for ids in completion_ids]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_one, "returned 1 rewards for 2 completions"),
        (_number, "returned float, not a list of numbers"),
        (_a_text, "returned str, not a list of numbers"),
        (_texts, "returned str as a reward, not a number"),
        (_raises, r"_raises failed when tried on two rows: ValueError: no such thing \(test_own_reward.py:\d+\)$"),
        (_solution, "asks for 'solution', which is no column of the task; columns: level, question"),
        (_ids, "completion_ids: None here"),
    ],
)
def test_check_says_in_one_line_what_is_wrong(function, words):
    with pytest.raises(UsageError, match=words) as caught:
        OwnReward(function).check(PROMPTS)
    assert caught.value.code == "E-REWARD-02"
    assert "\n" not in str(caught.value)


def test_positional_only_arguments_and_unreadable_signatures_are_refused():
    def reward(completions, /):
        return [1.0]

    with pytest.raises(UsageError, match="'completions' is positional-only"):
        OwnReward(reward)
    with pytest.raises(UsageError, match="signature cannot be read"):
        OwnReward(type)


def test_load_from_a_file_and_from_a_module(rewards_file):
    rewards_file(
        "import math\n\ndef brevity(completions, **columns):\n    return [1.0 / len(c) for c in completions]\n"
    )
    reward = load_reward("my_rewards.py:brevity")
    assert reward.name == "brevity"
    assert reward(PROMPTS[0], ["abcd", ""])[0].value == 0.25
    assert load_reward("statistics:mean").name == "mean"


def test_digest_follows_the_source_not_its_place(rewards_file):
    code = "def f(completions):\n    return [1.0] * len(completions)\n"
    rewards_file(code, "a.py")
    rewards_file(code, "b.py")
    rewards_file(code.replace("1.0", "2.0"), "c.py")
    a, b, c = (load_reward(f"{name}.py:f").digest for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere.py:f", "no file nowhere.py"),
        ("no_such_module_here:f", "no_such_module_here cannot be imported: ModuleNotFoundError"),
        ("my_rewards:accuracy", 'for the file write "my_rewards.py:accuracy"'),
        ("my_rewards.py:accurcy", "has no function 'accurcy'; it has: accuracy"),
        ("my_rewards.py:LIMIT", "has no function 'LIMIT'"),
        ("broken.py:f", r"broken.py cannot be imported: SyntaxError: .*line 1"),
        ("exits.py:f", r"exits.py cannot be imported: SystemExit: 3 \(exits.py:2\)"),
        (":f", "cannot be imported: ValueError"),
    ],
)
def test_what_cannot_be_loaded_is_explained(rewards_file, spec, words):
    rewards_file("LIMIT = 3\n\ndef accuracy(completions):\n    return []\n")
    rewards_file("def f(:\n", "broken.py")
    rewards_file("import sys\nsys.exit(3)\n", "exits.py")
    with pytest.raises(UsageError, match=words) as caught:
        load_reward(spec)
    assert caught.value.code == "E-REWARD-01"
    assert "\n" not in str(caught.value)
