"""Scoring a stranger's completions here: what they claim to have earned is compared, never believed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from motet.admission.structure import Finding
from motet.records import Group, Rollout
from motet.tasks import Prompt, Score, Task

T = TypeVar("T")
REWARD_TOLERANCE = 1e-6
"""A claimed reward further from ours than this is a mismatch."""

_CERTAIN = np.float32(0.0)

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Scored:
    """A group with rewards of our own.

    Attributes:
        group: the group, without the rollouts that our task could not score.
        reward_mismatches: claims that differ from our rewards.
        num_unscored: rollouts left out.
    """

    group: Group
    reward_mismatches: int
    num_unscored: int


def score_group(group: Group, prompt: Prompt, task: Task, decode: Decode) -> Scored | Finding:
    """Replace the claimed rewards by ours; rollouts that the task cannot score are left out.

    Log-probs a rounding error above 0 are set to 0.
    """
    texts = [_attempt(decode, rollout.token_ids.tolist()) for rollout in group.rollouts]
    readable = [text for text in texts if text is not None]
    if len(readable) < len(texts):
        return Finding("bad_token", f"{len(texts) - len(readable)} of {len(texts)} rollouts cannot be decoded")
    scores = _attempt(lambda: task.score(prompt, readable))
    if scores is None or len(scores) != len(readable):
        return Finding("unscorable", f"scoring {len(readable)} rollouts failed")
    rollouts: list[Rollout] = []
    mismatches = 0
    for rollout, score in zip(group.rollouts, scores, strict=True):
        if score is None or not math.isfinite(score.value):
            continue
        mismatches += abs(rollout.reward - score.value) > REWARD_TOLERANCE
        rollouts.append(_with_reward(rollout, score))
    if not rollouts:
        return Finding("unscorable", f"none of {len(scores)} rollouts could be scored")
    num_unscored = len(scores) - len(rollouts)
    return Scored(dataclasses.replace(group, rollouts=tuple(rollouts)), mismatches, num_unscored)


def _with_reward(rollout: Rollout, score: Score) -> Rollout:
    logp_gen = np.minimum(rollout.logp_gen, _CERTAIN)
    return Rollout(rollout.token_ids, logp_gen, rollout.finish_reason, float(score.value))


def _attempt(call: Callable[..., T], *arguments: object) -> T | None:
    """The call's result, or None if it raised. The only place in `admission` that catches everything."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - a tokenizer or a reward met a stranger's text: that must not stop this node
        return None
