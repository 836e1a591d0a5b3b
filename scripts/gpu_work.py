"""What the checks of gpu_check.py have in common: models, groups that they sample, gradients, clock and memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from motet.generation import HFGenerator
from motet.learner import Batch, Method, build_batch
from motet.learner.gradient import backward_rows
from motet.models import Policy, load_policy
from motet.records import Group, Rollout, SamplerInfo

TEXTS = ("3+5+9=", "1+2=", "9+9+9+9+9+9=", "7+4+1=")


@dataclass(frozen=True)
class Setup:
    """What every check gets.

    Attributes:
        device: where.
        quick: as little as possible.
        models: names of models to check.
        ends_at: when the whole script must be done, on `time.monotonic`.
    """

    device: torch.device
    quick: bool
    models: Sequence[str]
    ends_at: float

    @property
    def left_s(self) -> float:
        """Seconds left."""
        return self.ends_at - time.monotonic()


def load(name: str, setup: Setup, dtype: torch.dtype) -> Policy:
    """A model whose weights lie in `dtype`."""
    policy = load_policy(name, device=str(setup.device))
    policy.cast(dtype)
    return policy


def prompt_of(policy: Policy, prompt_id: str) -> list[int]:
    """Ids of a prompt."""
    return policy.tokenizer.encode_prompt(TEXTS[int(prompt_id.partition("/")[2]) % len(TEXTS)])


def groups_of(policy: Policy, setup: Setup, *, temperature: float) -> list[Group]:
    """Groups that the policy samples, with rewards 0 and 1 in turn; every second one passes for a peer's."""
    prompt_ids = [f"train/{number}" for number in range(2 if setup.quick else 8)]
    sampled = HFGenerator(policy).generate(
        [prompt_of(policy, prompt_id) for prompt_id in prompt_ids],
        num_completions=4 if setup.quick else 8,
        max_new_tokens=8 if setup.quick else 64,
        temperature=temperature,
        seed=0,
    )
    info = SamplerInfo(policy.label, 0, temperature, policy.tokenizer.fingerprint)
    return [
        Group(
            ("ann", "bob")[number % 2],
            0,
            prompt_id,
            info,
            tuple(Rollout(c.token_ids, c.logp_gen, c.finish_reason, float(i % 2)) for i, c in enumerate(completions)),
        )
        for number, (prompt_id, completions) in enumerate(zip(prompt_ids, sampled, strict=True))
    ]


def batch_of(policy: Policy, setup: Setup, *, temperature: float) -> Batch:
    """The same as one batch."""
    groups = groups_of(policy, setup, temperature=temperature)
    return build_batch(groups[::2], groups[1::2], prompt_ids=lambda i: prompt_of(policy, i), joined=False)


def gradient(policy: Policy, batch: Batch, *, packed: bool) -> torch.Tensor:
    """The loss's gradient as one vector of fp32."""
    policy.takes_plans, before = packed, policy.takes_plans
    try:
        policy.model.zero_grad(set_to_none=True)
        backward_rows(policy, batch, torch.arange(len(batch)), Method(rule="off"), denominator=len(batch))
        parts = [p.grad.float().flatten() for p in policy.trainable().values() if p.grad is not None]
        return torch.cat(parts).cpu()
    finally:
        policy.takes_plans = before
        policy.model.zero_grad(set_to_none=True)


def clock(setup: Setup) -> float:
    """Seconds, when the device has done all it was given."""
    if setup.device.type == "cuda":
        torch.cuda.synchronize(setup.device)
    return time.perf_counter()


def release(setup: Setup, policy: Policy | None = None) -> None:
    """Forget a model, and begin counting memory anew."""
    if policy is not None:
        policy.model.to("meta")
    gc.collect()
    if setup.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setup.device)
