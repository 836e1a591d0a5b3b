"""One node, and the round that it repeats. The third file to read, after `core/loss.py` and `records/rollout.py`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator as Steps
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter

from motet.admission import Gate, Verdict
from motet.learner import Learner, StepReport
from motet.node.production import Production
from motet.records import Archive, Group, LogProbs, encode_group
from motet.swarm import Ask, Assignment, Exchange, Ledger, Parcel


class Phase(StrEnum):
    """What a node is about to do."""

    GENERATE = "generate"
    WAIT = "wait"
    LEARN = "learn"


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What one node did in one round.

    Attributes:
        round: its number, from 0.
        metrics: numbers by metric name.
    """

    round: int
    metrics: Mapping[str, float]


class Node:
    """A policy that learns from its own completions and from those of its peers.

    Args:
        name: unique in the run.
        assignment: who generates what; None: this node generates nothing.
        production: where this node's own groups come from.
        exchange: carries groups between nodes.
        gate: decides which groups of peers are believed.
        learner: takes the optimiser steps.
        ledger: accounts of the peers.
        archive: keeps the groups that this node sampled.
        deadline_s: longest wait for peers in a round, seconds.
        max_lag: None for lockstep, or the oldest round, counted back, that is still learned from.
        log_probs: how they travel.
        full_batch: groups of its own that peers' groups must make up for, by what they were worth lately; what is
            lacking the node samples for itself. 0: it never does.
        fills_gaps: learn from a peer's group only where no own completion of its prompt is right.
    """

    def __init__(  # noqa: PLR0913 - the parts of a node, one by one
        self,
        name: str,
        *,
        assignment: Assignment | None,
        production: Production,
        exchange: Exchange,
        gate: Gate,
        learner: Learner,
        ledger: Ledger,
        archive: Archive,
        deadline_s: float,
        max_lag: int | None,
        log_probs: LogProbs = "compact",
        full_batch: int = 0,
        fills_gaps: bool = False,
    ) -> None:
        self.name = name
        self.assignment = assignment
        self.production = production
        self.exchange = exchange
        self.gate = gate
        self.learner = learner
        self.ledger = ledger
        self.archive = archive
        self.deadline_s = deadline_s
        self.max_lag = max_lag
        self.log_probs = log_probs
        self.full_batch = full_batch
        self.fills_gaps = fills_gaps

    def run_round(self, round: int) -> Steps[Phase, None, RoundReport]:
        """One round: generate, publish, collect, admit, top up, learn.

        Pauses before each phase, so that whoever drives the node can show what it is about to do, or let the other
        nodes of this process publish first. A round without a foreign group is a normal round.
        """
        clock = _Clock()
        yield Phase.GENERATE
        with clock.time("generate"):
            own = self.production.groups(round)
        with clock.time("publish"):
            payloads = [encode_group(group, log_probs=self.log_probs) for group in own]
            self.exchange.publish(round, payloads)
        yield Phase.WAIT
        with clock.time("wait"):
            parcels = self.exchange.collect(round, deadline_s=self.deadline_s, max_lag=self.max_lag)
        with clock.time("admit"):
            self.gate.note_own(own)
            verdicts = [self._admit(parcel, round) for parcel in parcels]
        foreign = self._wanted(own, [verdict.group for verdict in verdicts if verdict.group is not None])
        with clock.time("top_up"):
            own = own + self.production.more(round, lacking := self._lacking(own, foreign))
        yield Phase.LEARN
        with clock.time("learn"):
            step = self.learner.learn(own, foreign)
        unread = self._account(parcels, verdicts, step)
        for group in own:
            self.archive.append(group)
        traffic = _traffic(own[: len(payloads)], payloads if self.exchange.peers() else [], parcels) | unread
        traffic |= _admission(verdicts) | {"admission/quarantined": len(self.gate.conduct.quarantined(round))}
        asks = self._asks(round, lacking)
        times = clock.metrics() | {"time/idle_s": self._idle_s(clock)}
        return RoundReport(round, {**step.metrics, **_production(asks, own), **traffic, **times})

    def _admit(self, parcel: Parcel, round: int) -> Verdict:
        return self.gate.admit(peer=parcel.peer, round=parcel.round, payload=parcel.payload, current_round=round)

    def _wanted(self, own: Sequence[Group], foreign: Sequence[Group]) -> list[Group]:
        """The peers' groups to learn from; of the others the ledger gets the reason."""
        if not self.fills_gaps:
            return list(foreign)
        failed = {group.prompt_id for group in own if all(rollout.reward <= 0 for rollout in group.rollouts)}
        for group in foreign:
            if group.prompt_id not in failed:
                self.ledger.record_use(group.peer, kept=0, dropped={"no_gap": len(group.rollouts)})
        return [group for group in foreign if group.prompt_id in failed]

    def _lacking(self, own: Sequence[Group], foreign: Sequence[Group]) -> int:
        """Groups that are missing to a full batch, if a peer's group counts by what the peer's were worth lately."""
        worth = sum(self.ledger.account(group.peer).worth for group in foreign)
        return max(0, self.full_batch - len(own) - math.floor(worth))

    def _asks(self, round: int, num_more: int) -> tuple[Ask, ...]:
        """What this node was to generate in a round, and so many groups on top."""
        if self.assignment is None:
            return ()
        return self.assignment.plan(self.name, round) + self.assignment.beyond(self.name, round, num_more)

    def _idle_s(self, clock: _Clock) -> float:
        """The wait for peers, but for the part of it in which own completions were being sampled."""
        since, until = clock.span("wait")
        return until - since - self.production.sampling_s(since, until)

    def _account(self, parcels: Sequence[Parcel], verdicts: Sequence[Verdict], step: StepReport) -> dict[str, float]:
        """Enter the round into the ledger; returns metrics of what never came to the gate."""
        for parcel, verdict in zip(parcels, verdicts, strict=True):
            self.ledger.record_verdict(
                peer=verdict.peer,
                accepted=verdict.accepted,
                reason=verdict.reason,
                num_bytes=len(parcel.payload),
                reward_mismatches=verdict.reward_mismatches,
                strikes=verdict.strikes,
                quarantined_until=verdict.quarantined_until,
            )
        for peer, use in step.uses.items():
            self.ledger.record_use(peer, kept=use.kept, dropped=use.dropped, worth=use.worth)
        late = self.exchange.num_late()
        for peer, count in late.items():
            self.ledger.record_late(peer, count)
        refused: Counter[str] = Counter()
        for peer, counts in self.exchange.num_refused().items():
            self.ledger.record_refused(peer, counts)
            refused.update(counts)
        reasons = {f"admission/refused/{reason}": count for reason, count in sorted(refused.items())}
        return {"admission/late": sum(late.values()), "admission/refused": refused.total(), **reasons}


