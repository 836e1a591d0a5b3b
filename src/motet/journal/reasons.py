"""The words for the codes by which messages and groups are counted: the one table for events, `motet watch`, reports.

Codes are for programs: they stand in the ledger, the journal and `peers/<node>.json`. People read these sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REFUSED: Final[Mapping[str, str]] = {
    "malformed": "no message of this protocol, or a damaged one",
    "oversized": "longer than the run's longest message",
    "flood": "came faster than they could be opened",
    "wrong_protocol": "of another protocol version: the versions of motet differ",
    "foreign_run": "of another run: run.name, run.seed or swarm.authority differ",
    "impersonation": "under another name than {whose}",
    "replay": "sent before: a repetition, or of a process that has ended",
    "bad_signature": "not signed by the key that they name",
    "clock": "the sender's clock is more than ten minutes off",
    "unknown_peer": "from nobody of this run: neither in the run file nor invited",
    "wrong_key": "signed by another key than {whose}",
    "invite_used_twice": "the invitation was used by another machine before",
    "expired": "the invitation has expired",
    "revoked": "the invitation was revoked",
    "other_run": "its settings differ in what must agree",
    "round": "for a round that this run does not have",
    "early": "before a heartbeat of their sender, and more than are kept until it comes",
    "duplicate": "here already",
    "inconsistent": "contradict the other messages of their round",
    "too_many_bytes": "more bytes than a peer may send for one round (admission.max_bytes_per_round)",
}
"""Why the exchange refuses a message, unopened; the codes are `motet.swarm.network.status.RefusedFor`."""

REJECTED: Final[Mapping[str, str]] = {
    "malformed": "no group of this format, or a damaged one",
    "wrong_version": "of another wire version: the versions of motet differ",
    "impersonation": "the group names another node than its sender",
    "unknown_peer": "from no member of this run",
    "quarantined": "its sender is in quarantine",
    "over_quota": "more than its sender was given for the round",
    "wrong_round": "for another round",
    "duplicate": "the same prompt a second time in its round",
    "unknown_prompt": "a prompt that the task does not have",
    "unassigned_prompt": "a prompt that was not given to its sender in this round",
    "wrong_tokenizer": "ids of another tokenizer",
    "bad_sampler": "a temperature or step that makes no sense",
    "bad_group_size": "too few or too many completions",
    "bad_length": "empty or too long completions",
    "bad_token": "ids outside the vocabulary, or an end token out of place",
    "bad_logp": "log-probs that are no log-probs",
    "bad_reward": "a reward that is no number",
    "forged_logp": "log-probs too low for tokens that were sampled",
    "unusual_logp": "log-probs far below what this peer used to claim",
    "unscorable": "none of the completions could be scored here",
    "padded": "correct answers many times longer than this node's own",
}
"""Why the gate rejects a group, opened; the codes are `motet.admission.Verdict.reason`."""


def refused_for(reason: str, name: str = "") -> str:
    """Why messages under a name were refused; a code of a newer version stands for itself.

    >>> refused_for("wrong_key", "bob"), refused_for("wrong_key"), refused_for("newer")
    ("signed by another key than bob's", "signed by another key than its owner's", 'newer')
    """
    return REFUSED.get(reason, reason).replace("{whose}", f"{name}'s" if name else "its owner's")


def rejected_for(reason: str) -> str:
    """Why groups were rejected; a code of a newer version stands for itself."""
    return REJECTED.get(reason, reason)
