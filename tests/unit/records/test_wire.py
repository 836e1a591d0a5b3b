from __future__ import annotations

import dataclasses
import math
import struct
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from motet.errors import WireError
from motet.records import WIRE_VERSION, Group, Rollout, SamplerInfo, WireLimits, decode_group, encode_group

DEFAULTS = WireLimits()
fuzz = settings(derandomize=True, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

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

GOLDEN_V1 = bytes.fromhex(
    "4d4f544701002b000000"  # magic, version 1, 43 bytes of header
    "99a36b696d03a8747261696e2f3137aa74696e793a6c617267650301a439633166"  # names, round, step, temperature
    "02929303c3019302c200"  # two bytes an id; (3 tokens, stopped, reward 1), (2 tokens, cut, reward 0)
    "05000b000d0005002c01"  # five ids of two bytes
    "000000be000000bf00000000000000be000000c0"
)


def make_group(num_rollouts: int, length: int, vocab_size: int, *, seed: int = 0) -> Group:
    rng = np.random.default_rng(seed)
    rollouts = tuple(
        Rollout(
            rng.integers(0, vocab_size, length, dtype=np.uint32),
            -rng.exponential(size=length).astype(np.float32),
            "stop",
            float(rng.integers(0, 2)),
        )
        for _ in range(num_rollouts)
    )
    sampler = SamplerInfo(model="some-model-with-a-name", policy_step=1234, temperature=0.7, tokenizer="0" * 16)
    return Group("node-12", 1234, "train/123456", sampler, rollouts)


def facts(group: Group) -> tuple[object, ...]:
    """All of a group, comparable, with floats as their bits."""
    sampler = group.sampler
    return (
        (group.peer, group.round, group.prompt_id, sampler.model, sampler.policy_step, sampler.tokenizer),
        struct.pack("<d", sampler.temperature),
        [
            (
                *(r.token_ids.dtype, r.token_ids.tobytes(), r.logp_gen.dtype, r.logp_gen.tobytes()),
                *(r.finish_reason, struct.pack("<d", r.reward)),
            )
            for r in group.rollouts
        ],
    )


def assert_well_typed(group: Group) -> None:
    assert isinstance(group, Group)
    assert len(group.rollouts) >= 1
    for rollout in group.rollouts:
        assert rollout.token_ids.dtype == np.uint32
        assert rollout.logp_gen.dtype == np.float32
        assert rollout.token_ids.shape == rollout.logp_gen.shape
        assert rollout.token_ids.ndim == 1
        assert len(rollout.token_ids) >= 1
        assert rollout.finish_reason in ("stop", "length")
        assert type(rollout.reward) is float
    assert type(group.sampler.temperature) is float
    for name in (group.peer, group.prompt_id, group.sampler.model, group.sampler.tokenizer):
        assert len(name.encode()) <= DEFAULTS.max_name_bytes


def attempt(payload: bytes) -> Group | WireError:
    try:
        return decode_group(payload)
    except WireError as error:
        return error


def decode_or_reject(payload: bytes) -> None:
    """Any bytes: a group with exactly these bytes, or a WireError of the three codes."""
    outcome = attempt(payload)
    if isinstance(outcome, WireError):
        assert outcome.code in ("E-WIRE-01", "E-WIRE-02", "E-WIRE-03")
        assert str(outcome).isascii()
    else:
        assert_well_typed(outcome)
        assert encode_group(outcome) == payload


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
floats = st.floats(width=64, allow_nan=True)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    max_id = draw(st.sampled_from([0, 255, 256, 65_535, 65_536, 2**24 - 1, 2**24, 2**32 - 1]))
    rollouts = []
    for length in draw(st.lists(st.integers(1, 12), min_size=1, max_size=6)):
        ids = draw(hnp.arrays(np.uint32, length, elements=st.integers(0, max_id)))
        logps = draw(hnp.arrays(np.float32, length, elements=st.floats(width=32, allow_nan=True)))
        rollouts.append(Rollout(ids, logps, draw(st.sampled_from(["stop", "length"])), draw(floats)))
    sampler = SamplerInfo(draw(names), draw(st.integers(-(2**63), 2**64 - 1)), draw(floats), draw(names))
    return Group(draw(names), draw(st.integers(-(2**63), 2**64 - 1)), draw(names), sampler, tuple(rollouts))


def reframe(payload: bytes, header: bytes) -> bytes:
    """The payload with another header, its size put right."""
    size = struct.unpack_from("<I", payload, 6)[0]
    return payload[:6] + struct.pack("<I", len(header)) + header + payload[10 + size :]


def header_of(payload: bytes) -> bytes:
    return payload[10 : 10 + struct.unpack_from("<I", payload, 6)[0]]


def code_of(payload: bytes, limits: WireLimits = DEFAULTS) -> str:
    with pytest.raises(WireError) as caught:
        decode_group(payload, limits)
    return caught.value.code


def test_golden_bytes_of_version_1() -> None:
    assert WIRE_VERSION == 1
    assert encode_group(SMALL) == GOLDEN_V1
    assert facts(decode_group(GOLDEN_V1)) == facts(SMALL)


@fuzz
@given(groups())
def test_round_trip_is_exact_and_canonical(group: Group) -> None:
    payload = encode_group(group)
    decoded = decode_group(payload)
    assert facts(decoded) == facts(group)
    assert encode_group(decoded) == payload


def test_decoded_arrays_are_read_only_and_do_not_hold_the_payload() -> None:
    for rollout in decode_group(GOLDEN_V1).rollouts:
        for array in (rollout.token_ids, rollout.logp_gen):
            assert not array.flags.writeable
            assert array.flags.aligned
            base: object = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert base is None  # memory of numpy's own


@pytest.mark.parametrize(
    ("largest", "id_bytes"),
    [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), (2**24 - 1, 3), (2**24, 4), (2**32 - 1, 4)],
)
def test_ids_take_the_fewest_bytes(largest: int, id_bytes: int) -> None:
    rollout = dataclasses.replace(SMALL.rollouts[0], token_ids=np.array([0, largest, 1], np.uint32))
    payload = encode_group(dataclasses.replace(SMALL, rollouts=(rollout,)))
    assert len(payload) == 10 + len(header_of(payload)) + 3 * (id_bytes + 4)
    assert decode_group(payload).rollouts[0].token_ids.tolist() == [0, largest, 1]


