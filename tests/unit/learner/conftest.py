"""Rounds of groups for the learner: sampled by a model, rewarded at random from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from motet.generation import HFGenerator
from motet.learner import GradientTrust, Learner, Method, OptimizerOptions
from motet.models import Policy
from motet.records import Group, Rollout, SamplerInfo

TEXTS = {
    f"train/{number}": text for number, text in enumerate(["3+5+9=", "1+2=", "9+9+9+9+9+9=", "7+4+1=", "2+2=", "="])
}


@pytest.fixture
def texts() -> dict[str, str]:
    """Prompts by id."""
    return TEXTS


@pytest.fixture
def encode() -> Callable[[Policy], Callable[[str], list[int]]]:
    """Prompt ids of a policy's own tokenizer by prompt id."""
    return lambda policy: lambda prompt_id: policy.tokenizer.encode_prompt(TEXTS[prompt_id])


@pytest.fixture
def sample_groups() -> Callable[..., list[Group]]:
    """`sample_groups(policy, "ann", ["train/0"])`: groups that `policy` samples, with rewards 0 or 1."""

    def sample(
        policy: Policy,
        peer: str,
        prompt_ids: list[str],
        *,
        size: int = 4,
        seed: int = 0,
        temperature: float = 1.0,
        rewards: list[float] | None = None,
        round: int = 0,
        max_new_tokens: int = 8,
    ) -> list[Group]:
        completions = HFGenerator(policy).generate(
            [policy.tokenizer.encode_prompt(TEXTS[prompt_id]) for prompt_id in prompt_ids],
            num_completions=size,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
        )
        random = np.random.default_rng(seed)
        info = SamplerInfo(policy.label, 0, temperature, policy.tokenizer.fingerprint)
        groups = []
        for prompt_id, answers in zip(prompt_ids, completions, strict=True):
            drawn = rewards if rewards is not None else random.integers(0, 2, size).astype(float).tolist()
            if rewards is None and len(set(drawn)) == 1:
                drawn[0] = 1.0 - drawn[0]
            rollouts = tuple(
                Rollout(c.token_ids, c.logp_gen, c.finish_reason, r) for c, r in zip(answers, drawn, strict=True)
            )
            groups.append(Group(peer, round, prompt_id, info, rollouts))
        return groups

    return sample


class Watched:
    """A learner whose gradients can be looked at."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.gradients: list[dict[str, torch.Tensor]] = []
        self._step = learner.optimizer.step
        learner.optimizer.step = self._note_and_step  # type: ignore[method-assign]

    def _note_and_step(self, number: int) -> tuple[float, bool]:
        optimizer = self.learner.optimizer
        named = zip(optimizer.names, optimizer.masters, strict=True)
        self.gradients.append({n: m.grad.detach().clone() for n, m in named if m.grad is not None})
        return self._step(number)

    def weights(self) -> dict[str, torch.Tensor]:
        optimizer = self.learner.optimizer
        return {n: m.detach().clone() for n, m in zip(optimizer.names, optimizer.masters, strict=True)}


@pytest.fixture
def make_learner(encode: Callable[[Policy], Callable[[str], list[int]]]) -> Callable[..., Watched]:
    """`make_learner(policy, rule="off", max_batch_tokens=50)`: method and optimiser options by name."""

    def make(
        policy: Policy,
        *,
        dtype: torch.dtype | None = None,
        joined: bool = False,
        precision: str = "fp32",
        max_batch_tokens: int = 16384,
        max_influence: float | None = None,
        trust: GradientTrust | None = None,
        learning_rate: float = 1e-3,
        max_grad_norm: float = 1e9,
        optimizer: dict[str, Any] | None = None,
        prompt_ids: Callable[[str], list[int]] | None = None,
        **method: Any,
    ) -> Watched:
        learner = Learner(
            policy,
            method=Method(**method),
            optimizer=OptimizerOptions(
                learning_rate=learning_rate, num_steps=10, max_grad_norm=max_grad_norm, **(optimizer or {})
            ),
            prompt_ids=prompt_ids or encode(policy),
            joined=joined,
            precision=precision,  # type: ignore[arg-type]
            max_batch_tokens=max_batch_tokens,
            max_influence=max_influence,
            trust=trust,
        )
        if dtype is not None:
            policy.cast(dtype)
        return Watched(learner)

    return make


@pytest.fixture
def assert_alike() -> Callable[..., None]:
    """Two gradients (or sets of weights) agree, relative to the largest of their entries."""

    def check(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], tolerance: float) -> None:
        assert first.keys() == second.keys()
        largest = max(float(tensor.abs().max()) for tensor in second.values())
        assert largest > 0
        for name, tensor in first.items():
            assert float((tensor - second[name]).abs().max()) <= tolerance * largest, name

    return check
