"""The batch that every arm of `bench learner` learns from: lengths, rewards and what the filter will drop, by plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from motet.records import Group, Rollout, SamplerInfo

BatchKind = Literal["ftis", "full"]
LogProbs = Callable[[Sequence[int], NDArray[np.uint32]], NDArray[np.float32]]
"""Log-probs of a completion's ids after a prompt's, under the model that is trained."""

FIRST_ID = 2
"""Ids below are the padding's and the end's in the models of this bench."""
NOISE_NATS = 0.1
"""Standard deviation of logp_gen around the model's own log-prob, for external completions that the filter keeps."""
FAR_NATS = 5.0
"""How far below the model's own log-prob logp_gen lies where the filter drops for KL: e^5 - 6 = 142 nats a token."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What is drawn.

    Attributes:
        prompt: mean length of a prompt; they spread evenly over +-10 %.
        completion: longest completion; lengths spread evenly from a quarter of it.
        prompts: number of prompts.
        group_size: completions of each.
        kind: "ftis": half of the prompts external, half of the external completions to be dropped (most for an
            advantage of 0 or less, some for their KL), a third of the groups without variance. "full": all own, every
            completion learned from.
        vocab_size: ids lie below.
        seed: of the draw.
    """

    prompt: int
    completion: int
    prompts: int = 8
    group_size: int = 8
    kind: BatchKind = "ftis"
    vocab_size: int = 16
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class BenchBatch:
    """Groups to learn from.

    Attributes:
        prompts: ids of each prompt, by its id.
        own: own groups.
        foreign: groups of a peer.
        far: for each foreign group, the rollouts that the filter is to drop for their KL.
    """

    prompts: Mapping[str, list[int]]
    own: Sequence[Group]
    foreign: Sequence[Group]
    far: Sequence[frozenset[int]]

    @property
    def groups(self) -> list[Group]:
        """All groups, own first."""
        return [*self.own, *self.foreign]

    @property
    def num_tokens(self) -> int:
        """Completion tokens."""
        return sum(group.num_tokens for group in self.groups)


