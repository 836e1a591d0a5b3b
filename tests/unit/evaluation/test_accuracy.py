"""Pass@1 on held-out prompts, its standard error, and what is kept for reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.evaluation import Accuracy, evaluate
from motet.generation import Completion, HFGenerator
from motet.tasks import Score
from motet.tasks.running_sums import RunningSums


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_mean_and_standard_error(rewards):
    accuracy = Accuracy.of(rewards)
    assert accuracy.num_prompts == len(rewards)
    assert accuracy.value == pytest.approx(float(np.mean(rewards)), abs=1e-9)
    assert accuracy.se == pytest.approx(float(np.std(rewards, ddof=1)) / math.sqrt(len(rewards)), abs=1e-9)


def test_one_prompt_has_no_error():
    assert Accuracy.of([0.5]) == Accuracy(0.5, 0.0, 1)


def test_no_prompt():
    with pytest.raises(ValueError, match="at least one"):
        Accuracy.of([])


class Oracle:
    """A generator that answers every other prompt right, and cuts every fourth."""

    def __init__(self, tokenizer, task):
        self._tokenizer = tokenizer
        self._answer = {task.prompt(f"test/{i}").text: task.solution(task.prompt(f"test/{i}")) for i in range(50)}
        self.asked: list[dict[str, object]] = []

    def generate(self, prompts: Sequence[Sequence[int]], **options: object) -> list[list[Completion]]:
        self.asked.append(options | {"num_prompts": len(prompts)})
        groups = []
        for number, ids in enumerate(prompts):
            text = self._answer[self._tokenizer.decode_completion(ids)] if number % 2 == 0 else "00;"
            tokens = np.array(self._tokenizer.encode_prompt(text), dtype=np.uint32)
            reason = "length" if number % 4 == 3 else "stop"
            groups.append([Completion(tokens, np.zeros(len(tokens), np.float32), reason)])
        return groups


@pytest.fixture
def tokenizer(tiny_policy):
    return tiny_policy().tokenizer


def ask(generator, tokenizer, task, split="test", **options):
    settings = {"num_prompts": 20, "max_new_tokens": 12, "temperature": 1.0, "seed": 4}
    return evaluate(generator, tokenizer, task, split, **(settings | options))


def test_right_answers_are_counted(tokenizer):
    task = RunningSums()
    generator = Oracle(tokenizer, task)
    result = ask(generator, tokenizer, task)
    assert result.accuracy == Accuracy.of([1.0, 0.0] * 10)
    assert result.cut_share == 0.25
    assert generator.asked == [
        {"num_prompts": 20, "num_completions": 1, "max_new_tokens": 12, "temperature": 1.0, "seed": 4}
    ]
    first, second, *_ = result.samples
    assert len(result.samples) == 12
    assert (first.prompt_id, first.prompt, first.reward) == ("test/0", task.prompt("test/0").text, 1.0)
    assert first.completion.removesuffix(";") == task.solution(task.prompt("test/0")).removesuffix(";")
    assert (second.prompt_id, second.reward) == ("test/1", 0.0)


def test_a_split_that_the_task_lacks(tokenizer):
    task = RunningSums(ood_terms=())
    assert ask(Oracle(tokenizer, task), tokenizer, task, "ood") is None


def test_no_more_prompts_than_there_are(tokenizer):
    class Short(RunningSums):
        def num_prompts(self, split):
            return min(3, super().num_prompts(split))

    assert ask(Oracle(tokenizer, RunningSums()), tokenizer, Short()).accuracy.num_prompts == 3


def test_an_answer_that_cannot_be_scored_counts_as_wrong(tokenizer):
    class Silent(RunningSums):
        def score(self, prompt, completions):
            return [None if prompt.id == "test/0" else Score(1.0) for _ in completions]

    result = ask(Oracle(tokenizer, Silent()), tokenizer, Silent(), num_prompts=4)
    assert result.accuracy.value == 0.75
    assert result.samples[0].reward is None


def test_the_seed_decides(tiny_policy):
    policy = tiny_policy()
    generator, task = HFGenerator(policy), RunningSums()
    first, again, other = (ask(generator, policy.tokenizer, task, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.samples != other.samples
    assert ask(generator, policy.tokenizer, task, temperature=0.0, seed=1) == ask(
        generator, policy.tokenizer, task, temperature=0.0, seed=2
    )
