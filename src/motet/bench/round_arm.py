"""One round of a whole swarm as an arm: sample, encode, decode, learn; without gate, task and journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from motet.bench.generate_arms import draw_prompts
from motet.bench.generate_setup import GenerateSetup
from motet.bench.growth import RoundPoint
from motet.bench.learner_setup import LEARNING_RATE
from motet.bench.models import BenchModel, build_policy
from motet.generation import Completion, HFGenerator
from motet.learner import Learner, Method, OptimizerOptions
from motet.records import Group, Rollout, SamplerInfo, decode_group, encode_group


class RoundArm:
    """All nodes of the round. Rewards alternate, so that every group has variance; the filter drops foreign zeros."""

    def __init__(self, point: RoundPoint) -> None:
        self._point = point
        self._policies = [build_policy(BenchModel(point.model)) for _ in range(point.nodes)]
        setup = GenerateSetup(
            BenchModel(point.model), point.prompt, point.prompts, point.group_size, point.completion, "fp32"
        )
        drawn = draw_prompts(setup, self._policies[0].vocab_size)
        prompts = {f"train/{number}": ids for number, ids in enumerate(drawn)}
        self._prompts = prompts
        self._learners = [
            Learner(
                policy,
                method=Method(),
                optimizer=OptimizerOptions(learning_rate=LEARNING_RATE, num_steps=10_000),
                prompt_ids=lambda prompt_id: prompts[prompt_id],
            )
            for policy in self._policies
        ]
        self._round = 0
        parameters = self._policies[0].num_parameters
        self.settings = {"parameters": parameters, "takes_plans": self._policies[0].takes_plans}

    def step(self) -> dict[str, float]:
        """One round; seconds of its phases."""
        start = time.perf_counter()
        groups = [self._sample(node) for node in range(self._point.nodes)]
        sampled = time.perf_counter()
        messages = [[encode_group(group) for group in of_node] for of_node in groups]
        wire_s = time.perf_counter() - sampled
        learn_s = 0.0
        for node, learner in enumerate(self._learners):
            begun = time.perf_counter()
            others = (message for other, sent in enumerate(messages) if other != node for message in sent)
            foreign = [decode_group(message) for message in others]
            decoded = time.perf_counter()
            learner.learn(groups[node], foreign)
            wire_s += decoded - begun
            learn_s += time.perf_counter() - decoded
        self._round += 1
        return {"generate_s": sampled - start, "wire_s": wire_s, "learn_s": learn_s}

    def figures(self) -> dict[str, Any]:
        """Nothing besides."""
        return {"rounds": self._round}

    def _sample(self, node: int) -> list[Group]:
        mine = [prompt_id for number, prompt_id in enumerate(self._prompts) if number % self._point.nodes == node]
        completions = HFGenerator(self._policies[node]).generate(
            [self._prompts[prompt_id] for prompt_id in mine],
            num_completions=self._point.group_size,
            max_new_tokens=self._point.completion,
            temperature=1.0,
            seed=self._round * self._point.nodes + node,
        )
        sampler = SamplerInfo(self._point.model, self._round, 1.0, "0123456789abcdef")
        return [
            Group(f"node{node}", self._round, prompt_id, sampler, _scored(of_prompt))
            for prompt_id, of_prompt in zip(mine, completions, strict=True)
        ]


def _scored(completions: Sequence[Completion]) -> tuple[Rollout, ...]:
    return tuple(
        Rollout(completion.token_ids, completion.logp_gen, completion.finish_reason, float(number % 2))
        for number, completion in enumerate(completions)
    )
