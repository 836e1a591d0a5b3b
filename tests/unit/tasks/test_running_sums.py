from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import UsageError
from motet.tasks import Prompt, RunningSums

TASK = RunningSums()


def value_of(text: str, prompt: Prompt) -> float:
    (score,) = TASK.score(prompt, [text])
    assert score is not None
    return score.value


THREE = Prompt("train/0", "3+5+9=", "17")


def test_solution_writes_every_partial_sum_in_two_digits():
    assert TASK.solution(THREE) == "08.17;"
    assert TASK.solution(Prompt("train/0", "9+9+9+9+9+9+9=", "63")) == "18.27.36.45.54.63;"


def test_sums_beyond_99_take_three_digits():
    task = RunningSums(terms=(20,))
    solution = task.solution(Prompt("train/0", "+".join("9" * 20) + "=", "180"))
    assert solution.endswith(".99.108.117.126.135.144.153.162.171.180;")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("08.17;", 1.0),
        ("08.17", 1.0),
        ("17", 1.0),
        ("nonsense 017", 1.0),
        ("99.17;", 1.0),
        ("17.;;", 1.0),
        ("08.18;", 0.0),
        ("08.1;", 0.0),
        ("17.08;", 0.0),
        ("08.17;3;", 0.0),
        ("08.17;3", 1.0),
        ("", 0.0),
        (";", 0.0),
        ("\u0661\u0667", 0.0),
        ("9" * 10_000, 0.0),
        ("000", 0.0),
    ],
)
def test_reward_looks_at_the_last_number_before_the_last_end_token(text, value):
    assert value_of(text, THREE) == value


def test_working_part_needs_every_partial_sum_and_does_not_count():
    right, lucky, wrong = TASK.score(THREE, ["08.17;", "07.17;", "08.18;"])
    assert (right.value, right.parts) == (1.0, {"answer": 1.0, "working": 1.0})
    assert (lucky.value, lucky.parts) == (1.0, {"answer": 1.0, "working": 0.0})
    assert (wrong.value, wrong.parts, wrong.extracted) == (0.0, {"answer": 0.0, "working": 0.0}, "18")


@given(st.sampled_from(["train", "test", "ood"]), st.integers(0, 4095))
def test_prompts_are_well_formed_and_their_solutions_earn_1(split, index):
    prompt = TASK.prompt(f"{split}/{index}")
    digits = [int(digit) for digit in prompt.text.removesuffix("=").split("+")]
    assert all(1 <= digit <= 9 for digit in digits)
    assert prompt.answer == str(sum(digits))
    assert value_of(TASK.solution(prompt), prompt) == 1.0
    assert len(digits) == prompt.columns["terms"] == (7 if split == "ood" else 3 + index % 4)


def test_lengths_are_mixed_evenly_and_digits_uniform():
    texts = [TASK.prompt(f"train/{i}").text for i in range(4000)]
    assert Counter(text.count("+") for text in texts) == {2: 1000, 3: 1000, 4: 1000, 5: 1000}
    digits = Counter(char for text in texts for char in text if char.isdigit())
    assert min(digits.values()) > 0.94 * digits.total() / 9
    assert max(digits.values()) < 1.06 * digits.total() / 9


def test_no_training_prompt_is_held_out_even_where_there_are_few_sums():
    task = RunningSums(terms=(2, 3), ood_terms=(4,))
    train = {task.prompt(f"train/{i}").text for i in range(6000)}
    test = {task.prompt(f"test/{i}").text for i in range(4096)}
    assert not train & test
    sums_of_two = [text for text in train | test if text.count("+") == 1]
    assert len(sums_of_two) == 81
    assert 5 <= sum(text.count("+") == 1 for text in test) <= 30


def test_a_prompt_is_computed_from_its_id_without_the_others():
    start = time.process_time()
    for index in range(99_000, 100_000):
        RunningSums().prompt(f"train/{index}")
    assert time.process_time() - start < 1.0


def test_prompts_never_change():
    ids = ("train/0", "train/1", "train/99999", "test/0", "ood/0")
    texts = ["9+6+8=", "2+7+6+2=", "9+4+9+9+9+5=", "3+6+4=", "7+7+1+4+5+8+1="]
    assert [TASK.prompt(prompt_id).text for prompt_id in ids] == texts


def test_split_sizes():
    assert [TASK.num_prompts(split) for split in ("train", "test", "ood")] == [100_000, 4096, 4096]
    assert RunningSums(ood_terms=()).num_prompts("ood") == 0
    with pytest.raises(KeyError):
        RunningSums(ood_terms=()).prompt("ood/0")


def test_fingerprint_tells_settings_apart():
    tasks = [RunningSums(), RunningSums((3, 4)), RunningSums((4, 3)), RunningSums(ood_terms=(8,))]
    assert len({task.fingerprint for task in tasks}) == 4
    assert RunningSums().fingerprint == RunningSums([3, 4, 5, 6], [7]).fingerprint


@pytest.mark.parametrize(
    ("terms", "ood_terms", "words"),
    [
        ((), (7,), "task.terms: is empty"),
        ((1,), (7,), "task.terms: 1 is outside 2..20"),
        ((3,), (21,), "task.ood_terms: 21 is outside 2..20"),
        ((3, 4), (5, 4), "task.ood_terms: 4 is also in task.terms"),
    ],
)
def test_impossible_lengths_are_the_users_mistake(terms, ood_terms, words):
    with pytest.raises(UsageError, match=words) as caught:
        RunningSums(terms, ood_terms)
    assert caught.value.code == "E-TASK-06"