@pytest.mark.parametrize(
    ("num_rollouts", "length", "vocab_size", "most"),
    [(8, 10, 64, 8.5), (4, 10, 64, 8.5), (12, 250, 262_144, 7.3)],
    ids=["8x10", "4x10", "12x250"],
)
def test_bytes_per_token(
    num_rollouts: int, length: int, vocab_size: int, most: float, capsys: pytest.CaptureFixture[str]
) -> None:
    group = make_group(num_rollouts, length, vocab_size)
    bytes_per_token = len(encode_group(group)) / group.num_tokens
    with capsys.disabled():
        sys.stdout.write(
            f"\n{num_rollouts} x {length} tokens, {vocab_size} ids: {bytes_per_token:.2f} bytes per token\n"
        )
    assert 5 < bytes_per_token <= most


def test_a_version_of_the_future_is_named() -> None:
    payload = GOLDEN_V1[:4] + struct.pack("<H", 7) + GOLDEN_V1[6:]
    with pytest.raises(WireError, match=r"version 7.*version 1") as caught:
        decode_group(payload)
    assert caught.value.code == "E-WIRE-02"


def test_every_truncation_and_every_extension_is_malformed() -> None:
    for end in range(len(GOLDEN_V1)):
        assert code_of(GOLDEN_V1[:end]) == "E-WIRE-01"
    assert code_of(GOLDEN_V1 + b"\0") == "E-WIRE-01"