def draw_batch(plan: BatchPlan) -> BenchBatch:
    """Groups as planned; their log-probs are 0 until `with_log_probs` sets them."""
    rng = np.random.default_rng(plan.seed)
    num_foreign = plan.prompts // 2 if plan.kind == "ftis" else 0
    num_own = plan.prompts - num_foreign
    silent = round(plan.prompts / 3) if plan.kind == "ftis" else 0
    silent_foreign = min(silent // 2, num_foreign)
    silent_own = min(silent - silent_foreign, num_own)
    worse, far = _dropped(num_foreign - silent_foreign, silent_foreign, plan.group_size)
    half = plan.group_size // 2
    wrong_of_own = [plan.group_size] * silent_own + [half] * (num_own - silent_own)
    wrong_of_foreign = [plan.group_size] * silent_foreign + worse
    prompts: dict[str, list[int]] = {}
    groups: list[Group] = []
    for number, wrong in enumerate([*wrong_of_own, *wrong_of_foreign]):
        prompt_id = f"train/{number}"
        prompts[prompt_id] = _ids(rng, _spread(rng, plan.prompt * 0.9, plan.prompt * 1.1), plan).tolist()
        peer = "own" if number < num_own else "peer"
        groups.append(_group(rng, plan, prompt_id, peer, num_wrong=wrong))
    far_of = [frozenset[int]()] * silent_foreign + [
        frozenset(range(wrong, wrong + count)) for wrong, count in zip(worse, far, strict=True)
    ]
    return BenchBatch(prompts, groups[:num_own], groups[num_own:], far_of)


def with_log_probs(batch: BenchBatch, log_probs: LogProbs, *, seed: int = 0) -> BenchBatch:
    """The batch as if sampled by a policy near the model that `log_probs` asks, except where it is to be far."""
    rng = np.random.default_rng(seed)

    def settle(group: Group, far: frozenset[int], noise: float) -> Group:
        rollouts = []
        for number, rollout in enumerate(group.rollouts):
            logp = log_probs(batch.prompts[group.prompt_id], rollout.token_ids)
            shift = -FAR_NATS if number in far else rng.normal(0.0, noise, len(logp))
            settled = np.minimum(logp + shift, 0.0).astype(np.float32)
            rollouts.append(replace(rollout, logp_gen=settled))
        return replace(group, rollouts=tuple(rollouts))

    own = [settle(group, frozenset(), 0.0) for group in batch.own]
    foreign = [settle(group, far, NOISE_NATS) for group, far in zip(batch.foreign, batch.far, strict=True)]
    return replace(batch, own=own, foreign=foreign)


def advantages_kept(batch: BenchBatch) -> tuple[NDArray[np.float32], list[str]]:
    """The advantage of each completion (0 where the filter drops it), and what becomes of it.

    Returns:
        Advantages in the order of `groups`, and "silent", "worse", "far" or "learned" for each.
    """
    values: list[float] = []
    fates: list[str] = []
    for number, group in enumerate(batch.groups):
        rewards = np.array([rollout.reward for rollout in group.rollouts], dtype=np.float64)
        centred = rewards - rewards.mean()
        has_variance = rewards.min() < rewards.max()
        advantages = centred / (rewards.std(ddof=1) + 1e-4) if has_variance else np.zeros(len(rewards))
        external = number >= len(batch.own)
        far = batch.far[number - len(batch.own)] if external else frozenset()
        for row, advantage in enumerate(advantages.tolist()):
            fate = "learned"
            if not has_variance:
                fate = "silent"
            elif external and advantage <= 0:
                fate = "worse"
            elif row in far:
                fate = "far"
            fates.append(fate)
            values.append(advantage if fate == "learned" else 0.0)
    return np.array(values, dtype=np.float32), fates


def shares(batch: BenchBatch) -> dict[str, float]:
    """What the batch is made of, as shares."""
    _, fates = advantages_kept(batch)
    num_own = sum(len(group.rollouts) for group in batch.own)
    external = fates[num_own:]
    silent = [len({rollout.reward for rollout in group.rollouts}) == 1 for group in batch.groups]
    return {
        "external": len(external) / len(fates),
        "external_dropped": sum(fate != "learned" for fate in external) / max(1, len(external)),
        "external_dropped_kl": sum(fate == "far" for fate in external) / max(1, len(external)),
        "groups_without_variance": sum(silent) / len(silent),
        "learned": sum(fate == "learned" for fate in fates) / len(fates),
    }


def _dropped(active: int, silent: int, group_size: int) -> tuple[list[int], list[int]]:
    """For each foreign group with variance: completions of reward 0, and right ones that are far.

    Half of all external completions are to go; a quarter of those that have variance go for their KL.
    """
    if not active:
        return [], []
    left = max(0, round((active + silent) * group_size / 2) - silent * group_size)
    far_total = min(round(left / 4), active * max(0, group_size - 2))
    worse_total = min(max(left - far_total, active), active * (group_size - 1))
    worse = [worse_total // active + (number < worse_total % active) for number in range(active)]
    far = [far_total // active + (number < far_total % active) for number in range(active)]
    return worse, [min(count, group_size - wrong) for count, wrong in zip(far, worse, strict=True)]


def _group(rng: np.random.Generator, plan: BatchPlan, prompt_id: str, peer: str, *, num_wrong: int) -> Group:
    rollouts = []
    for number in range(plan.group_size):
        ids = _ids(rng, _spread(rng, max(1, plan.completion // 4), plan.completion), plan)
        logp = np.zeros(len(ids), dtype=np.float32)
        rollouts.append(Rollout(ids, logp, "length", 0.0 if number < num_wrong else 1.0))
    sampler = SamplerInfo(model="bench", policy_step=0, temperature=1.0, tokenizer="0")
    return Group(peer, 0, prompt_id, sampler, tuple(rollouts))


def _spread(rng: np.random.Generator, low: float, high: float) -> int:
    return int(rng.integers(max(1, round(low)), max(1, round(high)) + 1))


def _ids(rng: np.random.Generator, length: int, plan: BatchPlan) -> NDArray[np.uint32]:
    return rng.integers(FIRST_ID, plan.vocab_size, length, dtype=np.uint32)
