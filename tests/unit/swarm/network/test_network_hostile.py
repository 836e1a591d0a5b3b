"""Messages of every hostile kind: none raises, each is counted, memory stays bounded, and good traffic still passes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_hub import CARD, Stage

from motet.swarm.engines.memory_link import Faults
from motet.swarm.identity.credentials import plain_credential
from motet.swarm.identity.envelope import Envelope, Kind, pack_payloads, seal
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network.card import card_digest, encode_card
from motet.swarm.network.membership import Beat, Held, encode_beat
from motet.swarm.network.repair import Fetch

LONG_S = 30.0
COUNT = 1000
MAX_MESSAGE_BYTES = 20_000
STRANGER = NodeKey.generate()


class Attack:
    """Ann, honest; bob, honest; mallory, a member with a key of her own, whose messages we write."""

    def __init__(self) -> None:
        self.stage = Stage(
            ("ann", "bob", "mallory"),
            num_rounds=100,
            max_message_bytes=MAX_MESSAGE_BYTES,
            max_bytes_per_round=50_000,
            max_held_bytes=300_000,
        )
        self.random = random.Random(1)
        self.ann, self.bob, self.mallory = self.stage.meet("ann", "bob", "mallory")
        self.key = self.stage.party.keys["mallory"]
        self.boot = self.mallory._identity.boot
        self.seq = 1_000_000
        self.stage.nodes.pop("mallory")  # from now on she says what we say
        self.ann.num_refused()

    def envelope(self, kind: Kind = Kind.ROLL, body: bytes = pack_payloads([b"group"]), **changes: object) -> Envelope:
        self.seq += 1
        whole = Envelope(self.stage.party.run_id, kind, "mallory", self.boot, self.seq,
                         0 if kind == Kind.ROLL else -1, 0, 1, body)  # fmt: skip
        return replace(whole, **changes)  # type: ignore[arg-type]

    def roll(self, key: NodeKey | None = None, **changes: object) -> tuple[str, bytes]:
        envelope = self.envelope(**changes)  # type: ignore[arg-type]
        return f"roll/{envelope.peer}/{envelope.round}", seal(envelope, key or self.key)

    def beat(
        self,
        key: NodeKey | None = None,
        peer: str = "mallory",
        boot: int | None = None,
        signer: NodeKey | None = None,
        **changes: object,
    ) -> tuple[str, bytes]:
        key = key or self.key
        values = {
            "credential": plain_credential(peer, key.public),
            "digest": card_digest(encode_card(CARD)),
            "round": -1,
            "from_round": -1,
            "held": (),
            "leaving": False,
            "clock_ms": int((1.7e9 + self.stage.now_s) * 1000),
            "revocations": None,
            **changes,
        }
        envelope = self.envelope(Kind.BEAT, encode_beat(Beat(**values)), peer=peer, boot=boot or self.boot)
        return f"beat/{peer}", seal(envelope, signer or key)

    def damaged(self) -> tuple[str, bytes]:
        topic, message = self.roll()
        where = self.random.randrange(len(message))
        return topic, message[:where] + bytes([message[where] ^ (1 << self.random.randrange(8))]) + message[where + 1 :]

    def cut(self) -> tuple[str, bytes]:
        topic, message = self.roll()
        return topic, message[: self.random.randrange(len(message))]

    def send(self, topic: str, message: bytes) -> None:
        self.ann._arrivals.put(topic, message)
        self.ann.step()

    def refused(self) -> dict[str, dict[str, int]]:
        return self.ann.num_refused()

    def good_traffic_passes(self) -> None:
        self.stage.pass_s(2.0)
        self.bob.publish(99, [b"good"])
        self.stage.settle()
        assert "bob" in self.ann.peers()
        came = self.ann.collect(99, deadline_s=0.0)
        assert [parcel.payload for parcel in came if parcel.peer == "bob"] == [b"good"]
        refused = self.ann.num_refused()
        assert "bob" not in refused, refused


@pytest.fixture
def attack():
    attack = Attack()
    yield attack
    attack.stage.party.close()


Make = Callable[[Attack, int], tuple[str, bytes]]
KINDS: dict[str, tuple[Make, set[str]]] = {
    "noise": (lambda a, n: (f"roll/mallory/{n % 7}", a.random.randbytes(n % 300)), {"malformed"}),
    "noise as a heartbeat": (lambda a, n: ("beat/bob", a.random.randbytes(n % 300)), {"malformed"}),
    "no topic of ours": (
        lambda _, n: (["", "x", "roll/", "roll/a/-1", "beat/a/b", "roll/../1", "card/" + "n" * 99][n % 7], b"x"),
        {"malformed"},
    ),
    "cut": (lambda a, _: a.cut(), {"malformed", "bad_signature"}),
    "damaged": (
        lambda a, _: a.damaged(),
        {
            "malformed",
            "bad_signature",
            "wrong_protocol",
            "foreign_run",
            "impersonation",
            "replay",
            "round",
            "early",
            "duplicate",
            "inconsistent",
        },
    ),
    "oversized": (lambda _, n: ("roll/mallory/0", bytes(MAX_MESSAGE_BYTES + 1 + n)), {"oversized"}),
    "another protocol": (
        lambda a, n: ("beat/mallory", b"MOTS" + struct.pack("<H", 2 + n % 60000) + a.beat()[1][6:]),
        {"wrong_protocol"},
    ),
    "another run": (lambda a, _: a.roll(run_id=a.random.randbytes(16)), {"foreign_run"}),
    "under another's topic": (lambda a, _: ("roll/bob/0", a.roll()[1]), {"impersonation"}),
    "under another topic": (lambda a, _: ("beat/mallory", a.roll()[1]), {"malformed"}),
    "under another round": (lambda a, n: (f"roll/mallory/{1 + n}", a.roll()[1]), {"malformed"}),
    "under this node's name": (lambda a, _: a.roll(peer="ann"), {"impersonation"}),
    "heartbeats under this node's name": (lambda a, _: a.beat(peer="ann"), {"impersonation"}),
    "signed by a stranger": (lambda a, n: a.roll(key=STRANGER, index=n % 9, count=9), {"bad_signature"}),
    "another's name, own key": (lambda a, _: a.roll(peer="bob", boot=a.bob._identity.boot), {"bad_signature"}),
    "heartbeats with another's name": (lambda a, _: a.beat(peer="bob", boot=2**50), {"wrong_key"}),
    "another's credential, own signature": (
        lambda a, _: a.beat(key=a.stage.party.keys["bob"], peer="bob", boot=2**50, signer=a.key),
        {"bad_signature"},
    ),
    "this node's credential, own signature": (
        lambda a, _: a.beat(key=a.stage.party.keys["ann"], peer="ann", boot=1, signer=a.key, clock_ms=2**60),
        {"bad_signature"},
    ),
    "names of nobody": (lambda a, n: a.beat(peer=f"x{n}", key=STRANGER), {"unknown_peer"}),
    "rounds that do not exist": (lambda a, n: a.roll(round=100 + n * 10**12), {"round"}),
    "older boots": (lambda a, n: a.roll(boot=a.boot - 1 - n), {"replay"}),
    "heartbeats of older boots": (lambda a, n: a.beat(boot=a.boot - 1 - n), {"replay"}),
    "bodies that are no groups": (
        lambda a, n: a.roll(body=a.random.randbytes(5 + n % 50), index=n % 50, count=60),
        {"malformed", "oversized"},
    ),
    "heartbeats that are none": (
        lambda a, n: ("beat/mallory", seal(a.envelope(Kind.BEAT, a.random.randbytes(n % 200)), a.key)),
        {"malformed"},
    ),
    "clocks that are off": (lambda a, n: a.beat(clock_ms=n), {"clock"}),
    "cards that nobody asked for": (
        lambda a, _: ("card/mallory", seal(a.envelope(Kind.CARD, encode_card({"task": "x"})), a.key)),
        {"malformed"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_of_a_kind_are_counted_and_hurt_nobody(attack, kind):
    make, reasons = KINDS[kind]
    for number in range(COUNT):
        attack.send(*make(attack, number))
    early = len(attack.ann._reception._early)
    refused = attack.refused()
    counted = sum(sum(by_reason.values()) for by_reason in refused.values())
    accepted = attack.ann._known.shelf.verified_round("mallory") >= 0
    assert COUNT - early - accepted <= counted <= COUNT, refused
    assert {reason for by_reason in refused.values() for reason in by_reason} <= reasons
    assert early <= 8
    assert set(refused) <= {"mallory", "bob", "?"}
    if "bob" in refused:
        attack.ann.num_refused()
    assert not attack.ann.status().duplicate_identity
    attack.good_traffic_passes()


def test_of_an_endless_answer_no_more_is_opened_than_a_round_may_have(attack):
    attack.bob.publish(0, [b"b0"])
    attack.bob._link._answer = lambda _: [bytes(MAX_MESSAGE_BYTES)] * 10_000
    attack.stage.net.faults = Faults(drop=1.0)
    attack.stage.settle()
    attack.ann.num_refused()
    attack.ann._fetcher.ask(Fetch("bob", 0))
    assert attack.refused() == {}, "the question was lost"
    attack.stage.net.faults = Faults()
    attack.ann._fetcher.ask(Fetch("bob", 0))
    assert attack.refused() == {"bob": {"malformed": 2}}


def test_a_card_that_is_not_the_announced_one_is_not_shown(attack):
    attack.send(*attack.beat(digest=bytes(16)))
    attack.stage.net._links["mallory"]._answer = lambda _: [
        seal(attack.envelope(Kind.CARD, encode_card({"task": "another"})), attack.key)
    ]
    attack.stage.pass_s(1.0)
    assert attack.refused()["mallory"] == {"malformed": 1}
    assert [event for event in attack.ann.events() if event.kind == "other_run"] == []


def test_a_replay_of_everything_changes_nothing(attack):
    attack.bob.publish(0, [b"b0"])
    attack.stage.settle()
    recorded = [("roll/bob/0", one) for one in attack.bob._publisher.answer("roll/bob/0")]
    recorded += [("beat/bob", one) for one in attack.bob._publisher.answer("beat/bob")]
    for _ in range(COUNT // 2):
        for one in recorded:
            attack.send(*one)
    assert attack.refused() == {"bob": {"duplicate": COUNT // 2, "replay": COUNT // 2}}
    came = attack.ann.collect(0, deadline_s=0.0)
    assert [parcel.payload for parcel in came] == [b"b0"]
    attack.good_traffic_passes()


def test_messages_before_the_first_heartbeat_are_kept_in_bounds(attack):
    for number in range(COUNT):
        attack.send(*attack.roll(peer=f"n{number % 50}", key=STRANGER, index=0, count=1, body=bytes(15_000)))
    early = attack.ann._reception._early
    assert len(early) <= 64
    assert sum(len(message) for _, message in early) <= 8 * MAX_MESSAGE_BYTES
    refused = attack.refused()
    assert refused == {"?": {"unknown_peer": COUNT - len(early)}}
    attack.good_traffic_passes()


def test_more_bytes_than_a_round_may_have_are_refused(attack):
    for number in range(COUNT):
        attack.send(*attack.roll(body=pack_payloads([bytes(9_000)]), index=number, count=COUNT))
    assert attack.refused() == {"mallory": {"too_many_bytes": COUNT - 5}}
    attack.good_traffic_passes()


def test_all_that_one_peer_can_make_us_hold_is_bounded_and_costs_itself(attack):
    attack.bob.publish(0, [b"b0"])
    attack.stage.settle()
    for number in range(90):
        for index in range(5):
            attack.send(*attack.roll(body=pack_payloads([bytes(9_000)]), round=number, index=index, count=5))
    shelf = attack.ann._known.shelf
    assert shelf._num_bytes <= 300_000
    assert [parcel.payload for parcel in attack.ann.collect(0, deadline_s=0.0)] == [b"b0"]
    attack.ann.collect(89, deadline_s=0.0)
    late = attack.ann.num_late()
    assert late["mallory"] > 400
    assert "bob" not in late
    attack.good_traffic_passes()


def test_counts_of_a_round_that_contradict_one_another_are_refused(attack):
    attack.send(*attack.roll(index=0, count=5))
    for number in range(COUNT):
        attack.send(*attack.roll(index=1, count=6 + number))
    assert attack.refused() == {"mallory": {"inconsistent": COUNT}}


def test_heartbeats_of_a_member_that_claim_anything_break_nothing(attack):
    for number in range(COUNT):
        held = tuple(Held(attack.random.randrange(2**63), 1 + number % 65_536, attack.random.randrange(2**63))
                     for _ in range(number % 256))  # fmt: skip
        attack.send(*attack.beat(round=attack.random.randrange(-1, 2**63), from_round=attack.random.randrange(2**63),
                                 held=held, leaving=False, digest=attack.random.randbytes(16) if number % 3 == 0
                                 else card_digest(encode_card(CARD))))  # fmt: skip
    assert attack.ann.swarm_round() is None
    assert len(attack.ann._known.wants._tries) < 10_000
    assert len(attack.ann._known.membership.all()) == 2
    assert len(attack.ann.events()) <= 256
    attack.good_traffic_passes()


def test_a_member_that_leaves_and_speaks_on_is_not_heard(attack):
    attack.send(*attack.beat(leaving=True))
    for _ in range(10):
        attack.send(*attack.beat())
    assert attack.refused() == {"mallory": {"replay": 10}}
    assert attack.ann.peers() == ["bob"]


def test_a_message_that_comes_before_its_heartbeat_is_opened_after_it(attack):
    boot = attack.boot + 5
    attack.send(*attack.roll(boot=boot, body=pack_payloads([b"early"])))
    assert attack.ann._known.shelf.verified_round("mallory") == -1
    attack.send(*attack.beat(boot=boot))
    assert [parcel.payload for parcel in attack.ann.collect(0, deadline_s=0.0)] == [b"early"]


@settings(max_examples=300)
@given(topic=st.sampled_from(["beat/bob", "roll/bob/0", "card/bob", "beat/ann"]) | st.text(max_size=20), data=st.data())
def test_any_bytes_under_any_topic_are_refused_and_counted(topic, data):
    attack = _shared()
    kind = data.draw(st.sampled_from(Kind))
    body = data.draw(st.binary(max_size=200))
    key = data.draw(st.sampled_from([attack.key, STRANGER]))
    changes = {
        "peer": data.draw(st.sampled_from(["ann", "bob", "mallory", "x"])),
        "boot": data.draw(st.sampled_from([0, attack.boot, 2**60])),
        "count": 2,
    }
    sealed = seal(attack.envelope(kind, body, **changes), key)
    message = data.draw(st.sampled_from([sealed, body, sealed[:-1], sealed + b"\x00"]))
    before = attack.ann._known.refusals.total(), len(attack.ann._reception._early)
    attack.send(topic, message)
    after = attack.ann._known.refusals.total(), len(attack.ann._reception._early)
    assert before != after, "neither kept for later nor counted"
    assert attack.ann._known.shelf.verified_round("mallory") == -1


_ATTACKS: list[Attack] = []


def _shared() -> Attack:
    """One for all examples: what an earlier one has left behind must not matter."""
    if not _ATTACKS:
        _ATTACKS.append(Attack())
    return _ATTACKS[0]
