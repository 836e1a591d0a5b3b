"""What the gate says of a parcel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from motet.records import Group

Reason = Literal[
    "malformed",  # bytes that are no group: wrong magic, cut, over a limit
    "wrong_version",  # another wire version
    "impersonation",  # the group names another peer than the exchange does
    "unknown_peer",  # a peer that is no member of this run
    "quarantined",  # a peer that is not heard for now (`motet.admission.conduct`); unread
    "over_quota",  # more bytes or groups of this peer for this round than it may send; unread
    "wrong_round",  # the payload's round differs from the parcel's, or lies outside the window
    "duplicate",  # this peer has sent this prompt in this round before
    "unknown_prompt",  # no such prompt in our task
    "unassigned_prompt",  # a prompt that was not given to this peer in this round
    "wrong_tokenizer",  # ids of another tokenizer
    "bad_sampler",  # temperature or step that make no sense
    "bad_group_size",  # too few or too many rollouts
    "bad_length",  # empty or too long completions
    "bad_token",  # ids outside the vocabulary, an end token in the middle, or a finish reason that does not fit
    "bad_logp",  # log-probs that are not finite or above 0
    "bad_reward",  # a claimed reward that is not finite
    "forged_logp",  # log-probs too low for tokens that were sampled (`motet.admission.plausibility`)
    "unusual_logp",  # log-probs far below what this peer used to claim
    "unscorable",  # our task could not score any of the completions
    "padded",  # correct completions many times longer than our own correct ones
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted with a group whose rewards are our own, or rejected with a reason.

    Attributes:
        peer: who sent it, as the exchange says.
        group: the group with rewards scored here, if accepted.
        reason: why not, if rejected.
        detail: one line for people, with the numbers that decided; contains no text of the peer's.
        reward_mismatches: claimed rewards that differ from ours.
        length_ratio: mean length of its correct completions by that of our own; 0 if there is nothing to compare.
        strikes: what this parcel added to the peer's strikes.
        quarantined_until: first round in which the peer is heard again, if it is in quarantine now.
    """

    peer: str
    group: Group | None = None
    reason: Reason | None = None
    detail: str = ""
    reward_mismatches: int = 0
    length_ratio: float = 0.0
    strikes: float = 0.0
    quarantined_until: int | None = None

    @property
    def accepted(self) -> bool:
        """True if the group may be learned from."""
        return self.group is not None
