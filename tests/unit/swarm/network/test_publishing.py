"""Own rounds: packed, numbered, kept, and queued in bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.swarm.identity.credentials import plain_credential
from motet.swarm.identity.envelope import open_envelope, unpack_payloads
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network.membership import Held
from motet.swarm.network.options import Identity, NetworkOptions
from motet.swarm.network.publishing import Publisher, Sealer

KEY = NodeKey.from_secret(bytes(range(32)))


def publisher(**options):
    identity = Identity("ann", KEY, plain_credential("ann", KEY.public), bytes(16), {"task": "sums"}, boot=1)
    return Publisher(Sealer(identity), NetworkOptions(num_rounds=9, max_message_bytes=4096, **options))


def opened(messages):
    return [open_envelope(message, max_bytes=4096)[0] for message in messages]


@given(st.lists(st.integers(0, 3800), max_size=30))
def test_any_groups_come_out_as_they_went_in(sizes):
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    own = publisher()
    own.publish(0, payloads)
    envelopes = opened(own.answer("roll/ann/0"))
    assert [envelope.index for envelope in envelopes] == list(range(len(envelopes)))
    assert {envelope.count for envelope in envelopes} == {len(envelopes)}
    assert [one for envelope in envelopes for one in unpack_payloads(envelope.body)] == payloads
    assert own.held() == (Held(0, len(envelopes), len(payloads)),)


def test_messages_are_numbered_and_signed():
    own = publisher()
    own.publish(0, [])
    own.publish(1, [b"x"])
    messages = [own.next(timeout_s=0)[1] for _ in range(2)]
    envelopes = opened(messages)
    assert [envelope.seq for envelope in envelopes] == [1, 2], "0 is the card's"
    assert all(open_envelope(message, max_bytes=4096)[1].verify(KEY.public) for message in messages)


def test_only_the_last_rounds_are_kept():
    own = publisher()
    for round in range(5):
        own.publish(round, [b"x"])
    assert [held.round for held in own.held()] == [2, 3, 4]
    assert own.answer("roll/ann/1") == ()
    assert own.round == 4


def test_answers_for_itself_only():
    own = publisher()
    own.publish(0, [b"x"])
    assert len(own.answer("roll/ann/0")) == len(own.answer("card/ann")) == 1
    for topic in ("roll/bob/0", "card/bob", "roll/ann/1", "roll/ann", "", "beat/ann"):
        assert own.answer(topic) == ()
    own.keep_beat(b"beat")
    assert own.answer("beat/ann") == (b"beat",)


def test_a_link_that_does_not_keep_up_costs_the_oldest_messages():
    own = publisher()
    for round in range(100):
        own.publish(round, [bytes(3700)])
    num_dropped = own.dropped()["queue_full"]
    assert num_dropped == 100 - 64 * 4096 // len(own.answer("roll/ann/99")[0])
    topic, _ = own.next(timeout_s=0)
    assert topic == f"roll/ann/{num_dropped}"


def test_flushing_waits_for_what_is_being_sent():
    own = publisher()
    assert own.flush(timeout_s=0)
    own.publish(0, [b"x"])
    assert not own.flush(timeout_s=0)
    own.next(timeout_s=0)
    assert not own.flush(timeout_s=0), "it was taken, but not sent"
    own.sent()
    assert own.flush(timeout_s=0)


def test_closing_throws_away_what_waits():
    own = publisher()
    own.publish(0, [b"x"])
    own.close()
    assert own.next(timeout_s=60) is None


def test_a_round_is_published_once():
    own = publisher()
    own.publish(0, [])
    with pytest.raises(RuntimeError, match="published before"):
        own.publish(0, [])
