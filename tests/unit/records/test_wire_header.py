from __future__ import annotations

import dataclasses
import math
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.errors import WireError
from motet.records import Group, Rollout, SamplerInfo, WireLimits, decode_group, encode_group

SMALL = Group(
    peer="kim",
    round=3,
    prompt_id="train/17",
    sampler=SamplerInfo(model="tiny:large", policy_step=3, temperature=1.0, tokenizer="9c1f"),
    rollouts=(
        Rollout(np.array([5, 11, 13], np.uint32), np.array([-0.125, -0.5, 0.0], np.float32), "stop", 1.0),
        Rollout(np.array([5, 300], np.uint32), np.array([-0.125, -2.0], np.float32), "length", 0.0),
    ),
)
PAYLOAD = encode_group(SMALL)
DEFAULTS = WireLimits()


def header_of(payload: bytes) -> bytes:
    return payload[10 : 10 + struct.unpack_from("<I", payload, 6)[0]]


def reframe(header: bytes) -> bytes:
    """The small group's payload with another header, its size put right."""
    return PAYLOAD[:6] + struct.pack("<I", len(header)) + header + PAYLOAD[10 + len(HEADER) :]


def code_of(payload: bytes, limits: WireLimits = DEFAULTS) -> str:
    with pytest.raises(WireError) as caught:
        decode_group(payload, limits)
    return caught.value.code


HEADER = header_of(PAYLOAD)
VALUES = msgspec.msgpack.decode(HEADER)


@pytest.mark.parametrize(
    "header",
    [
        HEADER + b"\0",
        HEADER.replace(b"\xa3kim", b"\xd9\x03kim"),  # the same string, longer form
        HEADER.replace(b"\xa3kim\x03", b"\xa3kim\xcc\x03"),  # the same number, longer form
        HEADER.replace(b"\x01\xa49c1f", b"\xca\x3f\x80\0\0\xa49c1f"),  # temperature 1 as a float32
        HEADER.replace(b"\x01\xa49c1f", b"\xcb\x3f\xf0\0\0\0\0\0\0\xa49c1f"),  # and as a float64
        HEADER.replace(b"\x01\xa49c1f", b"\xc3\xa49c1f"),  # and as true
        msgspec.msgpack.encode([*VALUES[:-1], [1.0, 0.5]]),  # a whole reward as a float
        msgspec.msgpack.encode([*VALUES[:-1], [1, 0]]),  # zeros and ones that are not bits of a number
        msgspec.msgpack.encode([*VALUES[:-1], 4]),  # a bit without a rollout
        msgspec.msgpack.encode([*VALUES[:-1], -1]),
        msgspec.msgpack.encode([*VALUES[:-1], True]),
        msgspec.msgpack.encode([*VALUES[:-1], [2**53 + 1, 0]]),  # one that no float holds
        msgspec.msgpack.encode([*VALUES[:-1], [1, False]]),
        msgspec.msgpack.encode([*VALUES[:6], 2**60, *VALUES[7:], 0]),  # a field too many
        msgspec.msgpack.encode([*VALUES[:6], -31, *VALUES[7:]]),  # no number of 16 hex digits
        msgspec.msgpack.encode([*VALUES[:6], "9c1f0b2d3e4a5566", *VALUES[7:]]),  # 16 hex digits as text
        msgspec.msgpack.encode([*VALUES[:6], b"9c1f", *VALUES[7:]]),
        HEADER.replace(b"\xa3kim", b"\xc4\x03kim"),  # bytes for a string
        HEADER.replace(b"\xa3kim", b"\xa3\xed\xa0\x80"),  # a lone surrogate
        HEADER.replace(b"\xa3kim", b"\xa2\xc0\x80"),  # an overlong NUL
        HEADER.replace(b"\xa3kim", b"\xa4\xf4\x90\x80\x80"),  # beyond Unicode
        HEADER.replace(b"\xa3kim", b"\xdb\xff\xff\xff\xff"),  # a string of 4 GB
        b"",
        b"\x90",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 1000,  # deeply nested
        b"\x9a" + HEADER[1:] + b"\x91" * 1000,
        HEADER.replace(b"\x0d\x92", b"\x0d\xdd\xff\xff\xff\xff"),
        msgspec.msgpack.encode([*VALUES[:9], [], []]),  # no rollout
        msgspec.msgpack.encode([*VALUES[:9], [3, 2], [1]]),  # one without a reward
        msgspec.msgpack.encode([*VALUES[:9], [5], [1, 0]]),
        msgspec.msgpack.encode([*VALUES[:9], [0, 5], 1]),  # an empty rollout
        msgspec.msgpack.encode([*VALUES[:9], [3, -(2**32)], 1]),
        msgspec.msgpack.encode([*VALUES[:9], [3.0, 2], 1]),
        msgspec.msgpack.encode([*VALUES[:9], [True, 4], 1]),
        msgspec.msgpack.encode([*VALUES[:9], [3, 2], [None, 0]]),
        msgspec.msgpack.encode([*VALUES[:8], True, *VALUES[9:]]),
        msgspec.msgpack.encode([*VALUES[:8], 17, *VALUES[9:]]),
        msgspec.msgpack.encode([*VALUES[:8], 0, *VALUES[9:]]),  # exact, but too short for it
        msgspec.msgpack.encode([*VALUES[:7], 0, *VALUES[8:]]),
        msgspec.msgpack.encode([*VALUES[:7], 8, *VALUES[8:]]),
        msgspec.msgpack.encode([*VALUES[:7], 33, *VALUES[8:]]),
        msgspec.msgpack.encode({"peer": "kim"}),
    ],
)
def test_a_header_that_is_not_canonical_or_not_a_header(header: bytes) -> None:
    assert header != HEADER
    assert code_of(reframe(header)) == "E-WIRE-01"


