"""The gate: every group of a peer's passes it before anything is learned from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from motet.admission import structure
from motet.admission.reward import Decode, score_group
from motet.admission.structure import Finding
from motet.admission.verdict import Verdict
from motet.errors import WireError
from motet.records import Group, WireLimits, decode_group
from motet.tasks import Prompt, Task

Expected = Callable[[str, int, str], int]
_WRONG_VERSION_CODE = "E-WIRE-02"


@dataclass(frozen=True, slots=True)
class GateRules:
    """What the gate lets in.

    Attributes:
        name: this node's own name.
        members: names of all nodes of the run.
        tokenizer: fingerprint of the tokenizer.
        vocab_size: ids lie in 0..vocab_size - 1.
        end_token_ids: ids that end a completion.
        max_new_tokens: longest completion, end token included.
        collaboration: "vertical": groups of 1 to `max_group_size`. "horizontal": of 1 to the peer's share.
        max_group_size: most rollouts in a group, under both.
        max_lag: None is lockstep: the current round only. A number: that many rounds before it are let in too.
        max_lead: under free pace, how many rounds a peer may be ahead; None: as many as `max_lag`.
        limits: what is parsed at all.
    """

    name: str
    members: frozenset[str]
    tokenizer: str
    vocab_size: int
    end_token_ids: frozenset[int]
    max_new_tokens: int
    collaboration: Literal["vertical", "horizontal"] = "vertical"
    max_group_size: int = 64
    max_lag: int | None = None
    max_lead: int | None = None
    limits: WireLimits = field(default_factory=WireLimits)


class Gate:
    """Judges parcels one by one: from the cheapest check to the dearest, and stops at the first finding.

    Args:
        rules: what is let in.
        task: prompts and rewards of our own.
        decode: ids of a whole completion, end token included, to the text that the task scores.
        expected: (peer, round, prompt id) to the completions that peer was given to generate; 0 for none.
    """

    def __init__(self, rules: GateRules, *, task: Task, decode: Decode, expected: Expected) -> None:
        self._rules = rules
        self._task = task
        self._decode = decode
        self._expected = expected
        self._seen: dict[int, set[tuple[str, str]]] = {}

    def admit(self, *, peer: str, round: int, payload: bytes, current_round: int) -> Verdict:
        """Judge one parcel. Never raises on anything that a peer can send.

        Args:
            peer: who sent it, as the exchange established.
            round: the round it was published for, as the exchange says.
            payload: the encoded group.
            current_round: the round that this node is in; it must not go back.
        """
        self._forget(current_round)
        group = self._open(peer, round, payload, current_round)
        if isinstance(group, Finding):
            return _rejected(peer, group)
        prompt = self._look_up(group)
        if isinstance(prompt, Finding):
            return _rejected(peer, prompt)
        finding = self._check_rollouts(group)
        if finding is not None:
            return _rejected(peer, finding)
        scored = score_group(group, prompt, self._task, self._decode)
        if isinstance(scored, Finding):
            return _rejected(peer, scored)
        left_out = len(group.rollouts) - len(scored.group.rollouts)
        detail = f"{left_out} of {len(group.rollouts)} rollouts could not be scored" if left_out else ""
        return Verdict(peer, group=scored.group, detail=detail, reward_mismatches=scored.reward_mismatches)

    def seen(self) -> list[tuple[int, str, str]]:
        """(round, peer, prompt id) of the groups that would be duplicates now, sorted: plain data for a checkpoint."""
        return sorted((round, peer, prompt_id) for round, pairs in self._seen.items() for peer, prompt_id in pairs)

    def restore_seen(self, seen: Iterable[tuple[int, str, str]]) -> None:
        """Take over what `seen` returned before an interruption."""
        self._seen = {}
        for round, peer, prompt_id in seen:
            self._seen.setdefault(int(round), set()).add((str(peer), str(prompt_id)))

    def _forget(self, current_round: int) -> None:
        oldest = current_round - (self._rules.max_lag or 0)
        for round in [round for round in self._seen if round < oldest]:
            del self._seen[round]

    def _open(self, peer: str, round: int, payload: bytes, current_round: int) -> Group | Finding:
        rules = self._rules
        if peer == rules.name:
            return Finding("impersonation", "sent under this node's own name")
        if peer not in rules.members:
            return Finding("unknown_peer", f"none of the {len(rules.members)} members of this run")
        max_lead = rules.max_lag if rules.max_lead is None else rules.max_lead
        finding = structure.check_window(round, current_round, rules.max_lag, max_lead)
        if finding is not None:
            return finding
        try:
            group = decode_group(payload, rules.limits)
        except WireError as error:
            return Finding("wrong_version" if error.code == _WRONG_VERSION_CODE else "malformed", str(error))
        return structure.check_envelope(group, peer, round, rules.tokenizer) or group

    def _look_up(self, group: Group) -> Prompt | Finding:
        """Our own prompt of that id, if the peer was given it in that round and has not sent it before."""
        try:
            prompt = self._task.prompt(group.prompt_id)
        except KeyError:
            return Finding("unknown_prompt", "our task has no prompt of that id")
        share = self._expected(group.peer, group.round, group.prompt_id)
        if share < 1:
            return Finding("unassigned_prompt", f"not among the peer's prompts of round {group.round}")
        seen = self._seen.setdefault(group.round, set())
        if (group.peer, group.prompt_id) in seen:
            return Finding("duplicate", f"sent before in round {group.round}")
        seen.add((group.peer, group.prompt_id))
        largest = self._rules.max_group_size
        if self._rules.collaboration == "horizontal":
            largest = min(largest, share)
        return structure.check_group_size(group, largest) or prompt

    def _check_rollouts(self, group: Group) -> Finding | None:
        rules = self._rules
        for index, rollout in enumerate(group.rollouts):
            finding = structure.check_rollout(
                rollout,
                index,
                vocab_size=rules.vocab_size,
                end_token_ids=rules.end_token_ids,
                max_new_tokens=rules.max_new_tokens,
            )
            if finding is not None:
                return finding
        return None


def _rejected(peer: str, finding: Finding) -> Verdict:
    return Verdict(peer, reason=finding.reason, detail=finding.detail)
