"""Pass@1 on held-out prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from motet.generation import Generator
from motet.models import Tokenizer
from motet.tasks import Split, Task

_KEPT_SAMPLES = 12


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A mean reward over prompts.

    Attributes:
        value: mean over the prompts.
        se: its standard error over the prompts (0 if there is one prompt only).
        num_prompts: how many there were.
    """

    value: float
    se: float
    num_prompts: int

    @classmethod
    def of(cls, rewards: Sequence[float]) -> Accuracy:
        """Mean and standard error of one reward for each prompt.

        >>> Accuracy.of([1.0, 0.0, 1.0, 1.0])
        Accuracy(value=0.75, se=0.25, num_prompts=4)

        Raises:
            ValueError: without any reward.
        """
        if not rewards:
            raise ValueError("an accuracy needs at least one prompt")
        n = len(rewards)
        mean = sum(rewards) / n
        variance = sum((r - mean) ** 2 for r in rewards) / (n - 1) if n > 1 else 0.0
        return cls(mean, math.sqrt(variance / n), n)


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of an evaluation, for reading."""

    prompt_id: str
    prompt: str
    completion: str
    reward: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An accuracy, with the first few completions behind it.

    Attributes:
        accuracy: over all prompts; a completion that could not be scored counts 0.
        cut_share: share of completions that reached the length limit.
        samples: the first completions.
    """

    accuracy: Accuracy
    cut_share: float
    samples: Sequence[Sample]


def evaluate(
    generator: Generator,
    tokenizer: Tokenizer,
    task: Task,
    split: Split,
    *,
    num_prompts: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> Evaluation | None:
    """Answer the first prompts of a split once each, and score the answers.

    Args:
        generator: samples the completions.
        tokenizer: of the generator's model.
        task: prompts and rewards.
        split: which prompts.
        num_prompts: how many at most; the same ones every time, so that evaluations compare.
        max_new_tokens: longest completion.
        temperature: 1 for sampled pass@1 of the policy as trained; 0 for greedy pass@1.
        seed: of the sampling.

    Returns:
        None if the task has no such split.
    """
    count = min(num_prompts, task.num_prompts(split))
    if count == 0:
        return None
    prompts = [task.prompt(f"{split}/{index}") for index in range(count)]
    answers = generator.generate(
        [tokenizer.encode_prompt(prompt.text) for prompt in prompts],
        num_completions=1,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
    )
    samples: list[Sample] = []
    rewards: list[float] = []
    for prompt, (answer,) in zip(prompts, answers, strict=True):
        text = tokenizer.decode_completion(answer.token_ids.tolist())
        (score,) = task.score(prompt, [text])
        rewards.append(score.value if score is not None else 0.0)
        if len(samples) < _KEPT_SAMPLES:
            samples.append(Sample(prompt.id, prompt.text, text, score.value if score is not None else None))
    cut = sum(answer.finish_reason == "length" for (answer,) in answers)
    return Evaluation(Accuracy.of(rewards), cut / count, samples)
