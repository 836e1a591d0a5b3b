"""Answers to held-out prompts: pass@1, pass@k, and why the others failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from motet.evaluation.estimators import Accuracy, pass_at_k
from motet.generation import Completion, Generator
from motet.models import Tokenizer
from motet.tasks import Prompt, Score, Split, Task

Outcome = Literal["solved", "wrong", "format", "truncated", "unscored"]
OUTCOMES: tuple[Outcome, ...] = ("solved", "wrong", "format", "truncated", "unscored")
"""What can become of a completion. Each has exactly one, see `outcome_of`."""

SOLVED_FROM = 1.0
"""A completion with at least this reward has solved its prompt."""

_KEPT_SAMPLES = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of an evaluation, for reading.

    Attributes:
        prompt_id: of its prompt.
        prompt: text of the prompt.
        completion: text of the completion.
        reward: what it earned; None if it could not be scored.
        expected: the reference answer.
        extracted: the answer that the task found in it, if any.
        outcome: what became of it.
        is_cut: True if it reached the length limit.
        num_tokens: its length.
    """

    prompt_id: str
    prompt: str
    completion: str
    reward: float | None
    expected: str
    extracted: str | None
    outcome: Outcome
    is_cut: bool
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How many prompts are solved, and the completions behind it.

    Attributes:
        accuracy: pass@1: share of completions whose reward is 1 or more, averaged over the prompts; a completion that
            could not be scored counts as not solved.
        reward: mean reward, with 0 for what could not be scored; equal to the accuracy where rewards are 0 and 1.
        outcomes: share of completions with each outcome; together 1.
        cut_share: share of completions that reached the length limit, solved or not.
        num_completions: completions of each prompt.
        num_solved: of each prompt, how many completions solve it.
        samples: the first completions.
    """

    accuracy: Accuracy
    reward: Accuracy
    outcomes: Mapping[Outcome, float]
    cut_share: float
    num_completions: int
    num_solved: Sequence[int]
    samples: Sequence[Sample]

    @property
    def solved_shares(self) -> list[float]:
        """Of each prompt, the share of its completions that solve it."""
        return [number / self.num_completions for number in self.num_solved]

    def pass_at(self, k: int) -> Accuracy:
        """Share of prompts that are solved by at least one of k completions: the mean of `pass_at_k`.

        Raises:
            ValueError: k is larger than the number of completions.
        """
        return Accuracy.of([pass_at_k(self.num_completions, number, k) for number in self.num_solved])

    def metrics(self) -> dict[str, int | float]:
        """What the journal keeps, by the last part of the metric's name; "" is the accuracy itself."""
        return {
            "": self.accuracy.value,
            "/se": self.accuracy.se,
            "/num_prompts": self.accuracy.num_prompts,
            "/cut_share": self.cut_share,
            "/format_failures": self.outcomes["format"],
            "/reward_mean": self.reward.value,
        }


def outcome_of(score: Score | None, *, is_cut: bool) -> Outcome:
    """What became of a completion.

    Solved comes first, cut or not. Of the rest, one that was cut failed for that, else one without the format that
    the task asks for (part "format" of the score is 0) for that; what is left is a wrong answer.

    >>> outcome_of(Score(0.0, parts={"format": 0.0, "answer": 1.0}), is_cut=False)
    'format'
    """
    if score is None:
        return "unscored"
    if score.value >= SOLVED_FROM:
        return "solved"
    if is_cut:
        return "truncated"
    return "format" if score.parts.get("format") == 0.0 else "wrong"


def evaluate(  # noqa: PLR0913 - which prompts, how they are answered, and what comes back
    generator: Generator,
    tokenizer: Tokenizer,
    task: Task,
    split: Split,
    *,
    num_prompts: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    num_completions: int = 1,
    num_kept: int | None = _KEPT_SAMPLES,
    first: int = 0,
) -> Evaluation | None:
    """Answer prompts of a split, the first ones unless it is said otherwise, and score the answers.

    Args:
        generator: samples the completions.
        tokenizer: of the generator's model.
        task: prompts and rewards.
        split: which prompts.
        num_prompts: how many at most; the same ones every time, so that evaluations compare.
        max_new_tokens: longest completion.
        temperature: 1 for sampled pass@1 of the policy as trained; 0 for greedy pass@1.
        seed: of the sampling.
        num_completions: completions of each prompt.
        num_kept: how many completions come back for reading; None for all.
        first: index of the first prompt.

    Returns:
        None if the task has no such split, or none of these prompts.
    """
    until = min(first + num_prompts, task.num_prompts(split))
    if until <= first:
        return None
    prompts = [task.prompt(f"{split}/{index}") for index in range(first, until)]
    answers = generator.generate(
        [tokenizer.encode_prompt(prompt.text, prompt.messages) for prompt in prompts],
        num_completions=num_completions,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
    )
    groups = [_read(task, tokenizer, prompt, completions) for prompt, completions in zip(prompts, answers, strict=True)]
    samples = [sample for group in groups for sample in group]
    counts = Counter(sample.outcome for sample in samples)
    solved = [sum(sample.outcome == "solved" for sample in group) for group in groups]
    return Evaluation(
        accuracy=Accuracy.of([number / num_completions for number in solved]),
        reward=Accuracy.of([sum(sample.reward or 0.0 for sample in group) / num_completions for group in groups]),
        outcomes={outcome: counts[outcome] / len(samples) for outcome in OUTCOMES},
        cut_share=sum(sample.is_cut for sample in samples) / len(samples),
        num_completions=num_completions,
        num_solved=solved,
        samples=samples[:num_kept],
    )


def _read(task: Task, tokenizer: Tokenizer, prompt: Prompt, completions: Sequence[Completion]) -> list[Sample]:
    texts = [tokenizer.decode_completion(completion.token_ids.tolist()) for completion in completions]
    scores = task.score(prompt, texts)
    return [
        _sample(prompt, text, score, completion)
        for text, score, completion in zip(texts, scores, completions, strict=True)
    ]


def _sample(prompt: Prompt, text: str, score: Score | None, completion: Completion) -> Sample:
    is_cut = completion.finish_reason == "length"
    return Sample(
        prompt_id=prompt.id,
        prompt=prompt.text,
        completion=text,
        reward=None if score is None else score.value,
        expected=prompt.answer,
        extracted=None if score is None else score.extracted,
        outcome=outcome_of(score, is_cut=is_cut),
        is_cut=is_cut,
        num_tokens=len(completion.token_ids),
    )
