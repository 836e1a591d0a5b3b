from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.swarm.identity.envelope import (
    MAX_COUNT,
    Envelope,
    EnvelopeError,
    Kind,
    open_envelope,
    pack_payloads,
    seal,
    unpack_payloads,
)
from motet.swarm.identity.keys import NodeKey

KEY = NodeKey.from_secret(bytes(range(32)))
ROLL = Envelope(bytes(range(16)), Kind.ROLL, "small", 1_764_500_000_000, 7, 41, 1, 3, b"groups")
BEAT = replace(ROLL, kind=Kind.BEAT, round=-1, index=0, count=1, body=b"")

names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z")
naturals = st.integers(0, 2**63 - 1)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    kind = draw(st.sampled_from(Kind))
    count = draw(st.integers(1, MAX_COUNT))
    return Envelope(
        run_id=draw(st.binary(min_size=16, max_size=16)),
        kind=kind,
        peer=draw(names),
        boot=draw(naturals),
        seq=draw(naturals),
        round=draw(naturals) if kind is Kind.ROLL else -1,
        index=draw(st.integers(0, count - 1)),
        count=count,
        body=draw(st.binary(max_size=300)),
    )


def reason(message: bytes, max_bytes: int = 10_000) -> str:
    with pytest.raises(EnvelopeError) as caught:
        open_envelope(message, max_bytes=max_bytes)
    return caught.value.reason


def message_of(header: object, body: bytes = b"") -> bytes:
    """A signed message with any header."""
    encoded = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    unsigned = b"MOTS\x01\0" + len(encoded).to_bytes(2, "little") + encoded + body
    return unsigned + KEY.sign(b"motet envelope 1\0" + unsigned)


def fields(envelope: Envelope = ROLL, **changes: Any) -> list[Any]:
    values = {name: getattr(envelope, name) for name in Envelope.__slots__ if name != "body"}
    return list((values | changes).values())


@given(envelopes())
def test_what_is_sealed_opens_again(envelope: Envelope) -> None:
    message = seal(envelope, KEY)
    opened, signed = open_envelope(message, max_bytes=len(message))
    assert opened == envelope
    assert type(opened.kind) is Kind
    assert signed.verify(KEY.public)
    assert not signed.verify(NodeKey.from_secret(bytes(32)).public)
    assert seal(opened, KEY) == message


def test_the_layout_is_the_documented_one() -> None:
    message = seal(ROLL, KEY)
    assert message == message_of(fields(), b"groups")
    assert message[:8] == b"MOTS\x01\0" + (len(message) - 8 - 6 - 64).to_bytes(2, "little")


def test_the_envelope_is_small() -> None:
    """For a name of five letters and a long run; in a message of 2,000 tokens that is 0.06 bytes a token."""
    assert len(seal(replace(ROLL, seq=100_000, round=100_000), KEY)) - len(ROLL.body) == 119


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_any_bytes_open_or_are_refused(message: bytes) -> None:
    reasons = set()
    for whole in (message, b"MOTS\x01\0" + message, seal(ROLL, KEY)[:8] + message):
        try:
            envelope, signed = open_envelope(whole, max_bytes=300)
        except EnvelopeError as error:
            reasons.add(error.reason)
        else:
            assert not signed.verify(KEY.public)
            assert envelope.count >= 1
    assert reasons <= {"oversized", "malformed", "wrong_protocol"}


