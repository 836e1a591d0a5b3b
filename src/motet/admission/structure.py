"""Checks of a group's form. Each takes what it looks at and returns None, or a `Finding`; none raises.

Details carry numbers only, never text of the peer's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from motet.admission.verdict import Reason
from motet.records import Group, Rollout, SamplerInfo

MAX_LOGP = 1e-4
"""A log-prob up to this, in nats, is rounding noise above 0; it is set to 0."""
MIN_LOGP = -1000.0
"""Nobody samples a token of this log-prob, in nats; sums of smaller ones could overflow."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0
"""Logits are divided by the sender's temperature: a smaller one would overflow, a larger one samples blindly."""
MAX_POLICY_STEP = 2**53


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a group is rejected: a reason code, and the numbers that decided."""

    reason: Reason
    detail: str


def check_window(round: int, current_round: int, max_lag: int | None, max_lead: int | None) -> Finding | None:
    """The round is the current one (lockstep, `max_lag` None), or from `max_lag` before it to `max_lead` after it."""
    oldest = current_round - (max_lag or 0)
    newest = current_round + (max_lead or 0)
    if oldest <= round <= newest:
        return None
    return Finding("wrong_round", f"parcel of round {_short(round)}, allowed {oldest}..{newest}")


def check_envelope(group: Group, peer: str, round: int, tokenizer: str) -> Finding | None:
    """The payload agrees with its parcel, and its ids mean the same here as there."""
    if group.peer != peer:
        return Finding("impersonation", "the group names another peer than the one that sent it")
    if group.round != round:
        return Finding("wrong_round", f"the group says round {_short(group.round)}, its parcel {_short(round)}")
    if group.sampler.tokenizer != tokenizer:
        return Finding("wrong_tokenizer", f"the ids belong to another tokenizer than ours ({tokenizer})")
    return check_sampler(group.sampler)


def check_sampler(sampler: SamplerInfo) -> Finding | None:
    """Temperature and policy step are possible."""
    if not MIN_TEMPERATURE <= sampler.temperature <= MAX_TEMPERATURE:
        return Finding(
            "bad_sampler", f"temperature {sampler.temperature:g}, allowed {MIN_TEMPERATURE:g}..{MAX_TEMPERATURE:g}"
        )
    if not 0 <= sampler.policy_step <= MAX_POLICY_STEP:
        return Finding("bad_sampler", f"policy step {_short(sampler.policy_step)}, allowed 0..{MAX_POLICY_STEP}")
    return None


def check_group_size(group: Group, largest: int) -> Finding | None:
    """1 to `largest` rollouts."""
    if 1 <= len(group.rollouts) <= largest:
        return None
    return Finding("bad_group_size", f"{len(group.rollouts)} rollouts, allowed 1..{largest}")


def check_rollouts(
    rollouts: Sequence[Rollout], *, vocab_size: int, end_token_ids: Set[int], max_new_tokens: int
) -> Finding | None:
    """The first finding of `check_rollout`, rollout by rollout.

    All at once first: where nothing is wrong, which is the rule, a group costs a few array operations.
    """
    if _are_all_sound(rollouts, vocab_size, end_token_ids, max_new_tokens):
        return None
    findings = (
        check_rollout(rollout, index, vocab_size=vocab_size, end_token_ids=end_token_ids, max_new_tokens=max_new_tokens)
        for index, rollout in enumerate(rollouts)
    )
    return next((finding for finding in findings if finding is not None), None)


def _are_all_sound(rollouts: Sequence[Rollout], vocab_size: int, end_token_ids: Set[int], max_new_tokens: int) -> bool:
    """True only if `check_rollout` finds nothing in any of them."""
    sizes, is_stop = [], []
    for rollout in rollouts:
        ids, is_stopped = rollout.token_ids, rollout.finish_reason == "stop"
        if ids.ndim != 1 or rollout.logp_gen.shape != ids.shape or not math.isfinite(rollout.reward):
            return False
        if not 1 <= ids.size <= max_new_tokens or (ids.size < max_new_tokens and not is_stopped):
            return False
        sizes.append(ids.size)
        is_stop.append(is_stopped)
    id_N = np.concatenate([rollout.token_ids for rollout in rollouts])
    logp_N = np.concatenate([rollout.logp_gen for rollout in rollouts])
    if not MIN_LOGP <= float(logp_N.min()) <= float(logp_N.max()) <= MAX_LOGP or int(id_N.max()) >= vocab_size:
        return False
    is_end_N = np.zeros(len(id_N), dtype=bool)
    for end_id in end_token_ids:
        is_end_N |= id_N == end_id
    return int(is_end_N.sum()) == sum(is_stop) and is_end_N[np.cumsum(sizes) - 1].tolist() == is_stop


def check_rollout(
    rollout: Rollout, index: int, *, vocab_size: int, end_token_ids: Set[int], max_new_tokens: int
) -> Finding | None:
    """Lengths, ids, end token, log-probs and claimed reward of one rollout."""
    return (
        _check_length(rollout, index, max_new_tokens)
        or _check_tokens(rollout, index, vocab_size, end_token_ids)
        or _check_logp(rollout, index)
        or _check_reward(rollout, index)
    )


def _check_length(rollout: Rollout, index: int, max_new_tokens: int) -> Finding | None:
    ids, logp = rollout.token_ids, rollout.logp_gen
    if ids.ndim != 1 or logp.shape != ids.shape:
        return Finding("bad_length", f"rollout {index}: {ids.size} ids but {logp.size} log-probs")
    if not 1 <= ids.size <= max_new_tokens:
        return Finding("bad_length", f"rollout {index}: {ids.size} tokens, allowed 1..{max_new_tokens}")
    if rollout.finish_reason == "length" and ids.size < max_new_tokens:
        return Finding(
            "bad_length", f'rollout {index}: cut ("length") after {ids.size} tokens, the limit is {max_new_tokens}'
        )
    return None


def _check_tokens(rollout: Rollout, index: int, vocab_size: int, end_token_ids: Set[int]) -> Finding | None:
    ids = rollout.token_ids
    largest = int(ids.max())
    if largest >= vocab_size:
        return Finding("bad_token", f"rollout {index}: id {largest}, the vocabulary has {vocab_size}")
    is_end = np.isin(ids, np.array(sorted(end_token_ids), dtype=np.uint32))
    if is_end[:-1].any():
        return Finding("bad_token", f"rollout {index}: an end token at {int(is_end.argmax())}, before the last place")
    if rollout.finish_reason == "stop" and not is_end[-1]:
        return Finding("bad_token", f'rollout {index}: finished ("stop") without an end token')
    if rollout.finish_reason == "length" and is_end[-1]:
        return Finding("bad_token", f'rollout {index}: cut ("length") although it ends with an end token')
    return None


def _check_logp(rollout: Rollout, index: int) -> Finding | None:
    logp = rollout.logp_gen
    if not np.isfinite(logp).all():
        return Finding("bad_logp", f"rollout {index}: {int((~np.isfinite(logp)).sum())} log-probs are not finite")
    if float(logp.max()) > MAX_LOGP:
        return Finding("bad_logp", f"rollout {index}: log-prob {float(logp.max()):g} is above 0")
    if float(logp.min()) < MIN_LOGP:
        return Finding("bad_logp", f"rollout {index}: log-prob {float(logp.min()):g} is below {MIN_LOGP:g}")
    return None


def _check_reward(rollout: Rollout, index: int) -> Finding | None:
    if math.isfinite(rollout.reward):
        return None
    return Finding("bad_reward", f"rollout {index}: the claimed reward is {rollout.reward}")


def _short(number: int) -> str:
    """A whole number of a peer's, however large, in a few characters."""
    return str(number) if abs(number) < 10**18 else "beyond 10^18"
