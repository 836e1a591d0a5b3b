"""Who is there, by heartbeats alone: no agreement is needed. A peer is live while its heartbeats are fresh.

Freshness goes by this machine's own clock. Heartbeats of an older boot, or of a number already seen, are replays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec

from motet.swarm.identity.credentials import Credential, RevocationList

DIGEST_BYTES: Final = 16
MAX_HELD: Final = 256
UNDECIDED: Final = -1
MAX_REFUSED: Final = 16
MARK_BYTES: Final = 8
_PEERS_PER_SECOND: Final = 64
_MAX_EARLIER: Final = 4
_LARGEST: Final = 2**63 - 1
Mark = Annotated[bytes, msgspec.Meta(min_length=MARK_BYTES, max_length=MARK_BYTES)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Round = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]


class Held(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """A round that a node still has, and how much of it there is: a claim."""

    round: _Natural
    num_messages: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    num_groups: _Natural


class Beat(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """The body of a heartbeat.

    Attributes:
        credential: who speaks.
        digest: of the card, in which stands what must agree between nodes of a run.
        round: the latest that is published; -1 before.
        from_round: the first that the node takes part in; -1 while that is undecided.
        held: rounds that can be fetched.
        leaving: this is the last heartbeat.
        clock_ms: unix time.
        revocations: the newest list that is known, in some heartbeats.
        refuses: first bytes of keys whose credentials are not believed here, so that their holders can be told.
    """

    credential: Credential
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    round: _Round
    from_round: _Round
    held: Annotated[tuple[Held, ...], msgspec.Meta(max_length=MAX_HELD)]
    leaving: bool
    clock_ms: _Natural
    revocations: RevocationList | None
    refuses: Annotated[tuple[Mark, ...], msgspec.Meta(max_length=MAX_REFUSED)] = ()


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Beat)


def encode_beat(beat: Beat) -> bytes:
    """The one encoding of a heartbeat's body."""
    return _ENCODER.encode(beat)


def decode_beat(body: bytes) -> Beat | None:
    """The heartbeat, or None for bytes that are none."""
    try:
        beat = _DECODER.decode(body)
    except ValueError:
        return None
    return beat if _ENCODER.encode(beat) == body else None


@dataclass(slots=True)
class Peer:
    """What is known of a peer; all of it said by itself under its key.

    Attributes:
        name: of the node.
        key: public.
        boot: of its process.
        digest: of its card.
        heard_s: when its last heartbeat came, by the clock of this machine.
        seq: number of that heartbeat.
        round: the latest that it has published.
        announced: the same, as its last heartbeat said; `held` is of that moment.
        round_at_first: the same, as its first heartbeat said: what came before that was sent before we listened.
        from_round: the first that it takes part in; `UNDECIDED` before it says so.
        held: rounds that it still has.
        refuses: marks of keys that it does not believe.
        is_founder: it was here before this node published anything.
        is_same_run: its card is ours.
        has_left: it said so.
        is_silent: its silence has been told.
        earlier: number of the last heartbeat of each of its last processes, by boot.
    """

    name: str
    key: bytes
    boot: int
    digest: bytes
    heard_s: float
    seq: int
    round: int
    announced: int
    round_at_first: int
    from_round: int
    is_founder: bool
    is_same_run: bool
    held: Mapping[int, Held] = field(default_factory=dict)
    refuses: tuple[bytes, ...] = ()
    has_left: bool = False
    is_silent: bool = False
    earlier: Mapping[int, int] = field(default_factory=dict)

    @property
    def position(self) -> int:
        """How far it is: the latest round that it has published, or the one before the first that it takes part in.

        -1 for one that is in its first round; `UNDECIDED` too for one that is still joining, which `is_joining` tells.
        """
        return max(self.round, self.from_round - 1, -1)

    @property
    def is_joining(self) -> bool:
        """True if it has not said yet from which round on it takes part: it does not know where the swarm is."""
        return self.from_round == UNDECIDED and self.round < 0

    def takes_part_in(self, round: int) -> bool:
        """True if its groups of this round are to be waited for."""
        if self.from_round != UNDECIDED:
            return self.from_round <= round
        return self.is_founder or self.round >= 0


Hearing = Literal["joined", "back", "known", "left", "replay"]


