"""How fast a gate judges: everything that a group of a peer's meets but the task's scoring and the tokenizer."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Sequence

import numpy as np

from motet.admission import Gate, GateRules
from motet.records import Group, WireLimits, encode_group
from motet.tasks import Prompt, RunningSums, Score

_END = 1
_REWARD = 1.0


class _Unscored(RunningSums):
    """Has every prompt, and pays the same for everything."""

    def prompt(self, prompt_id: str) -> Prompt:
        """The first prompt, whatever the id."""
        del prompt_id
        return super().prompt("train/0")

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """No look at the text."""
        del prompt
        return [Score(_REWARD)] * len(completions)


def gate_tokens_per_s(groups: Sequence[Group], vocab_size: int, *, repeats: int) -> float:
    """Completion tokens per second from bytes to verdicts: one thread, the median of the repeats.

    Args:
        groups: what one peer sends in one round; made to pass, so that no check is left out.
        vocab_size: ids lie below it.
        repeats: times.
    """
    passing = [passable(group, vocab_size) for group in groups]
    payloads = [encode_group(group) for group in passing]
    seconds = []
    for _ in range(repeats):
        gate = gate_for(passing, vocab_size)
        start = time.perf_counter()
        for group, payload in zip(passing, payloads, strict=True):
            gate.admit(peer=group.peer, round=group.round, payload=payload, current_round=group.round)
        seconds.append(time.perf_counter() - start)
    return sum(group.num_tokens for group in passing) / statistics.median(seconds)


def gate_for(groups: Sequence[Group], vocab_size: int) -> Gate:
    """A gate that has not seen these groups and lets them in."""
    rules = GateRules(
        name="own",
        members=frozenset(group.peer for group in groups),
        tokenizer=groups[0].sampler.tokenizer,
        vocab_size=vocab_size,
        end_token_ids=frozenset({_END}),
        max_new_tokens=max(len(rollout.token_ids) for group in groups for rollout in group.rollouts),
        max_bytes_per_round=2**62,
        limits=WireLimits(max_payload_bytes=2**32),
    )
    return Gate(rules, task=_Unscored(), decode=lambda _: "", expected=lambda *_: len(groups[0].rollouts))


def passable(group: Group, vocab_size: int) -> Group:
    """The group with an end token last, true claims, and no log-prob below that of a uniform sampler."""
    rollouts = []
    for rollout in group.rollouts:
        ids = np.where(rollout.token_ids == _END, 0, rollout.token_ids).astype(np.uint32)
        ids[-1] = _END
        logp = np.maximum(rollout.logp_gen, np.float32(-math.log(vocab_size)))
        rollouts.append(dataclasses.replace(rollout, token_ids=ids, logp_gen=logp, reward=_REWARD))
    return dataclasses.replace(group, rollouts=tuple(rollouts))
