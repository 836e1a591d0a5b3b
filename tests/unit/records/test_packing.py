from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from motet.records import LOG_PROB_ERROR_NATS, packing

STEP = LOG_PROB_ERROR_NATS
LOWEST = float(-(2**16 - 1) * STEP)
search = settings(derandomize=True, deadline=None, max_examples=100)


def pack_one_by_one(words: NDArray[np.uint64], bits: int) -> bytes:
    """The format's definition: one long number, the first word lowest."""
    number = sum(int(one) << (bits * place) for place, one in enumerate(words))
    return number.to_bytes((len(words) * bits + 7) // 8, "little")


def round_trip(logp: NDArray[np.float32]) -> NDArray[np.float32]:
    codes = packing.compact_log_probs(logp)
    assert codes is not None
    assert 0 <= int(codes.min()) <= int(codes.max()) < 2**packing.CODE_BITS
    restored = packing.restore_log_probs(codes)
    assert restored.dtype == np.float32
    again = packing.compact_log_probs(restored)
    assert again is not None
    assert again.tolist() == codes.tolist()
    return restored


def worst_run(error: NDArray[np.float64]) -> float:
    """Largest |sum| over any run of neighbours: the spread of the running sum."""
    running = np.concatenate([[0.0], np.cumsum(error)])
    return float(running.max() - running.min())


@search
@given(st.integers(1, 48), st.data())
def test_words_are_packed_as_defined(bits: int, data: st.DataObject) -> None:
    words = data.draw(hnp.arrays(np.uint64, st.integers(1, 40), elements=st.integers(0, 2**bits - 1)))
    words[-1] |= np.uint64(2 ** (bits - 1))
    packed = packing.pack(words, bits)
    assert packing.num_bits(words) == bits
    assert packed == pack_one_by_one(words, bits)
    assert len(packed) == packing.packed_size(len(words), bits)
    unpacked = packing.unpack(memoryview(packed), len(words), bits)
    assert unpacked is not None
    assert unpacked.dtype == np.int64
    assert unpacked.tolist() == words.tolist()


@search
@given(st.integers(1, 48), st.integers(1, 12), st.data())
def test_any_bytes_unpack_to_words_of_the_same_bytes_or_to_none(bits: int, num_words: int, data: st.DataObject) -> None:
    size = packing.packed_size(num_words, bits)
    packed = data.draw(st.binary(min_size=size, max_size=size))
    words = packing.unpack(memoryview(packed), num_words, bits)
    assert (words is None) == (int.from_bytes(packed, "little") >= 1 << bits * num_words)
    if words is not None:
        assert packing.pack(words, bits) == packed


def test_words_of_the_other_byte_order_are_packed_alike() -> None:
    words = np.array([1, 700, 2], np.uint64)
    assert packing.pack(words.astype(">u8"), 10) == packing.pack(words, 10)


@search
@given(hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(LOWEST, 0, width=32)))
def test_each_log_prob_and_each_run_of_them_keeps_the_bound(logp: NDArray[np.float32]) -> None:
    restored = round_trip(logp)
    error = restored.astype(np.float64) - logp
    assert np.abs(error).max() < LOG_PROB_ERROR_NATS
    assert worst_run(error) < LOG_PROB_ERROR_NATS + len(logp) * 2.0**-32
    assert restored.max() <= 0
    assert (restored[logp == 0] == 0).all()


@pytest.mark.parametrize("scale", [1e-6, 1e-4, 2.4e-4, 1e-3, 0.5, 10.0])
@pytest.mark.parametrize("num_tokens", [1, 24, 2000, 100_000])
def test_rounding_does_not_add_up(scale: float, num_tokens: int) -> None:
    """Nearly certain tokens are far below a step: rounded one by one they would all become 0."""
    logp = -np.random.default_rng(num_tokens).exponential(scale, num_tokens).clip(max=-LOWEST).astype(np.float32)
    error = round_trip(logp).astype(np.float64) - logp
    assert np.abs(error).max() < LOG_PROB_ERROR_NATS
    assert worst_run(error) < LOG_PROB_ERROR_NATS + num_tokens * 2.0**-32


def test_a_sum_beyond_64_bits_wraps_without_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^27 tokens of the lowest log-prob would get there; here the sum begins just below."""
    logp = np.random.default_rng(0).uniform(LOWEST, 0, 100).astype(np.float32)
    expected = packing.compact_log_probs(logp)
    assert expected is not None
    monkeypatch.setattr(packing, "_HALF_A_STEP", 2**63 - 2**37 + 2**19)
    wrapped = packing.compact_log_probs(logp)
    assert wrapped is not None
    assert wrapped.tolist() == expected.tolist()


def test_a_step_and_its_halves() -> None:
    halves = np.array([0, -0.5, -0.5, -1, -1.5, 0, -0.0, -2], np.float32) * np.float32(STEP)
    assert (round_trip(halves) / STEP).tolist() == [0, -1, 0, -1, -2, 0, 0, -2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e-30, LOWEST - 1e-5, -1e30])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_compact_log_probs_cannot_hold(value: float, place: int) -> None:
    logp = np.array([-0.5, LOWEST, 0.0], np.float32)
    assert packing.compact_log_probs(logp) is not None
    logp[place] = value
    assert packing.compact_log_probs(logp) is None


@search
@given(hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 2**packing.CODE_BITS - 1)))
def test_any_codes_are_log_probs_of_these_codes(codes: NDArray[np.int64]) -> None:
    restored = packing.restore_log_probs(codes)
    assert not np.signbit(restored[restored == 0]).any()
    assert restored.min() >= LOWEST
    assert restored.max() <= 0
    again = packing.compact_log_probs(restored)
    assert again is not None
    assert again.tolist() == codes.tolist()


def test_exact_log_probs_keep_every_bit() -> None:
    logp = np.array([np.nan, -0.0, np.inf, 1e-45, -1e30], np.float32)
    assert packing.read_exact_log_probs(memoryview(packing.exact_log_probs(logp))).tobytes() == logp.tobytes()
