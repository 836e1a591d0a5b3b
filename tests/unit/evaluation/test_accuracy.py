"""Pass@1 and pass@k on held-out prompts, what became of each completion, and what is kept for reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from motet.evaluation import OUTCOMES, Accuracy, evaluate, outcome_of, pass_at_k
from motet.generation import Completion, HFGenerator
from motet.tasks import Message, Score
from motet.tasks.running_sums import RunningSums


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
    assert (first.expected, first.extracted) == (task.prompt("test/0").answer, task.prompt("test/0").answer)
    assert (first.outcome, first.is_cut, second.outcome) == ("solved", False, "wrong")
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
    assert result.samples[0].outcome == "unscored"
    assert result.outcomes == {"solved": 0.75, "wrong": 0, "format": 0, "truncated": 0, "unscored": 0.25}


def test_the_seed_decides(tiny_policy):
    policy = tiny_policy()
    generator, task = HFGenerator(policy), RunningSums()
    first, again, other = (ask(generator, policy.tokenizer, task, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.samples != other.samples
    assert ask(generator, policy.tokenizer, task, temperature=0.0, seed=1) == ask(
        generator, policy.tokenizer, task, temperature=0.0, seed=2
    )


def test_rewards_that_are_not_0_or_1_are_told_apart_from_what_is_solved(tokenizer):
    class Partial(RunningSums):
        """Half a point for every wrong answer, two for a right one; no format in one of four."""

        def score(self, prompt, completions):
            number = int(prompt.id.rpartition("/")[2])
            parts = {"format": float(number % 4 != 1)}
            return [Score(2.0 if s.value else 0.5, parts=parts) for s in super().score(prompt, completions)]

    result = ask(Oracle(tokenizer, Partial()), tokenizer, Partial())
    assert result.accuracy == Accuracy.of([1.0, 0.0] * 10)
    assert result.reward == Accuracy.of([2.0, 0.5] * 10)
    assert result.outcomes == {"solved": 0.5, "wrong": 0, "format": 0.25, "truncated": 0.25, "unscored": 0}
    assert result.metrics() == {
        "": 0.5,
        "/se": result.accuracy.se,
        "/num_prompts": 20,
        "/cut_share": 0.25,
        "/format_failures": 0.25,
        "/reward_mean": 1.25,
    }


@pytest.mark.parametrize(
    ("score", "is_cut", "outcome"),
    [
        (None, True, "unscored"),
        (Score(1.0), True, "solved"),
        (Score(1.5, parts={"format": 0.0}), False, "solved"),
        (Score(0.999), True, "truncated"),
        (Score(0.0, parts={"format": 0.0}), True, "truncated"),
        (Score(0.0, parts={"format": 0.0, "answer": 1.0}), False, "format"),
        (Score(0.0, parts={"format": 1.0}), False, "wrong"),
        (Score(-1.0), False, "wrong"),
    ],
)
def test_each_completion_has_one_outcome(score, is_cut, outcome):
    assert outcome_of(score, is_cut=is_cut) == outcome
    assert outcome in OUTCOMES


def test_several_completions_of_each_prompt(tiny_policy):
    policy = tiny_policy()
    task = RunningSums()
    options = {"num_completions": 6, "num_prompts": 8, "num_kept": None}
    result = ask(HFGenerator(policy), policy.tokenizer, task, **options)
    assert len(result.samples) == 48
    groups = [result.samples[start : start + 6] for start in range(0, 48, 6)]
    assert [group[0].prompt_id for group in groups] == [f"test/{index}" for index in range(8)]
    solved = [sum(sample.outcome == "solved" for sample in group) for group in groups]
    assert list(result.num_solved) == solved
    assert 0 < sum(solved) < 48
    assert result.accuracy == Accuracy.of([number / 6 for number in solved])
    assert result.pass_at(1).value == pytest.approx(result.accuracy.value)
    assert result.pass_at(3) == Accuracy.of([pass_at_k(6, number, 3) for number in solved])
    assert result.pass_at(6).value == sum(number > 0 for number in solved) / 8
    assert (result.accuracy.interval, result.pass_at(6).interval) == ("normal", "wilson")
    with pytest.raises(ValueError, match="pass@7"):
        result.pass_at(7)


def test_the_chat_of_a_prompt_reaches_the_tokenizer(tokenizer):
    chat = (Message("user", "3+4="),)
    asked = []

    class Chat(RunningSums):
        def prompt(self, prompt_id):
            return replace(super().prompt(prompt_id), messages=chat)

    class Recording:
        def encode_prompt(self, text, messages=()):
            asked.append((text, messages))
            return tokenizer.encode_prompt(text)

        def decode_completion(self, token_ids):
            return tokenizer.decode_completion(token_ids)

    ask(Oracle(tokenizer, RunningSums()), Recording(), Chat(), num_prompts=1)
    assert asked == [(RunningSums().prompt("test/0").text, chat)]


def test_it_may_begin_later(tokenizer):
    task = RunningSums()
    later = ask(Oracle(tokenizer, task), tokenizer, task, first=20)
    assert [sample.prompt_id for sample in later.samples[:2]] == ["test/20", "test/21"]
    assert later.accuracy.num_prompts == 20
    assert later.solved_shares == [1.0, 0.0] * 10
    assert ask(Oracle(tokenizer, task), tokenizer, task, first=4096) is None
