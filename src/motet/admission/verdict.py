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
    "unscorable",  # our task could not score any of the completions
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
    """

    peer: str
    group: Group | None = None
    reason: Reason | None = None
    detail: str = ""
    reward_mismatches: int = 0

    @property
    def accepted(self) -> bool:
        """True if the group may be learned from."""
        return self.group is not None