@settings(max_examples=300)
@given(data=st.data(), position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_changed_bit_is_noticed(data: st.DataObject, position: int, bit: int) -> None:
    message = bytearray(seal(data.draw(st.sampled_from([ROLL, BEAT])), KEY))
    message[position % len(message)] ^= 1 << bit
    try:
        _, signed = open_envelope(bytes(message), max_bytes=10_000)
    except EnvelopeError:
        return
    assert not signed.verify(KEY.public)


def test_every_cut_message_is_refused() -> None:
    message = seal(BEAT, KEY)
    assert {reason(message[:length]) for length in range(len(message))} == {"malformed"}
    message = seal(ROLL, KEY)  # one that has a body opens after a cut there, but nobody signed it
    for length in range(len(message) - 6, len(message)):
        assert not open_envelope(message[:length], max_bytes=1000)[1].verify(KEY.public)


def test_trailing_bytes_are_noticed() -> None:
    assert not open_envelope(seal(ROLL, KEY) + b"\0", max_bytes=1000)[1].verify(KEY.public)


def test_size_comes_before_everything() -> None:
    message = seal(ROLL, KEY)
    assert open_envelope(message, max_bytes=len(message))
    assert reason(message, max_bytes=len(message) - 1) == "oversized"
    assert reason(bytes(20), max_bytes=10) == "oversized"


def test_magic_and_version() -> None:
    message = seal(ROLL, KEY)
    assert reason(b"MOTG" + message[4:]) == "malformed"
    for version in (b"\0\0", b"\x02\0", b"\x01\x01", b"\xff\xff"):
        assert reason(message[:4] + version + message[6:]) == "wrong_protocol"


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": bytes(15)},
        {"run_id": bytes(17)},
        {"kind": 3},
        {"kind": "BEAT"},
        {"kind": True},
        {"peer": ""},
        {"peer": "a" * 33},
        {"peer": "../x"},
        {"peer": ".x"},
        {"peer": "x\n"},
        {"peer": "a/b"},
        {"peer": "n\u00e4"},
        {"peer": b"small"},
        {"boot": -1},
        {"boot": 2**63},
        {"boot": 1.0},
        {"seq": -1},
        {"seq": None},
        {"round": -1},
        {"round": -2},
        {"round": 2**64 - 1},
        {"index": -1},
        {"index": 3},
        {"count": 0},
        {"count": MAX_COUNT + 1},
        {"kind": Kind.BEAT},
        {"kind": Kind.CARD, "round": 0},
    ],
)
def test_fields_out_of_range_are_refused_and_never_sealed(changes: dict[str, Any]) -> None:
    assert reason(message_of(fields(**changes))) == "malformed"
    with pytest.raises((ValueError, TypeError)):
        seal(replace(ROLL, **changes), KEY)


def test_a_header_has_one_form() -> None:
    good = msgspec.msgpack.encode(fields())
    at = good.index(b"\xa5small") + 6
    long_forms = [
        b"\xdc\0\x08" + good[1:],  # the array's length in 2 bytes
        good[: at - 6] + b"\xd9\x05small" + good[at:],  # the name's in 1
        good[:-1] + b"\xcc\x03",  # the count in 1
        good[:-1] + b"\xcf" + bytes(7) + b"\x03",
        good + b"\0",
        good + msgspec.msgpack.encode(1),
    ]
    assert open_envelope(message_of(good), max_bytes=1000)
    assert {reason(message_of(header)) for header in long_forms} == {"malformed"}
    assert reason(message_of([*fields(), 0])) == "malformed"
    assert reason(message_of(fields()[:-1])) == "malformed"
    assert reason(message_of(dict(enumerate(fields())))) == "malformed"


def test_a_header_of_more_than_its_largest_is_not_parsed() -> None:
    assert reason(message_of([*fields(peer="a" * 32), "x" * 200])) == "malformed"
    assert reason(b"MOTS\x01\0\xff\xff" + bytes(200)) == "malformed"


def test_a_name_that_is_no_text() -> None:
    good = msgspec.msgpack.encode(fields())
    assert reason(message_of(good.replace(b"small", b"sm\xff\xfel"))) == "malformed"


# --- bodies of rounds


@given(st.lists(st.binary(max_size=50), max_size=30))
def test_payloads_read_back(payloads: list[bytes]) -> None:
    assert unpack_payloads(pack_payloads(payloads)) == payloads


@given(st.binary(max_size=60))
def test_any_body_is_unpacked_or_refused(body: bytes) -> None:
    try:
        payloads = unpack_payloads(body, max_payloads=4)
    except EnvelopeError:
        return
    assert pack_payloads(payloads) == body
    assert len(payloads) <= 4


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        b"\x91\xa1x",
        b"\x91\xc4\x02x",
        b"\x91\xc5\0\x01x",
        b"\xdc\0\x01\xc4\x01x",
        b"\x90\0",
        b"\xdd\xff\xff\xff\xff",
        b"\x91\xc6\xff\xff\xff\xff",
        b"\xdd\0\x01\0\x01" + b"\xc4\0" * (MAX_COUNT + 1),
    ],
)
def test_bodies_that_are_none(body: bytes) -> None:
    with pytest.raises(EnvelopeError) as caught:
        unpack_payloads(body)
    assert caught.value.reason == "malformed"


def test_more_payloads_than_are_wanted() -> None:
    body = pack_payloads([b""] * 3)
    assert unpack_payloads(body, max_payloads=3) == [b""] * 3
    with pytest.raises(EnvelopeError) as caught:
        unpack_payloads(body, max_payloads=2)
    assert caught.value.reason == "oversized"