def test_every_single_byte_change_gives_a_group_or_an_error() -> None:
    for position in range(len(GOLDEN_V1)):
        for value in range(256):
            decode_or_reject(GOLDEN_V1[:position] + bytes([value]) + GOLDEN_V1[position + 1 :])


def test_sizes_are_checked_before_anything_is_parsed() -> None:
    assert code_of(b"no group at all", WireLimits(max_payload_bytes=5)) == "E-WIRE-03"


@pytest.mark.parametrize(
    "limits",
    [
        WireLimits(max_payload_bytes=len(GOLDEN_V1) - 1),
        WireLimits(max_group_size=1),
        WireLimits(max_completion_tokens=2),
        WireLimits(max_name_bytes=9),  # "tiny:large" has ten
    ],
)
def test_over_a_limit(limits: WireLimits) -> None:
    assert code_of(GOLDEN_V1, limits) == "E-WIRE-03"


def test_at_the_limits() -> None:
    limits = WireLimits(len(GOLDEN_V1), max_group_size=2, max_completion_tokens=3, max_name_bytes=10)
    assert facts(decode_group(GOLDEN_V1, limits)) == facts(SMALL)


def test_the_largest_header_within_the_other_limits_is_accepted() -> None:
    limits = WireLimits(max_group_size=4, max_completion_tokens=70_000, max_name_bytes=300)
    name = "n" * 300
    rollout = Rollout(np.zeros(70_000, np.uint32), np.zeros(70_000, np.float32), "stop", 0.5)
    group = Group(name, 2**64 - 1, name, SamplerInfo(name, 2**64 - 1, 1.0, name), (rollout,) * 4)
    payload = encode_group(group)
    assert len(header_of(payload)) <= limits.max_header_bytes
    assert facts(decode_group(payload, limits)) == facts(group)


@pytest.mark.parametrize("size", [64_000, 2**32 - 1])
def test_a_header_that_claims_to_be_huge(size: int) -> None:
    assert code_of(GOLDEN_V1[:6] + struct.pack("<I", size) + GOLDEN_V1[10:]) == "E-WIRE-03"


HEADER = header_of(GOLDEN_V1)
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
        msgspec.msgpack.encode([*VALUES[:-1], [[3, True, 1.0], [2, False, 0]]]),  # a whole reward as a float
        msgspec.msgpack.encode([*VALUES[:-1], [[3, True, 2**53 + 1], [2, False, 0]]]),  # one that no float holds
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
        HEADER.replace(b"\x02\x92", b"\x02\xdd\xff\xff\xff\xff"),
        msgspec.msgpack.encode([*VALUES[:-1], []]),  # no rollout
        msgspec.msgpack.encode([*VALUES[:-1], [[0, True, 1], [5, True, 1]]]),  # an empty rollout
        msgspec.msgpack.encode([*VALUES[:-1], [[-1, True, 1], [6, True, 1]]]),
        msgspec.msgpack.encode([*VALUES[:-1], [[True, True, 1]]]),
        msgspec.msgpack.encode([*VALUES[:-1], [[5, 1, 1]]]),
        msgspec.msgpack.encode([*VALUES[:-1], [[5, True, None]]]),
        msgspec.msgpack.encode([*VALUES[:-2], 0, VALUES[-1]]),
        msgspec.msgpack.encode([*VALUES[:-2], 5, VALUES[-1]]),
        msgspec.msgpack.encode({"peer": "kim"}),
    ],
)
def test_a_header_that_is_not_canonical_or_not_a_header(header: bytes) -> None:
    assert header != HEADER
    assert code_of(reframe(GOLDEN_V1, header)) == "E-WIRE-01"


def test_lengths_of_a_few_gigabytes_allocate_nothing() -> None:
    header = msgspec.msgpack.encode([*VALUES[:-1], [[2**32 - 1, True, 1]] * 64])
    assert code_of(reframe(GOLDEN_V1, header)) == "E-WIRE-03"
    assert code_of(reframe(GOLDEN_V1, header), WireLimits(max_completion_tokens=2**32)) == "E-WIRE-01"