class Membership:
    """All peers that have been heard. Callers hold a lock of their own.

    Args:
        digest: of this node's card.
        heartbeat_s: between two heartbeats in a swarm of up to 64.
        fresh_s: after how long without one a peer is silent, likewise.
    """

    def __init__(self, *, digest: bytes, heartbeat_s: float, fresh_s: float) -> None:
        self._digest = digest
        self._heartbeat_s = heartbeat_s
        self._fresh_s = fresh_s
        self._peers: dict[str, Peer] = {}
        self.has_published = False

    def peer(self, name: str) -> Peer | None:
        """What is known of a peer."""
        return self._peers.get(name)

    def all(self) -> list[Peer]:
        """Every peer that was ever heard, by name."""
        return [self._peers[name] for name in sorted(self._peers)]

    def is_replay(self, name: str, key: bytes, boot: int, seq: int, *, now_s: float) -> bool:
        """True if a heartbeat of this number, or of a later boot, has come before.

        Of two processes with one key the later one stops: once it has, the earlier one is heard again.
        """
        peer = self._peers.get(name)
        if peer is None or peer.key != key:
            return False
        if boot > peer.boot:
            return seq <= peer.earlier.get(boot, -1)
        if boot == peer.boot:
            return seq <= peer.seq
        return self._has_spoken_lately(peer, now_s) or seq <= peer.earlier.get(boot, _LARGEST)

    def hear(self, name: str, key: bytes, boot: int, seq: int, beat: Beat, *, now_s: float) -> Hearing:
        """Take in a heartbeat whose signature and credential have been checked.

        Returns:
            "joined": a peer not known before; "back": it was silent, or had left, or its process is a new one; "left":
            it leaves; "replay": it is not news, and nothing was taken in. That a process leaves which was never heard
            is no news either, and "known": one that finds itself to be a double says no more than that.
        """
        if self.is_replay(name, key, boot, seq, now_s=now_s):
            return "replay"
        known = self._peers.get(name)
        if beat.leaving and (known is None or (known.key, known.boot) != (key, boot)):
            return "known"
        if known is not None and (known.key, known.boot, known.digest) == (key, boot, beat.digest):
            if known.has_left:
                return "replay"
            hearing: Hearing = "back" if not self.is_fresh(known, now_s) else "known"
            peer = known
        else:
            hearing = "joined" if known is None or known.key != key else "back"
            peer = self._peers[name] = Peer(
                name=name,
                key=key,
                boot=boot,
                digest=beat.digest,
                heard_s=now_s,
                seq=seq,
                round=-1,
                announced=-1,
                round_at_first=beat.round,
                from_round=beat.from_round,
                is_founder=not self.has_published,
                is_same_run=beat.digest == self._digest,
                earlier=_with_earlier(known, key, boot),
            )
        peer.heard_s, peer.seq, peer.is_silent = now_s, seq, False
        peer.round, peer.announced = max(peer.round, beat.round), beat.round
        peer.from_round = beat.from_round
        peer.held = {held.round: held for held in beat.held}
        peer.refuses = beat.refuses
        peer.has_left = beat.leaving
        return "left" if beat.leaving else hearing

    def has_sent(self, name: str, round: int) -> None:
        """A verified message of this round has come from a peer."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.round = max(peer.round, round)

    def forget(self, name: str) -> None:
        """The name is nobody's any more: its key was revoked."""
        self._peers.pop(name, None)

    def interval_s(self, now_s: float) -> float:
        """Time between two heartbeats: such that no more than 64 arrive in `heartbeat_s`."""
        num_live = sum(self._has_spoken_lately(peer, now_s) for peer in self._peers.values())
        return self._heartbeat_s * max(1.0, num_live / _PEERS_PER_SECOND)

    def fresh_s(self) -> float:
        """After how long without a heartbeat a peer is silent; grows with the number of peers, as the interval does."""
        return self._fresh_s * max(1.0, len(self._peers) / _PEERS_PER_SECOND)

    def is_fresh(self, peer: Peer, now_s: float) -> bool:
        """True if a heartbeat came lately."""
        return now_s - peer.heard_s < self.fresh_s()

    def is_live(self, peer: Peer, now_s: float) -> bool:
        """True if it is of this run, here, and fresh."""
        return peer.is_same_run and self._has_spoken_lately(peer, now_s)

    def live(self, now_s: float) -> list[Peer]:
        """Live peers, by name."""
        return [peer for peer in self.all() if self.is_live(peer, now_s)]

    def fall_silent(self, now_s: float) -> list[Peer]:
        """Peers whose silence is news."""
        silent = [
            peer
            for peer in self.all()
            if not (peer.is_silent or peer.has_left) and peer.is_same_run and not self.is_fresh(peer, now_s)
        ]
        for peer in silent:
            peer.is_silent = True
        return silent

    def forgive(self, gap_s: float) -> None:
        """This process stood still for a while: nobody else is silent because of that."""
        for peer in self._peers.values():
            peer.heard_s += gap_s

    def next_silence_s(self, now_s: float) -> float:
        """Seconds until the next live peer would fall silent; infinite if there is none."""
        waits = [peer.heard_s + self.fresh_s() - now_s for peer in self.live(now_s)]
        return max(min(waits, default=float("inf")), 0.0)

    def swarm_round(self, now_s: float, *, num_rounds: int, verified_round: Callable[[str], int]) -> int | None:
        """The latest round that enough live peers have reached.

        Enough are more than half of those that know where they are, and no fewer than half of all: a peer that is
        still joining has no say, but whoever wants to lead it must not be outnumbered by such.

        Args:
            now_s: time.
            num_rounds: of the run; who claims more is not asked.
            verified_round: the latest round of which a verified message of a peer is here; -1 for none. It is asked
                where one peer alone would decide.

        Returns:
            None if nobody has published, or too few are there to say.
        """
        live = [peer for peer in self.live(now_s) if peer.position < num_rounds]
        settled = sorted((peer for peer in live if not peer.is_joining), key=lambda peer: peer.position, reverse=True)
        num_enough = max(len(settled) // 2 + 1, (len(live) + 1) // 2)
        if len(settled) < num_enough:
            return None
        last = settled[num_enough - 1]
        round = last.position if num_enough > 1 else min(last.position, verified_round(last.name))
        return round if round >= 0 else None

    def _has_spoken_lately(self, peer: Peer, now_s: float) -> bool:
        return not peer.has_left and self.is_fresh(peer, now_s)


def _with_earlier(known: Peer | None, key: bytes, boot: int) -> dict[int, int]:
    """Of a name's processes before this one, the last heartbeats; of the newest few."""
    if known is None or known.key != key:
        return {}
    earlier = {**known.earlier, known.boot: max(known.seq, known.earlier.get(known.boot, 0))}
    earlier.pop(boot, None)
    return dict(list(earlier.items())[-_MAX_EARLIER:])
