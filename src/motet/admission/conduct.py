"""How peers behave over time: strikes, and quarantine with an end.

A rejected group costs its sender strikes, by what its reason says of the sender:

    hostile    1      no honest node sends such a thing: bytes of no group, the name of another, forged numbers
    broken     0.25   an honest node might, misconfigured or of another version; that wastes our time all the same
    innocent   0      the network's doing, or ours

Strikes fade: half of them are forgotten every `quarantine_rounds` rounds. At `quarantine_after` strikes the peer is
quarantined for `quarantine_rounds` rounds, each further time for twice as long; then it is heard again, without
strikes. Nothing of a quarantined peer's is parsed.

Only what a peer certainly sent counts: groups that reached the gate, whose sender the exchange has established.
Messages that the exchange refuses count for nobody, or anybody could have others quarantined by bad forgeries.

Claimed rewards are replaced by ours in any case, so a wrong claim does no harm by itself, and honest nodes disagree now
and then: a reward that ran out of time here, another release of a library. With n claims of a peer judged and m of
them unlike ours (or not to be scored here at all), disagreement is beyond honesty when

    m/n > q   and   n * KL(m/n || q) >= ln(1e6)       q = HONEST_DISAGREEMENT = 0.1

which by Chernoff's bound happens with a probability of 1e-6 at most to a peer whose claims differ with probability q:
six false claims of six, 15 of 32. Then the peer gets half a strike and the count begins anew. It is halved at 512
claims, so that a long honest past does not pay for a dishonest presence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from motet.admission.verdict import Reason

HOSTILE, BROKEN, INNOCENT, DISAGREEING = 1.0, 0.25, 0.0, 0.5
"""Strikes of a rejected group by kind, and of a count of claims beyond honest disagreement."""

WEIGHTS: Final[Mapping[Reason, float]] = {
    "malformed": HOSTILE,
    "impersonation": HOSTILE,
    "unassigned_prompt": HOSTILE,
    "bad_sampler": HOSTILE,
    "bad_group_size": HOSTILE,
    "bad_length": HOSTILE,
    "bad_token": HOSTILE,
    "bad_logp": HOSTILE,
    "bad_reward": HOSTILE,
    "forged_logp": HOSTILE,
    "wrong_version": BROKEN,
    "wrong_tokenizer": BROKEN,
    "unknown_prompt": BROKEN,
    "over_quota": BROKEN,
    "unusual_logp": BROKEN,
    "unscorable": BROKEN,  # it may be our reward that fails; but texts made to fail cost us their time limit
    "padded": BROKEN,
    "duplicate": INNOCENT,  # a message may come twice
    "wrong_round": INNOCENT,  # so may one of yesterday, and a fast peer is no enemy
    "quarantined": INNOCENT,  # it is being served
    "unknown_peer": INNOCENT,  # nobody to hold to account
}
"""Strikes of a rejected group, by reason."""

HONEST_DISAGREEMENT = 0.1
"""Share of claimed rewards that may differ from ours without anybody lying."""
_SURE_NATS = math.log(1e6) - 1e-9  # six of six have exactly as much
_MOST_CLAIMS = 512
_MOST_DOUBLINGS = 20


@dataclass(slots=True)
class _Record:
    strikes: float = 0.0
    counted_at: int = 0  # round up to which the strikes have faded
    quarantines: int = 0
    until: int = 0  # first round in which the peer is heard again
    claims: int = 0
    disagreements: int = 0


class Conduct:
    """Strikes and quarantines of all peers.

    Args:
        quarantine_after: strikes at which a peer is quarantined.
        quarantine_rounds: rounds of its first quarantine.

    >>> conduct = Conduct(quarantine_after=2, quarantine_rounds=10)
    >>> conduct.note("eve", "malformed", 5), conduct.note("eve", "bad_logp", 5)
    (1.0, 1.0)
    >>> [conduct.quarantined_until("eve", round) for round in (5, 15, 16)]
    [16, 16, None]
    """

    def __init__(self, *, quarantine_after: float = 3, quarantine_rounds: int = 20) -> None:
        self._quarantine_after = quarantine_after
        self._quarantine_rounds = quarantine_rounds
        self._records: dict[str, _Record] = {}

    def quarantined_until(self, peer: str, round: int) -> int | None:
        """First round in which the peer is heard again, if it is in quarantine in this one."""
        record = self._records.get(peer)
        return record.until if record is not None and round < record.until else None

    def quarantined(self, round: int) -> list[str]:
        """Peers in quarantine in this round, sorted."""
        return sorted(peer for peer, record in self._records.items() if round < record.until)

    def strikes(self, peer: str, round: int) -> float:
        """The peer's strikes, faded up to this round."""
        record = self._records.get(peer)
        return 0.0 if record is None else self._faded(record, round)

    def note(self, peer: str, reason: Reason, round: int) -> float:
        """Count a rejected group; returns the strikes that it cost."""
        return self._strike(peer, WEIGHTS[reason], round)

    def note_claims(self, peer: str, round: int, *, claims: int, disagreements: int) -> float:
        """Count claimed rewards and those of them that differ from ours; returns the strikes that they cost."""
        record = self._records.setdefault(peer, _Record(counted_at=round))
        record.claims += claims
        record.disagreements += disagreements
        if _is_beyond_honesty(record.disagreements, record.claims):
            record.claims = record.disagreements = 0
            return self._strike(peer, DISAGREEING, round)
        if record.claims > _MOST_CLAIMS:
            record.claims //= 2
            record.disagreements //= 2
        return 0.0

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain data for a checkpoint."""
        return {peer: asdict(record) for peer, record in sorted(self._records.items())}

    def restore(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over what `to_dict` returned. Raises TypeError or ValueError for data that it cannot have returned."""
        records = {str(peer): _Record(**fields) for peer, fields in plain.items()}
        for peer, record in records.items():
            numbers = asdict(record)
            if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers.values()):
                raise ValueError(f"conduct of {peer!r}: {numbers}")
        self._records = records

    def _strike(self, peer: str, weight: float, round: int) -> float:
        if weight == 0:
            return weight
        record = self._records.setdefault(peer, _Record(counted_at=round))
        record.strikes = self._faded(record, round) + weight
        record.counted_at = round
        if record.strikes >= self._quarantine_after:
            length = self._quarantine_rounds * 2 ** min(record.quarantines, _MOST_DOUBLINGS)
            record.until = round + 1 + length  # the rest of this round, and as many whole ones
            record.quarantines += 1
            record.strikes = 0.0
        return weight

    def _faded(self, record: _Record, round: int) -> float:
        half_lives = max(0, round - record.counted_at) / self._quarantine_rounds
        return record.strikes * math.pow(0.5, half_lives)


def _is_beyond_honesty(disagreements: int, claims: int) -> bool:
    """True if so many differ with a probability of at most 1e-6 where honest claims differ with HONEST_DISAGREEMENT."""
    if claims == 0 or disagreements / claims <= HONEST_DISAGREEMENT:
        return False
    share = disagreements / claims
    nats = share * math.log(share / HONEST_DISAGREEMENT)
    if share < 1:
        nats += (1 - share) * math.log((1 - share) / (1 - HONEST_DISAGREEMENT))
    return claims * nats >= _SURE_NATS
