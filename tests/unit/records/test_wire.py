from __future__ import annotations

import contextlib
import dataclasses
import struct
from typing import Literal

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from motet.errors import WireError
from motet.records import (
    LOG_PROB_ERROR_NATS,
    WIRE_VERSION,
    Group,
    Rollout,
    SamplerInfo,
    WireLimits,
    decode_group,
    encode_group,
)

DEFAULTS = WireLimits()
LOWEST = np.float32(-(2**16 - 1) * LOG_PROB_ERROR_NATS)
fuzz = settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])

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

GOLDEN_V3 = bytes.fromhex(
    "4d4f5447030027000000"  # magic, version 3, 39 bytes of header
    "9ba36b696d03a8747261696e2f3137aa74696e793a6c617267650301a439633166"  # names, round, step, temperature
    "090d9203fe01"  # nine bits an id, 13 a code; 3 tokens, stopped, and 2, cut; rewards 1 and 0
    # five words of 22 bits, the lowest first; above each id its log-prob in steps of 2^-11: 256, 1024, 0, 256, 4096
    "0500c20200d200001400082c0120"
)

EXACT_V2 = bytes.fromhex(
    "4d4f5447020029000000"
    "9ba36b696d03a8747261696e2f3137aa74696e793a6c617267650301a439633166"
    "09c39203fe920100"  # nine bits an id; exact; lengths; rewards one by one
    "05163428c012"  # five ids
    "000000be000000bf00000080000000be000000c0"  # -0.125, -0.5, -0, -0.125, -2
)

KINDS: tuple[Literal["compact", "exact"], ...] = ("compact", "exact")


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
        assert payload in [encode_group(outcome, log_probs=kind) for kind in KINDS]


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
floats = st.floats(width=64, allow_nan=True)
hexes = st.integers(0, 2**64 - 1).map("{:016x}".format) | st.text("0123456789abcdefABCDEF_+- x", max_size=20)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    max_id = draw(st.sampled_from([0, 1, 2, 255, 256, 65_535, 65_536, 2**24 - 1, 2**24, 2**32 - 1]))
    any_logp = st.floats(width=32, allow_nan=True)
    logp = draw(st.sampled_from([st.floats(-40, 0, width=32), st.floats(-1, 0, width=32), any_logp]))
    rollouts = []
    for length in draw(st.lists(st.integers(1, 12), min_size=1, max_size=6)):
        ids = draw(hnp.arrays(np.uint32, length, elements=st.integers(0, max_id)))
        logps = draw(hnp.arrays(np.float32, length, elements=logp))
        rollouts.append(Rollout(ids, logps, draw(st.sampled_from(["stop", "length"])), draw(floats)))
    sampler = SamplerInfo(draw(names), draw(st.integers(-(2**63), 2**64 - 1)), draw(floats), draw(names | hexes))
    return Group(draw(names), draw(st.integers(-(2**63), 2**64 - 1)), draw(names), sampler, tuple(rollouts))


def with_log_probs(group: Group, value: float) -> Group:
    rollouts = tuple(dataclasses.replace(r, logp_gen=np.full_like(r.logp_gen, value)) for r in group.rollouts)
    return dataclasses.replace(group, rollouts=rollouts)


def is_exact(payload: bytes) -> bool:
    return int(msgspec.msgpack.decode(header_of(payload))[8]) == 0


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


def test_golden_bytes_of_version_3() -> None:
    assert WIRE_VERSION == 3
    assert encode_group(SMALL) == GOLDEN_V3
    assert facts(decode_group(GOLDEN_V3)) == facts(SMALL)


@fuzz
@given(groups())
def test_exact_round_trip_is_exact_and_canonical(group: Group) -> None:
    payload = encode_group(group, log_probs="exact")
    decoded = decode_group(payload)
    assert facts(decoded) == facts(group)
    assert encode_group(decoded, log_probs="exact") == payload


@fuzz
@given(groups())
def test_compact_round_trip_is_canonical_and_keeps_its_bound(group: Group) -> None:
    payload = encode_group(group)
    decoded = decode_group(payload)
    assert encode_group(decoded) == payload
    sent, got = (np.concatenate([r.logp_gen for r in g.rollouts]) for g in (group, decoded))
    assert facts(with_log_probs(decoded, 0)) == facts(with_log_probs(group, 0))
    if is_exact(payload):
        assert not ((sent >= LOWEST) & (sent <= 0)).all()
        assert got.tobytes() == sent.tobytes()
    else:
        assert ((sent >= LOWEST) & (sent <= 0)).all()
        assert (np.abs(got.astype(float) - sent) < LOG_PROB_ERROR_NATS).all()
        assert got.max() <= 0
        assert not np.signbit(got[got == 0]).any()


