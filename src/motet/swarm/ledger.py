"""What each peer sent and what became of it: the one table in which every group not learned from has its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

OTHERS = "(others)"
"""Account of those for whom there is no room any more."""
_MOST_ACCOUNTS = 4096
_LONGEST_NAME = 64
_WORTH_OVER_ROUNDS = 5


@dataclass(slots=True)
class PeerAccount:
    """One peer's counts since the run began.

    Attributes:
        received: groups that reached the gate; always `accepted + sum(rejected.values())`.
        accepted: groups let in by the gate.
        rejected: groups turned away, by reason.
        late: parcels discarded unread because they were too old.
        num_bytes: bytes of the received groups.
        refused: messages under this name that the exchange refused before they were opened, by reason. The name is what
            the message claims: whoever sent it need not be this peer.
        reward_mismatches: claimed rewards that differed from those scored here.
        kept: completions that were learned from.
        dropped: completions of accepted groups that were not learned from, by reason.
        worth: how much of its completions' advantage was learned from lately: 0 nothing, 1 as much as of own ones.
        strikes: all strikes that the gate counted, forgotten ones too.
        quarantines: how often it was quarantined.
        quarantined_until: first round in which it is heard again, at the latest verdict; None if it was heard then.
    """

    received: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    late: int = 0
    num_bytes: int = 0
    reward_mismatches: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    worth: float = 0.0
    strikes: float = 0.0
    quarantines: int = 0
    quarantined_until: int | None = None


class Ledger:
    """Accounts of all peers.

    >>> ledger = Ledger()
    >>> ledger.record_verdict(peer="bob", accepted=False, reason="bad_logp", num_bytes=120)
    >>> ledger.account("bob").rejected
    Counter({'bad_logp': 1})
    """

    def __init__(self) -> None:
        self._accounts: dict[str, PeerAccount] = {}

    def peers(self) -> list[str]:
        """Names of the peers with an account, sorted."""
        return sorted(self._accounts)

    def account(self, peer: str) -> PeerAccount:
        """The peer's account; it begins with the first call.

        Names may be anybody's text: what does not print is escaped, long ones are cut, and beyond 4096 accounts all
        others share one.
        """
        name = shown_name(peer)
        if name not in self._accounts and len(self._accounts) >= _MOST_ACCOUNTS:
            name = OTHERS
        return self._accounts.setdefault(name, PeerAccount())

    def record_verdict(
        self,
        *,
        peer: str,
        accepted: bool,
        num_bytes: int,
        reason: str | None = None,
        reward_mismatches: int = 0,
        strikes: float = 0.0,
        quarantined_until: int | None = None,
    ) -> None:
        """Count one group that the gate has judged.

        Args:
            peer: who sent it.
            accepted: whether it was let in.
            num_bytes: its size.
            reason: why it was not let in.
            reward_mismatches: claimed rewards that differ from those scored here.
            strikes: what it cost the peer.
            quarantined_until: first round in which the peer is heard again, if it is in quarantine.

        Raises:
            ValueError: accepted with a reason, or rejected without one.
        """
        if accepted == (reason is not None):
            raise ValueError("a verdict is either accepted, or rejected with a reason")
        account = self.account(peer)
        account.received += 1
        account.num_bytes += num_bytes
        account.reward_mismatches += reward_mismatches
        account.strikes += strikes
        account.quarantines += quarantined_until not in (None, account.quarantined_until)
        account.quarantined_until = quarantined_until
        if reason is None:
            account.accepted += 1
        else:
            account.rejected[reason] += 1

    def record_use(self, peer: str, *, kept: int, dropped: Mapping[str, int], worth: float | None = None) -> None:
        """Count the completions of a step: those learned from, and those dropped by reason.

        Args:
            peer: who sent them.
            kept: how many were learned from.
            dropped: how many were not, by reason.
            worth: what they were worth in this step, 0 to 1; None if it cannot be said.
        """
        account = self.account(peer)
        if worth is not None:
            account.worth += (worth - account.worth) / _WORTH_OVER_ROUNDS
        account.kept += kept
        account.dropped.update(dropped)

    def record_late(self, peer: str, num_parcels: int) -> None:
        """Count parcels that came too late to be read."""
        self.account(peer).late += num_parcels

    def record_refused(self, peer: str, refused: Mapping[str, int]) -> None:
        """Count messages that the exchange refused before they were opened, by reason."""
        self.account(peer).refused.update({shown_name(reason): count for reason, count in refused.items()})

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain data for a checkpoint or a report: peer -> counts."""
        plain: dict[str, dict[str, Any]] = {}
        for peer in self.peers():
            account = self._accounts[peer]
            plain[peer] = {
                field.name: dict(sorted(value.items())) if isinstance(value, Counter) else value
                for field in fields(account)
                for value in [getattr(account, field.name)]
            }
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Mapping[str, Any]]) -> Ledger:
        """The ledger that `to_dict` described.

        Raises:
            ValueError: counts that no ledger can hold.
        """
        ledger = cls()
        for peer, counts in plain.items():
            values: dict[str, Any] = {
                key: Counter(value) if isinstance(value, Mapping) else value for key, value in counts.items()
            }
            try:
                account = PeerAccount(**values)
            except TypeError as error:
                raise ValueError(f"account of {peer!r}: {error}") from error
            if account.received != account.accepted + account.rejected.total():
                raise ValueError(f"account of {peer!r}: received is not accepted plus rejected")
            ledger._accounts[peer] = account
        return ledger


def shown_name(text: str) -> str:
    r"""A name as it may stand in a table, a log or a file: one word of printable ASCII, of 64 characters at most.

    >>> shown_name("bob"), shown_name("\x1b[31mbob\n")
    ('bob', '\\x1b[31mbob\\n')
    """
    shown = "".join(map(_shown, text[: _LONGEST_NAME + 1]))
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}~"


def _shown(char: str) -> str:
    if "!" <= char <= "~":
        return char
    return "\\x20" if char == " " else char.encode("unicode_escape").decode("ascii")
