"""Where a message is opened: from the cheapest check to the dearest, and the first that fails counts it and ends there.

Only what passes all of them reaches membership and shelf. Nothing that a message can hold raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from motet.swarm.identity.credentials import Refusal, RevocationList
from motet.swarm.identity.envelope import Envelope, EnvelopeError, Kind, Signed, open_envelope, unpack_payloads
from motet.swarm.identity.keys import short
from motet.swarm.network.card import card_digest, decode_card, tell_difference
from motet.swarm.network.inbox import Topic
from motet.swarm.network.knowledge import Knowledge
from motet.swarm.network.membership import Beat, Hearing, decode_beat
from motet.swarm.network.options import Clock, NetworkOptions
from motet.swarm.network.publishing import Sealer
from motet.swarm.network.status import STRANGERS, RefusedFor

_KIND_OF: Final = {"beat": Kind.BEAT, "roll": Kind.ROLL, "card": Kind.CARD}
_TOLD: Final[dict[Hearing, str]] = {"joined": "has joined", "back": "is back", "left": "has left"}
_OF_ANY_NETWORK: Final = ("duplicate", "replay", "early")
"""Counted, and not told: honest peers cause these."""
_MAX_EARLY: Final = 64
_MAX_EARLY_OF_A_NAME: Final = 8
_MAX_EARLY_IN_MESSAGES: Final = 8


@dataclass(slots=True)
class Fetched:
    """What came of a fetch.

    Attributes:
        max_groups: most groups to keep; None for all.
        num_messages: verified and new.
        num_groups: kept.
    """

    max_groups: int | None = None
    num_messages: int = 0
    num_groups: int = 0


class Reception:
    """Opens messages one by one. May be called from several threads.

    Args:
        sealer: of this node: who it is, and which heartbeats are its own.
        known: what messages add to.
        options: limits.
        clock: time.
        on_newcomer: called when a peer is new here: it should hear of this node soon.
        on_other_run: called with the name of a peer whose card is another one.
    """

    def __init__(
        self,
        sealer: Sealer,
        known: Knowledge,
        options: NetworkOptions,
        clock: Clock,
        *,
        on_newcomer: Callable[[], None],
        on_other_run: Callable[[str], None],
    ) -> None:
        self._sealer = sealer
        self._identity = sealer.identity
        self._known = known
        self._options = options
        self._clock = clock
        self._on_newcomer = on_newcomer
        self._on_other_run = on_other_run
        self._early: deque[tuple[Topic, bytes]] = deque()

    def take(self, topic: Topic, message: bytes, *, fetched: Fetched | None = None) -> None:
        """Open a message that has come under a topic; `fetched` if it was asked for."""
        try:
            envelope, signed = open_envelope(message, max_bytes=self._options.max_message_bytes)
        except EnvelopeError as error:
            return self._refuse(topic.peer, error.reason)
        reason = self._mismatch(topic, envelope)
        if reason is not None:
            return self._refuse(topic.peer, reason)
        match envelope.kind:
            case Kind.BEAT:
                self._take_beat(envelope, signed, len(message))
            case Kind.ROLL:
                self._take_roll(topic, envelope, signed, message, fetched)
            case Kind.CARD if fetched is not None:
                self._take_card(envelope, signed, fetched)
            case _:
                self._refuse(topic.peer, "malformed")
        return None

    def _mismatch(self, topic: Topic, envelope: Envelope) -> RefusedFor | None:
        if envelope.run_id != self._identity.run_id:
            return "foreign_run"
        if envelope.peer != topic.peer:
            return "impersonation"
        if envelope.kind != _KIND_OF[topic.kind] or (topic.kind == "roll" and envelope.round != topic.round):
            return "malformed"
        return None

    def _take_beat(self, envelope: Envelope, signed: Signed, num_bytes: int) -> None:
        name = envelope.peer
        beat = decode_beat(envelope.body)
        if beat is None:
            return self._refuse(name, "malformed")
        if beat.credential.name != name:
            return self._refuse(name, "impersonation")
        key = beat.credential.node_key
        if name == self._identity.name:
            return self._take_own(envelope, beat, signed)
        with self._known.changed:
            now_s = self._clock.monotonic_s()
            if self._known.membership.is_replay(name, key, envelope.boot, envelope.seq, now_s=now_s):
                return self._refuse(name, "replay")
        if not signed.verify(key):
            return self._refuse(name, "bad_signature")
        if not self._is_in_time(name, beat):
            return None
        return self._hear(envelope, beat, num_bytes)

    def _take_own(self, envelope: Envelope, beat: Beat, signed: Signed) -> None:
        """Somebody speaks under this node's name: with another key he is nobody, with its own he is its double."""
        identity, known = self._identity, self._known
        if beat.credential.node_key != identity.key.public:
            key = short(beat.credential.node_key)
            words = f"somebody else uses this node's name, with key {key}"
            return self._refuse(identity.name, "impersonation", words)
        if not signed.verify(identity.key.public):
            return self._refuse(identity.name, "bad_signature")
        is_over = beat.clock_ms < identity.boot  # of a process that ended before this one began
        if is_over or (envelope.boot == identity.boot and self._sealer.is_echo(envelope)):
            return self._refuse(identity.name, "replay")
        stops = envelope.boot <= identity.boot and not beat.leaving
        with known.changed:
            known.has_double = True
            known.is_double = known.is_double or stops
            known.changed.notify_all()
        if beat.leaving:
            what = "it has stopped, and this one goes on"
        elif stops:
            what = "it began earlier, so this one stops"
        else:
            what = "it began later, and this one goes on"
        known.log.tell("duplicate_identity", identity.name, f"another process uses this node's name and key; {what}")
        return None

    def _is_in_time(self, name: str, beat: Beat) -> bool:
        skew_s = beat.clock_ms / 1000 - self._clock.unix_s()
        if abs(skew_s) <= self._options.max_clock_skew_s:
            return True
        self._refuse(name, "clock")
        how = "ahead of" if skew_s > 0 else "behind"
        self._tell_of_member("clock", name, f"its clock is {abs(skew_s):.0f} s {how} this machine's; set both right")
        return False

    def _hear(self, envelope: Envelope, beat: Beat, num_bytes: int) -> None:
        name, known = envelope.peer, self._known
        with known.changed:
            admitted = known.roster.admit(beat.credential, now_s=self._clock.unix_s())
            if isinstance(admitted, Refusal):
                known.note_refused(beat.credential.node_key)
                return self._refuse(name, admitted.reason)
            before = known.membership.peer(name)
            hearing = known.membership.hear(
                name, admitted, envelope.boot, envelope.seq, beat, now_s=self._clock.monotonic_s()
            )
            if hearing == "replay":
                return self._refuse(name, "replay")
            peer = known.membership.peer(name)
            is_other_run = peer is not None and not peer.is_same_run
            known.bytes_in[name] += num_bytes
            known.changed.notify_all()
        if beat.revocations is not None:
            self.revoke(beat.revocations)
        if hearing != "known":
            self._meet(name, hearing, is_other_run=is_other_run)
        if before is None or before.boot != envelope.boot:
            for topic, message in self._early_of(name):
                self.take(topic, message)
        return None

    def _meet(self, name: str, hearing: Hearing, *, is_other_run: bool) -> None:
        if is_other_run:
            self._on_other_run(name)
        else:
            self._known.log.tell(hearing, name, _TOLD[hearing])
        if hearing != "left":
            self._on_newcomer()

    def revoke(self, revocations: RevocationList) -> bool:
        """Take in a list of revoked invitations, and forget peers whose key speaks for nobody any more.

        Returns:
            True if it is genuine and news.
        """
        known = self._known
        with known.changed:
            if not known.roster.revoke(revocations):
                return False
            gone = [peer for peer in known.membership.all() if known.roster.key_of(peer.name) != peer.key]
            for peer in gone:
                known.membership.forget(peer.name)
                known.shelf.drop(peer.name)
            known.changed.notify_all()
        for peer in gone:
            known.log.tell("left", peer.name, "its invitation was revoked", subject="revoked")
        return True

    def _take_roll(
        self, topic: Topic, envelope: Envelope, signed: Signed, message: bytes, fetched: Fetched | None
    ) -> None:
        name, known = envelope.peer, self._known
        if name == self._identity.name:
            return self._refuse(name, "impersonation")
        with known.changed:
            peer = known.membership.peer(name)
            if peer is None or envelope.boot > peer.boot:
                return self._keep_early(topic, message)
            reason = self._objection(envelope, len(message))
            key = peer.key
        if reason is not None:
            is_ours = reason == "duplicate" and fetched is not None
            return None if is_ours else self._refuse(name, reason)
        if not signed.verify(key):
            return self._refuse(name, "bad_signature")
        try:
            payloads = unpack_payloads(envelope.body)
        except EnvelopeError as error:
            return self._refuse(name, error.reason)
        if fetched is not None and fetched.max_groups is not None:
            payloads = payloads[: fetched.max_groups - fetched.num_groups]
        with known.changed:
            # A peer that comes back sends rounds that are over: no fault of its, and told by being late.
            reason = self._objection(envelope, len(message)) or known.shelf.put(
                name,
                boot=envelope.boot,
                round=envelope.round,
                index=envelope.index,
                count=envelope.count,
                payloads=payloads,
                num_bytes=len(message),
            )
            if reason is None:
                known.membership.has_sent(name, envelope.round)
                known.bytes_in[name] += len(message)
                if fetched is not None:
                    fetched.num_messages += 1
                    fetched.num_groups += len(payloads)
                known.changed.notify_all()
        return None if reason is None else self._refuse(name, reason)

    def _objection(self, envelope: Envelope, num_bytes: int) -> RefusedFor | None:
        """Why a message of a known peer's cannot be taken in, whoever signed it."""
        peer = self._known.membership.peer(envelope.peer)
        if peer is None or envelope.boot < peer.boot:
            return "replay"
        if not peer.is_same_run:
            return "other_run"
        if envelope.round >= self._options.num_rounds:
            return "round"
        return self._known.shelf.objection(
            envelope.peer,
            boot=envelope.boot,
            round=envelope.round,
            index=envelope.index,
            count=envelope.count,
            num_bytes=num_bytes,
        )

    def _keep_early(self, topic: Topic, message: bytes) -> None:
        """Keep a message until the heartbeat of its sender has come; the oldest make room."""
        of_name = [early for early in self._early if early[0].peer == topic.peer]
        if len(of_name) >= _MAX_EARLY_OF_A_NAME:
            self._early.remove(of_name[0])
            self._refuse_early(topic.peer)
        self._early.append((topic, message))
        most_bytes = _MAX_EARLY_IN_MESSAGES * self._options.max_message_bytes
        while len(self._early) > _MAX_EARLY or sum(len(early) for _, early in self._early) > most_bytes:
            self._refuse_early(self._early.popleft()[0].peer)

    def _refuse_early(self, name: str) -> None:
        is_stranger = self._known.refusals.account(name) == STRANGERS
        self._refuse(name, "unknown_peer" if is_stranger else "early")

    def _early_of(self, name: str) -> list[tuple[Topic, bytes]]:
        with self._known.changed:
            early = [kept for kept in self._early if kept[0].peer == name]
            self._early = deque(kept for kept in self._early if kept[0].peer != name)
        return early

    def _take_card(self, envelope: Envelope, signed: Signed, fetched: Fetched) -> None:
        name, known = envelope.peer, self._known
        with known.changed:
            peer = known.membership.peer(name)
        if peer is None or not signed.verify(peer.key):
            return self._refuse(name, "bad_signature")
        card = decode_card(envelope.body)
        if card is None or card_digest(envelope.body) != peer.digest:
            return self._refuse(name, "malformed")
        fetched.num_messages += 1
        difference = tell_difference(self._identity.card, card)
        with known.changed:
            known.differences[name] = difference
        known.log.tell("other_run", name, f"is of another run: {difference}", once=True)
        return None

    def _tell_of_member(self, kind: str, name: str, text: str) -> None:
        """Tell people once; of strangers, only if there are not too many of them."""
        known = self._known.refusals.account(name) == name
        self._known.log.tell(kind, name if known else "", text if known else f"{name}: {text}", once=True)

    def _refuse(self, name: str, reason: RefusedFor, words: str = "") -> None:
        known = self._known
        known.refusals.count(name, reason)
        if reason not in _OF_ANY_NETWORK:
            is_own = name == self._identity.name
            known.log.refused(name if is_own else known.refusals.account(name), reason, words)