@pytest.mark.parametrize("value", [1e-6, 0.5, -32.0, np.nextafter(LOWEST, -np.inf), -np.inf, np.inf, np.nan])
def test_a_group_outside_the_compact_range_travels_exact(value: float) -> None:
    logp = np.array([-0.3, value, -0.1], np.float32)
    rollout = dataclasses.replace(SMALL.rollouts[0], logp_gen=logp)
    group = dataclasses.replace(SMALL, rollouts=(SMALL.rollouts[1], rollout))
    payload = encode_group(group)
    assert payload == encode_group(group, log_probs="exact")
    assert facts(decode_group(payload)) == facts(group)


def test_the_lowest_compact_log_prob() -> None:
    for first in (0.0, -1e-4, -(2.0**-12)):
        logp = np.array([first, LOWEST, LOWEST], np.float32)
        rollout = dataclasses.replace(SMALL.rollouts[0], logp_gen=logp)
        payload = encode_group(dataclasses.replace(SMALL, rollouts=(rollout,)))
        assert not is_exact(payload)
        assert np.abs(decode_group(payload).rollouts[0].logp_gen - logp).max() < LOG_PROB_ERROR_NATS


def test_both_kinds_of_one_group_differ_only_in_their_log_probs() -> None:
    exact = encode_group(SMALL, log_probs="exact")
    assert is_exact(exact)
    assert not is_exact(GOLDEN_V3)
    assert facts(decode_group(exact)) == facts(decode_group(GOLDEN_V3))
    assert len(exact) == len(GOLDEN_V3) - 14 + 6 + 4 * SMALL.num_tokens


def test_an_archived_group_of_version_2_is_still_read() -> None:
    group = decode_group(EXACT_V2, archived=True)
    for found, sent in zip(group.rollouts, SMALL.rollouts, strict=True):
        assert (found.token_ids.tolist(), found.finish_reason, found.reward) == (
            sent.token_ids.tolist(),
            sent.finish_reason,
            sent.reward,
        )
        assert (found.logp_gen == sent.logp_gen).all()
    assert (group.peer, group.round, group.sampler) == (SMALL.peer, SMALL.round, SMALL.sampler)
    assert facts(decode_group(GOLDEN_V3, archived=True)) == facts(SMALL)
    for position in range(10, len(EXACT_V2) - 20):  # no log-prob is wrong, but all else is
        changed = EXACT_V2[:position] + bytes([EXACT_V2[position] ^ 0x90]) + EXACT_V2[position + 1 :]
        with contextlib.suppress(WireError):
            decode_group(changed, archived=True)


def test_decoded_arrays_are_read_only_and_do_not_hold_the_payload() -> None:
    for rollout in decode_group(GOLDEN_V3).rollouts:
        for array in (rollout.token_ids, rollout.logp_gen):
            assert not array.flags.writeable
            assert array.flags.aligned
            base: object = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert base is None  # memory of numpy's own