def _production(asks: Sequence[Ask], own: Sequence[Group]) -> dict[str, float]:
    sampled = sum(ask.num_completions for ask in asks)
    scored = sum(len(group.rollouts) for group in own)
    return {"own/groups": len(own), "own/completions": sampled, "own/unscored": sampled - scored}


def _traffic(own: Sequence[Group], payloads: Sequence[bytes], parcels: Sequence[Parcel]) -> dict[str, float]:
    """What travelled: nothing, if there is nobody to send it to."""
    tokens = sum(group.num_tokens for group in own) if payloads else 0
    sent = sum(len(payload) for payload in payloads)
    metrics: dict[str, float] = {
        "wire/tokens_sent": tokens,
        "wire/bytes_sent": sent,
        "wire/bytes_received": sum(len(parcel.payload) for parcel in parcels),
    }
    if tokens:
        metrics["wire/bytes_per_token"] = sent / tokens
    return metrics


def _admission(verdicts: Sequence[Verdict]) -> dict[str, float]:
    accepted = sum(verdict.accepted for verdict in verdicts)
    metrics: dict[str, float] = {
        "external/groups": accepted,
        "admission/rejected": len(verdicts) - accepted,
        "admission/reward_mismatches": sum(verdict.reward_mismatches for verdict in verdicts),
        "admission/strikes": sum(verdict.strikes for verdict in verdicts),
        "admission/length_ratio": max((verdict.length_ratio for verdict in verdicts), default=0.0),
    }
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.reason is not None)
    return metrics | {f"admission/rejected/{reason}": count for reason, count in sorted(reasons.items())}


class _Clock:
    """When each phase began and ended; time in which the round is paused belongs to none."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[float, float]] = {}

    @contextmanager
    def time(self, phase: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self._spans[phase] = (start, perf_counter())

    def span(self, phase: str) -> tuple[float, float]:
        return self._spans[phase]

    def metrics(self) -> dict[str, float]:
        return {f"time/{phase}_s": end - start for phase, (start, end) in self._spans.items()}
