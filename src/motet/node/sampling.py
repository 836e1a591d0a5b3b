"""A node's own groups: prompts it was given, completions of its model, rewards of its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b

from motet.generation import Completion, Generator
from motet.models import Policy, Tokenizer
from motet.records import Group, Rollout, SamplerInfo
from motet.swarm import Ask
from motet.tasks import Task


class Sampler:
    """Generates and scores a node's share of a round.

    Args:
        name: of the node.
        seed: of the run.
        policy: the node's model, for its label and tokenizer.
        generator: samples from it.
        task: prompts and rewards.
        max_new_tokens: longest completion.
        temperature: sampling temperature.
    """

    def __init__(
        self,
        name: str,
        *,
        seed: int,
        policy: Policy,
        generator: Generator,
        task: Task,
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self.name = name
        self._seed = seed
        self._policy = policy
        self._generator = generator
        self._task = task
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self.prompt_ids = prompt_encoder(policy.tokenizer, task)

    def sample(self, asks: Sequence[Ask], *, round: int, policy_step: int, stream: str = "sample") -> list[Group]:
        """Groups of scored completions, in the order of `asks`.

        Completions that the task could not score are left out, and groups without any left too. Calls of one round
        need different streams of random numbers.
        """
        if not asks:
            return []
        completions = self._generator.generate(
            [self.prompt_ids(ask.prompt_id) for ask in asks],
            num_completions=[ask.num_completions for ask in asks],
            max_new_tokens=self._max_new_tokens,
            temperature=self._temperature,
            seed=derived_seed(self._seed, stream, self.name, round),
        )
        info = SamplerInfo(self._policy.label, policy_step, self._temperature, self._policy.tokenizer.fingerprint)
        groups = []
        for ask, answers in zip(asks, completions, strict=True):
            rollouts = self._score(ask.prompt_id, answers)
            if rollouts:
                groups.append(Group(self.name, round, ask.prompt_id, info, rollouts))
        return groups

    def _score(self, prompt_id: str, answers: Sequence[Completion]) -> tuple[Rollout, ...]:
        texts = [self._policy.tokenizer.decode_completion(answer.token_ids.tolist()) for answer in answers]
        scores = self._task.score(self._task.prompt(prompt_id), texts)
        return tuple(
            Rollout(answer.token_ids, answer.logp_gen, answer.finish_reason, score.value)
            for answer, score in zip(answers, scores, strict=True)
            if score is not None
        )


def prompt_encoder(tokenizer: Tokenizer, task: Task) -> Callable[[str], tuple[int, ...]]:
    """From a prompt's id to its token ids, remembered. Tokenizers are not made for two threads: each has its own."""

    @lru_cache(maxsize=4096)
    def encode(prompt_id: str) -> tuple[int, ...]:
        prompt = task.prompt(prompt_id)
        return tuple(tokenizer.encode_prompt(prompt.text, prompt.messages))

    return encode


def derived_seed(seed: int, *purpose: str | int) -> int:
    """A seed below 2**63 for one purpose, a pure function of the run's seed.

    >>> derived_seed(7, "sample", "kim", 3) == derived_seed(7, "sample", "kim", 3)
    True
    """
    text = "\n".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"motet.seed").digest(), "big") >> 1