def test_the_largest_header_within_the_other_limits_is_accepted() -> None:
    limits = WireLimits(max_group_size=4, max_completion_tokens=70_000, max_name_bytes=300)
    name = "n" * 300
    rollout = Rollout(np.zeros(70_000, np.uint32), np.zeros(70_000, np.float32), "stop", 0.5)
    group = Group(name, 2**64 - 1, name, SamplerInfo(name, 2**64 - 1, 1.0, name), (rollout,) * 4)
    payload = encode_group(group)
    assert len(header_of(payload)) <= limits.max_header_bytes
    decoded = decode_group(payload, limits)
    assert (decoded.peer, decoded.round, decoded.prompt_id, decoded.sampler) == (name, 2**64 - 1, name, group.sampler)
    assert [len(rollout.token_ids) for rollout in decoded.rollouts] == [70_000] * 4


@pytest.mark.parametrize("size", [64_000, 2**32 - 1])
def test_a_header_that_claims_to_be_huge(size: int) -> None:
    assert code_of(PAYLOAD[:6] + struct.pack("<I", size) + PAYLOAD[10:]) == "E-WIRE-03"


def test_lengths_of_a_few_gigabytes_allocate_nothing() -> None:
    header = msgspec.msgpack.encode([*VALUES[:9], [2**32 - 1, 1 - 2**32] * 32, 2**64 - 1])
    assert code_of(reframe(header)) == "E-WIRE-03"
    assert code_of(reframe(header), WireLimits(max_completion_tokens=2**32)) == "E-WIRE-01"


@pytest.mark.parametrize(
    "tokenizer",
    [
        *("0" * 16, "f" * 16, "9c1f0b2d3e4a5566", "9C1F0B2D3E4A5566", "0" * 15, "", "\u0661" * 16),
        *("-00000000000001f", "+00000000000000f", " 00000000000000f", "0x0000000000001f", "1_000000000000ff"),
        *("-8000000000000001", "10000000000000000"),
    ],
)
def test_every_fingerprint_comes_back_as_it_was(tokenizer: str) -> None:
    group = dataclasses.replace(SMALL, sampler=dataclasses.replace(SMALL.sampler, tokenizer=tokenizer))
    assert decode_group(encode_group(group)).sampler == group.sampler


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 130])
@pytest.mark.parametrize("last", [0.0, 1.0, -0.0, 2.0, 0.5])
def test_rewards_of_groups_of_any_size_come_back(count: int, last: float) -> None:
    rewards = [float(number % 3 == 0) for number in range(count - 1)] + [last]
    rollouts = tuple(dataclasses.replace(SMALL.rollouts[0], reward=reward) for reward in rewards)
    decoded = decode_group(encode_group(dataclasses.replace(SMALL, rollouts=rollouts)), WireLimits(max_group_size=200))
    assert list(map(repr, (rollout.reward for rollout in decoded.rollouts))) == list(map(repr, rewards))


@pytest.mark.parametrize(
    "reward", [0.0, -0.0, 1.0, -3.0, 0.5, 2.0**53, 2.0**53 + 2, 1e300, math.inf, -math.inf, math.nan]
)
def test_every_reward_comes_back_as_it_was(reward: float) -> None:
    group = dataclasses.replace(SMALL, rollouts=(dataclasses.replace(SMALL.rollouts[0], reward=reward),))
    decoded = decode_group(encode_group(group)).rollouts[0].reward
    assert type(decoded) is float
    assert struct.pack("<d", decoded) == struct.pack("<d", reward)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | names | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


def attempt(payload: bytes) -> Group | WireError:
    try:
        return decode_group(payload)
    except WireError as error:
        return error


def decode_or_reject(payload: bytes) -> None:
    outcome = attempt(payload)
    if isinstance(outcome, WireError):
        assert outcome.code in ("E-WIRE-01", "E-WIRE-03")
    else:
        assert payload in (encode_group(outcome), encode_group(outcome, log_probs="exact"))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.data())
def test_headers_of_other_types(data: st.DataObject) -> None:
    values = list(VALUES)
    for _ in range(data.draw(st.integers(1, 3))):
        values[data.draw(st.integers(0, len(values) - 1))] = data.draw(json_like)
    decode_or_reject(reframe(msgspec.msgpack.encode(values)))
    decode_or_reject(reframe(msgspec.msgpack.encode(data.draw(json_like))))