def test_ids_in_more_bytes_than_they_need_are_malformed() -> None:
    rollout = Rollout(np.array([7], np.uint32), np.array([-1.0], np.float32), "stop", 1.0)
    payload = encode_group(dataclasses.replace(SMALL, rollouts=(rollout,)))
    values = msgspec.msgpack.decode(header_of(payload))
    values[-2] = 2
    wide = reframe(payload, msgspec.msgpack.encode(values))
    assert code_of(wide[:-5] + b"\x07\0" + wide[-4:]) == "E-WIRE-01"
    assert decode_group(payload).rollouts[0].token_ids.tolist() == [7]


@fuzz
@given(st.binary(max_size=400))
def test_random_bytes(payload: bytes) -> None:
    decode_or_reject(payload)
    decode_or_reject(GOLDEN_V1[:10] + payload)
    decode_or_reject(reframe(GOLDEN_V1, payload))


@fuzz
@given(st.data())
def test_mutated_payloads(data: st.DataObject) -> None:
    payload = bytearray(encode_group(data.draw(groups())))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(payload)))
        end = data.draw(st.integers(start, min(len(payload), start + 8)))
        payload[start:end] = data.draw(st.binary(max_size=8))
    decode_or_reject(bytes(payload))


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | names | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@fuzz
@given(st.data())
def test_headers_of_other_types(data: st.DataObject) -> None:
    values = list(VALUES)
    for _ in range(data.draw(st.integers(1, 3))):
        values[data.draw(st.integers(0, len(values) - 1))] = data.draw(json_like)
    decode_or_reject(reframe(GOLDEN_V1, msgspec.msgpack.encode(values)))
    decode_or_reject(reframe(GOLDEN_V1, msgspec.msgpack.encode(data.draw(json_like))))


def test_implausible_numbers_pass_for_the_gate_to_judge() -> None:
    rollout = Rollout(np.array([1], np.uint32), np.array([np.nan], np.float32), "stop", float("inf"))
    sampler = dataclasses.replace(SMALL.sampler, temperature=-1.0, policy_step=-5)
    group = dataclasses.replace(SMALL, round=-1, sampler=sampler, rollouts=(rollout,))
    assert facts(decode_group(encode_group(group))) == facts(group)


@pytest.mark.parametrize(
    "rollouts",
    [
        (),
        (Rollout(np.array([], np.uint32), np.array([], np.float32), "stop", 1.0),),
        (Rollout(np.array([1, 2], np.uint32), np.array([-1.0], np.float32), "stop", 1.0),),
        (Rollout(np.array([[1]], np.uint32), np.array([[-1.0]], np.float32), "stop", 1.0),),
    ],
)
def test_own_groups_of_a_wrong_shape_are_not_encoded(rollouts: tuple[Rollout, ...]) -> None:
    with pytest.raises(ValueError, match="rollout"):
        encode_group(dataclasses.replace(SMALL, rollouts=rollouts))


@pytest.mark.parametrize(("ids", "logps"), [(np.int64, np.float32), (np.uint32, np.float64)])
def test_own_groups_of_a_wrong_dtype_are_not_encoded(ids: type[np.generic], logps: type[np.generic]) -> None:
    rollout = Rollout(np.array([1], ids), np.array([-0.1], logps), "stop", 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dtype"):
        encode_group(dataclasses.replace(SMALL, rollouts=(rollout,)))


@pytest.mark.parametrize(
    "reward", [0.0, -0.0, 1.0, -3.0, 0.5, 2.0**53, 2.0**53 + 2, 1e300, math.inf, -math.inf, math.nan]
)
def test_every_reward_comes_back_as_it_was(reward: float) -> None:
    group = dataclasses.replace(SMALL, rollouts=(dataclasses.replace(SMALL.rollouts[0], reward=reward),))
    assert facts(decode_group(encode_group(group))) == facts(group)
