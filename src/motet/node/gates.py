"""Whom a node believes: the rules of a run file, for peers that live and for groups that were stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from motet.admission import Gate, GateRules
from motet.config import RunFile
from motet.models import Policy
from motet.records import ARCHIVE_LIMITS, StoredGroups, WireLimits
from motet.swarm import Assignment, Exchange
from motet.swarm.network import NetworkExchange
from motet.tasks import Task


def live_gate(
    run: RunFile,
    name: str,
    policy: Policy,
    task: Task,
    *,
    assignment: Assignment,
    swarm: list[str],
    exchange: Exchange,
) -> Gate:
    """The gate of a node that meets others."""
    return Gate(
        _rules(run, name, policy, members=swarm),
        task=task,
        decode=policy.tokenizer.decode_completion,
        expected=assignment.expected,
        num_assigned=lambda peer, round: len(assignment.plan(peer, round)),
        is_member=exchange.is_member if isinstance(exchange, NetworkExchange) else None,
    )


def replay_gate(run: RunFile, policy: Policy, task: Task, stored: StoredGroups) -> Gate:
    """The gate of a replay: each group is checked as a peer's is, but what is stored is what was to be made.

    No name is the node's own, whose earlier groups may be among them. What bounds a live peer bounds nobody here:
    stored groups are of the size they have, and nothing worse follows on a bad one, so there is no quarantine.
    """
    rules = replace(
        _rules(run, "", policy, members=stored.peers),
        limits=ARCHIVE_LIMITS,
        max_group_size=ARCHIVE_LIMITS.max_group_size,
        max_bytes_per_round=ARCHIVE_LIMITS.max_payload_bytes,
        quarantine_after=math.inf,
    )
    return Gate(
        rules,
        task=task,
        decode=policy.tokenizer.decode_completion,
        expected=stored.expected,
        num_assigned=stored.num_assigned,
    )


def max_lag_of(run: RunFile) -> int | None:
    """Rounds by which a group may be late; None in lockstep."""
    return run.swarm.max_lag if run.swarm.pace == "free" else None


def _rules(run: RunFile, name: str, policy: Policy, *, members: Sequence[str]) -> GateRules:
    tokenizer, admission = policy.tokenizer, run.admission
    return GateRules(
        name=name,
        members=frozenset(members),
        tokenizer=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        end_token_ids=frozenset(tokenizer.end_token_ids),
        max_new_tokens=run.rollout.max_new_tokens,
        collaboration=run.swarm.collaboration,
        max_group_size=admission.max_group_size,
        max_lag=max_lag_of(run),
        # The parser's own bounds stay looser than the rules', which give the clearer reasons.
        limits=WireLimits(max_payload_bytes=admission.max_payload_bytes, max_group_size=16 * admission.max_group_size),
        max_bytes_per_round=admission.max_bytes_per_round,
        quarantine_after=admission.quarantine_after,
        quarantine_rounds=admission.quarantine_rounds,
    )
