"""The gate: every group of a peer's passes it before anything is learned from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from motet.admission import structure
from motet.admission.conduct import Conduct
from motet.admission.lengths import OwnLengths
from motet.admission.plausibility import Histories, check_claims
from motet.admission.quota import Quota
from motet.admission.reward import Decode, Scored, score_group
from motet.admission.structure import Finding
from motet.admission.verdict import Verdict
from motet.errors import WireError
from motet.records import Group, WireLimits, decode_group
from motet.tasks import Prompt, Task

Expected = Callable[[str, int, str], int]
"""(peer, round, prompt id) to the completions that the peer was given to generate; 0 for none."""
NumAssigned = Callable[[str, int], int]
"""(peer, round) to the groups that the peer was given to generate."""
_WRONG_VERSION_CODE = "E-WIRE-02"


def _any_number(_peer: str, _round: int) -> int:
    return 2**31


@dataclass(frozen=True, slots=True)
class GateRules:
    """What the gate lets in.

    Attributes:
        name: this node's own name.
        members: names of all nodes of the run, where they are known beforehand.
        tokenizer: fingerprint of the tokenizer.
        vocab_size: ids lie in 0..vocab_size - 1.
        end_token_ids: ids that end a completion.
        max_new_tokens: longest completion, end token included.
        collaboration: "vertical", "gaps": groups of 1 to `max_group_size`. "horizontal": of 1 to the peer's share.
        max_group_size: most rollouts in a group, under both.
        max_lag: None is lockstep: the current round only. A number: that many rounds before it are let in too.
        max_lead: under free pace, how many rounds a peer may be ahead; None: as many as `max_lag`.
        limits: what is parsed at all.
        max_bytes_per_round: most bytes of one peer for one round.
        spare_groups: groups that a peer may send for a round beyond those that it was given.
        quarantine_after: strikes at which a peer is quarantined.
        quarantine_rounds: rounds of its first quarantine.
    """

    name: str
    tokenizer: str
    vocab_size: int
    end_token_ids: frozenset[int]
    max_new_tokens: int
    members: frozenset[str] = frozenset()
    collaboration: Literal["vertical", "horizontal", "gaps"] = "vertical"
    max_group_size: int = 64
    max_lag: int | None = None
    max_lead: int | None = None
    limits: WireLimits = field(default_factory=WireLimits)
    max_bytes_per_round: int = 32_000_000
    spare_groups: int = 2
    quarantine_after: float = 3
    quarantine_rounds: int = 20


class Gate:
    """Judges parcels one by one: from the cheapest check to the dearest, and stops at the first finding.

    Sender, quarantine, window and quota come before anything is parsed; then form, prompt and plausible log-probs;
    last what costs the most, decoding and scoring.

    Args:
        rules: what is let in.
        task: prompts and rewards of our own.
        decode: ids of a whole completion, end token included, to the text that the task scores.
        expected: what each peer was given to generate.
        num_assigned: how many groups that are in a round; without it, groups are not counted.
        is_member: who takes part, where names come and go; without it, the rules' `members`.

    Attributes:
        conduct: strikes and quarantines of the peers.
    """

    def __init__(
        self,
        rules: GateRules,
        *,
        task: Task,
        decode: Decode,
        expected: Expected,
        num_assigned: NumAssigned = _any_number,
        is_member: Callable[[str], bool] | None = None,
    ) -> None:
        self._rules = rules
        self._task = task
        self._decode = decode
        self._expected = expected
        self._num_assigned = num_assigned
        self._is_member = is_member or rules.members.__contains__
        self._seen: dict[int, set[tuple[str, str]]] = {}
        self._quota = Quota(max_bytes=rules.max_bytes_per_round, spare_groups=rules.spare_groups)
        self._histories = Histories()
        self._own_lengths = OwnLengths()
        self.conduct = Conduct(quarantine_after=rules.quarantine_after, quarantine_rounds=rules.quarantine_rounds)

    def note_own(self, groups: Iterable[Group]) -> None:
        """Remember what this node sampled itself: its correct completions are what those of peers are compared with."""
        self._own_lengths.note(groups)

    def admit(self, *, peer: str, round: int, payload: bytes, current_round: int) -> Verdict:
        """Judge one parcel. Never raises on anything that a peer can send.

        Args:
            peer: who sent it, as the exchange established.
            round: the round it was published for, as the exchange says.
            payload: the encoded group.
            current_round: the round that this node is in; it must not go back.
        """
        self._forget(current_round)
        stranger = self._check_sender(peer)
        if stranger is not None:
            return Verdict(peer, reason=stranger.reason, detail=stranger.detail)
        judged = self._turn_away(peer, round, len(payload), current_round) or self._judge(peer, round, payload)
        if isinstance(judged, Finding):
            strikes = self.conduct.note(peer, judged.reason, current_round)
            until = self.conduct.quarantined_until(peer, current_round)
            return Verdict(peer, reason=judged.reason, detail=judged.detail, strikes=strikes, quarantined_until=until)
        return self._accepted(peer, judged, current_round)

    def to_dict(self) -> dict[str, Any]:
        """What the gate remembers of peers, as plain data for a checkpoint."""
        return {
            "seen": [list(entry) for entry in self.seen()],
            "used": [list(entry) for entry in self._quota.used()],
            "conduct": self.conduct.to_dict(),
            "histories": self._histories.to_dict(),
            "own_lengths": self._own_lengths.to_list(),
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Take over what `to_dict` returned before an interruption; parts that an older one lacks begin anew.

        Raises:
            TypeError, ValueError: data that it cannot have returned.
        """
        self.restore_seen(plain.get("seen", ()))
        self._quota.restore(plain.get("used", ()))
        self.conduct.restore(plain.get("conduct", {}))
        self._histories.restore(plain.get("histories", {}))
        self._own_lengths.restore(plain.get("own_lengths", ()))

    def seen(self) -> list[tuple[int, str, str]]:
        """(round, peer, prompt id) of the groups that would be duplicates now, sorted."""
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
        self._quota.forget_before(oldest)

    def _check_sender(self, peer: str) -> Finding | None:
        if peer == self._rules.name:
            return Finding("impersonation", "sent under this node's own name")
        if not self._is_member(peer):
            return Finding("unknown_peer", "not a member of this run")
        return None

    def _turn_away(self, peer: str, round: int, num_bytes: int, current_round: int) -> Finding | None:
        """What is found without a look at the payload."""
        rules = self._rules
        until = self.conduct.quarantined_until(peer, current_round)
        if until is not None:
            return Finding("quarantined", f"in quarantine, heard again in round {until}")
        max_lead = rules.max_lag if rules.max_lead is None else rules.max_lead
        return structure.check_window(round, current_round, rules.max_lag, max_lead) or self._quota.take(
            peer, round, num_bytes=num_bytes, assigned=self._num_assigned(peer, round)
        )

    def _judge(self, peer: str, round: int, payload: bytes) -> Scored | Finding:
        group = self._open(peer, round, payload)
        if isinstance(group, Finding):
            return group
        prompt = self._look_up(group)
        if isinstance(prompt, Finding):
            return prompt
        finding = self._check_rollouts(group)
        if finding is not None:
            return finding
        scored = score_group(group, prompt, self._task, self._decode)
        if isinstance(scored, Finding):
            return scored
        return self._own_lengths.check(scored.group) or scored

    def _accepted(self, peer: str, scored: Scored, current_round: int) -> Verdict:
        unscored = scored.num_unscored
        total = len(scored.group.rollouts) + unscored
        strikes = self.conduct.note_claims(
            peer, current_round, claims=total, disagreements=scored.reward_mismatches + unscored
        )
        return Verdict(
            peer,
            group=scored.group,
            detail=f"{unscored} of {total} rollouts could not be scored" if unscored else "",
            reward_mismatches=scored.reward_mismatches,
            length_ratio=self._own_lengths.ratio(scored.group),
            strikes=strikes,
            quarantined_until=self.conduct.quarantined_until(peer, current_round),
        )

    def _open(self, peer: str, round: int, payload: bytes) -> Group | Finding:
        try:
            group = decode_group(payload, self._rules.limits)
        except WireError as error:
            return Finding("wrong_version" if error.code == _WRONG_VERSION_CODE else "malformed", str(error))
        return structure.check_envelope(group, peer, round, self._rules.tokenizer) or group

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
        return (
            structure.check_rollouts(
                group.rollouts,
                vocab_size=rules.vocab_size,
                end_token_ids=rules.end_token_ids,
                max_new_tokens=rules.max_new_tokens,
            )
            or check_claims(group.rollouts, rules.vocab_size)
            or self._histories.check(group.peer, group.rollouts)
        )