@pytest.mark.parametrize("largest", [*range(5), *(2**b + d for b in range(3, 32) for d in (-1, 0)), 2**32 - 1])
def test_ids_take_the_fewest_bits(largest: int) -> None:
    rollout = dataclasses.replace(SMALL.rollouts[0], token_ids=np.array([0, largest, 1], np.uint32))
    payload = encode_group(dataclasses.replace(SMALL, rollouts=(rollout,)))
    bits = max(1, max(largest, 1).bit_length())
    code_bits = 11  # 0.5 nats are 2^10 steps
    assert len(payload) == 10 + len(header_of(payload)) + -(-3 * (bits + code_bits) // 8)
    assert decode_group(payload).rollouts[0].token_ids.tolist() == [0, largest, 1]


@pytest.mark.parametrize("version", [1, 2, 7])
def test_another_version_is_named(version: int) -> None:
    payload = GOLDEN_V3[:4] + struct.pack("<H", version) + GOLDEN_V3[6:]
    with pytest.raises(WireError, match=rf"version {version}, .*version 3") as caught:
        decode_group(payload)
    assert caught.value.code == "E-WIRE-02"


def test_every_truncation_and_every_extension_is_malformed() -> None:
    for end in range(len(GOLDEN_V3)):
        assert code_of(GOLDEN_V3[:end]) == "E-WIRE-01"
    assert code_of(GOLDEN_V3 + b"\0") == "E-WIRE-01"


def test_every_single_byte_change_gives_a_group_or_an_error() -> None:
    for position in range(len(GOLDEN_V3)):
        for value in range(256):
            decode_or_reject(GOLDEN_V3[:position] + bytes([value]) + GOLDEN_V3[position + 1 :])


def test_sizes_are_checked_before_anything_is_parsed() -> None:
    assert code_of(b"no group at all", WireLimits(max_payload_bytes=5)) == "E-WIRE-03"


@pytest.mark.parametrize(
    "limits",
    [
        WireLimits(max_payload_bytes=len(GOLDEN_V3) - 1),
        WireLimits(max_group_size=1),
        WireLimits(max_completion_tokens=2),
        WireLimits(max_name_bytes=9),  # "tiny:large" has ten
    ],
)
def test_over_a_limit(limits: WireLimits) -> None:
    assert code_of(GOLDEN_V3, limits) == "E-WIRE-03"


def test_at_the_limits() -> None:
    limits = WireLimits(len(GOLDEN_V3), max_group_size=2, max_completion_tokens=3, max_name_bytes=10)
    assert facts(decode_group(GOLDEN_V3, limits)) == facts(SMALL)


def with_ids(group: Group, *ids: int) -> Group:
    rollout = Rollout(np.array(ids, np.uint32), np.full(len(ids), -1, np.float32), "stop", 1.0)
    return dataclasses.replace(group, rollouts=(rollout,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [4, 5, 8, 9, 16, 32])
def test_ids_in_more_bits_than_they_need_are_malformed(bits: int, kind: Literal["compact", "exact"]) -> None:
    malformed_with(kind, 7, bits)


@pytest.mark.parametrize("bits", [13, 16])
def test_codes_in_more_bits_than_they_need_are_malformed(bits: int) -> None:
    malformed_with("compact", 8, bits)


def malformed_with(kind: Literal["compact", "exact"], field: int, bits: int) -> None:
    """One id of 7 and a log-prob of -1, in words of as many bits as the header then says."""
    payload = encode_group(with_ids(SMALL, 7), log_probs=kind)
    assert decode_group(payload).rollouts[0].token_ids.tolist() == [7]
    header = header_of(payload)
    values = msgspec.msgpack.decode(header)
    values[field] = bits
    id_bits, code_bits = values[7:9]
    word = 7 | (2048 << id_bits if kind == "compact" else 0)
    packed = word.to_bytes(-(-(id_bits + code_bits) // 8), "little")
    rest = b"" if kind == "compact" else payload[-4:]
    assert code_of(reframe(payload[: 10 + len(header)] + packed + rest, msgspec.msgpack.encode(values))) == "E-WIRE-01"


def test_a_bit_set_behind_the_last_word_is_malformed() -> None:
    payload = encode_group(with_ids(SMALL, 7, 1))  # two words of 3 + 12 bits: 30 of 32
    assert decode_group(payload).rollouts[0].token_ids.tolist() == [7, 1]
    for bit in (6, 7):
        changed = bytearray(payload)
        changed[-1] |= 1 << bit
        assert code_of(bytes(changed)) == "E-WIRE-01"


def test_every_compact_code_is_canonical() -> None:
    num_codes = 2**16
    ids = np.zeros(num_codes, np.uint32)
    logp = np.arange(num_codes, dtype=np.float32) * np.float32(-LOG_PROB_ERROR_NATS)
    group = dataclasses.replace(SMALL, rollouts=(Rollout(ids, logp, "stop", 1.0),))
    payload = encode_group(group)
    bits = np.unpackbits(np.frombuffer(payload[10 + len(header_of(payload)) :], np.uint8), bitorder="little")
    words = bits.reshape(num_codes, 17) @ (1 << np.arange(17))
    assert words.tolist() == list(range(0, 2 * num_codes, 2))
    assert (decode_group(payload).rollouts[0].logp_gen == logp).all()


@fuzz
@given(st.binary(max_size=400))
def test_random_bytes(payload: bytes) -> None:
    decode_or_reject(payload)
    decode_or_reject(GOLDEN_V3[:10] + payload)
    decode_or_reject(reframe(GOLDEN_V3, payload))


@fuzz
@given(st.data())
def test_mutated_payloads(data: st.DataObject) -> None:
    payload = bytearray(encode_group(data.draw(groups()), log_probs=data.draw(st.sampled_from(KINDS))))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(payload)))
        end = data.draw(st.integers(start, min(len(payload), start + 8)))
        payload[start:end] = data.draw(st.binary(max_size=8))
    decode_or_reject(bytes(payload))


@fuzz
@given(st.data())
def test_flipped_bits_and_truncations(data: st.DataObject) -> None:
    payload = encode_group(data.draw(groups()), log_probs=data.draw(st.sampled_from(KINDS)))
    bit = data.draw(st.integers(0, 8 * len(payload) - 1))
    decode_or_reject(payload[: bit // 8] + bytes([payload[bit // 8] ^ 1 << bit % 8]) + payload[bit // 8 + 1 :])
    assert code_of(payload[: bit // 8]) == "E-WIRE-01"


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
    rollout = Rollout(np.array([1], ids), np.array([-0.1], logps), "stop", 1.0)
    with pytest.raises(TypeError, match="dtype"):
        encode_group(dataclasses.replace(SMALL, rollouts=(rollout,)))
