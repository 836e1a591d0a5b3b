"""What travels between nodes: completions with log-probs and rewards. The first file to read after `core/loss.py`.

A worked example: node "kim" sampled two completions of the sum with id "train/17" in round 3.

    Group(
        peer="kim", round=3, prompt_id="train/17",
        sampler=SamplerInfo(model="tiny:large", policy_step=3, temperature=1.0, tokenizer="9c1f..."),
        rollouts=(
            Rollout(token_ids=[5, 11, 13], logp_gen=[-0.1, -0.9, -0.0], finish_reason="stop", reward=1.0),
            Rollout(token_ids=[5, 12, 13], logp_gen=[-0.1, -0.6, -0.0], finish_reason="stop", reward=0.0),
        ),
    )

The prompt itself does not travel: every node looks it up in its own task by `prompt_id`, so nobody can slip in a
prompt or an answer. Rewards travel as claims only; the receiver scores the text again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One completion.

    Attributes:
        token_ids: sampled ids with the end token, if one was sampled. uint32, shape (T,), T >= 1.
        logp_gen: natural log-prob of each id under the sampler's untruncated distribution at its temperature.
            float32, shape (T,), nats.
        finish_reason: "stop": the last id is an end token; "length": cut at the limit.
        reward: what the sender says the completion earned. A claim.
    """

    token_ids: NDArray[np.uint32]
    logp_gen: NDArray[np.float32]
    finish_reason: FinishReason
    reward: float


@dataclass(frozen=True, slots=True)
class SamplerInfo:
    """Who sampled, and how.

    Attributes:
        model: label for people ("tiny:large"); never trusted for anything.
        policy_step: optimiser steps that the sampling weights had seen.
        temperature: the temperature under which `logp_gen` holds.
        tokenizer: fingerprint of the tokenizer (see `motet.models.tokenizer`); ids mean nothing without it.
    """

    model: str
    policy_step: int
    temperature: float
    tokenizer: str


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Completions of one prompt by one node in one round.

    Attributes:
        peer: name of the node that sampled.
        round: the publish/collect cycle it belongs to, from 0.
        prompt_id: "<split>/<index>", looked up in the receiver's own task.
        sampler: who sampled, and how.
        rollouts: at least one.
    """

    peer: str
    round: int
    prompt_id: str
    sampler: SamplerInfo
    rollouts: tuple[Rollout, ...]

    @property
    def num_tokens(self) -> int:
        """Completion tokens in the group."""
        return sum(len(rollout.token_ids) for rollout in self.rollouts)
