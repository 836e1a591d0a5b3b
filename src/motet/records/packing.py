"""Token ids and log-probs to bytes and back, for `wire`.

Words: N numbers of b bits each, one after the other, the lowest bit first; bits left over in the last byte are 0.

Log-probs, compact: a number in steps of 2^-11 nats from -31.9995 to 0. Not each value is rounded but the running
sum over the group, and a token gets the difference of two rounded sums. So the error is below one step for every token
*and* for the sum over any run of tokens (to T * 2^-32 nats for T tokens): rounding does not add up over a completion.

    step = 2^-11    S_t = -(logp_1 + ... + logp_t)    code_t = round(S_t / step) - round(S_{t-1} / step)

So an importance weight is off by less than 0.05 %, be it of a token or of a whole completion of any length; rounding
each value by itself would be off by more the longer the completion. `tests/unit/records/test_compact_effect.py` holds
weights and loss to it. Sums are taken in whole numbers, so that equal log-probs have equal bytes on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOG_PROB_ERROR_NATS = 2.0**-11
"""Compact log-probs differ by less than this from those sent, token by token and summed over any run of tokens."""

CODE_BITS = 16  # at most

_EXACT, _SHORT_WORD, _WORD = np.dtype("<f4"), np.dtype("<u4"), np.dtype("<u8")
_MINUS_STEP = np.float32(-LOG_PROB_ERROR_NATS)
_LOWEST = (2**CODE_BITS - 1) * _MINUS_STEP
_UNIT_BITS = 20
_MINUS_UNITS_PER_NAT = np.float32(-(2**_UNIT_BITS) / LOG_PROB_ERROR_NATS)
_HALF_A_STEP = 2 ** (_UNIT_BITS - 1)


def num_bits(number_N: NDArray[Any]) -> int:
    """Fewest bits, 1 or more, that hold the largest of these whole numbers."""
    return max(1, int(np.maximum.reduce(number_N)).bit_length())


def packed_size(num_words: int, bits: int) -> int:
    """Bytes of that many words."""
    return (num_words * bits + 7) // 8


def pack(word_N: NDArray[Any], bits: int) -> bytes:
    """The lowest `bits` bits of each word (a whole number of 64 bits), one after the other.

    >>> pack(np.array([1, 2, 3], np.uint64), 2).hex()
    '39'
    """
    byte_NB = word_N.astype(_word(bits), copy=False).view(np.uint8).reshape(len(word_N), -1)
    bit_Nb = np.unpackbits(byte_NB, axis=1, count=bits, bitorder="little")
    return np.packbits(bit_Nb, bitorder="little").tobytes()


def unpack(packed: memoryview, num_words: int, bits: int) -> NDArray[np.int64] | None:
    """What `pack` packed; None if spare bits are set.

    >>> unpack(memoryview(bytes([0x39])), 3, 2).tolist()
    [1, 2, 3]
    """
    spare = len(packed) * 8 - num_words * bits
    if packed[-1] >> (8 - spare):
        return None
    word = _word(bits)
    bit_Nb = np.unpackbits(np.frombuffer(packed, np.uint8), count=num_words * bits, bitorder="little")
    bit_NW = np.zeros((num_words, word.itemsize * 8), np.uint8)
    bit_NW[:, :bits] = bit_Nb.reshape(num_words, bits)
    return np.packbits(bit_NW, bitorder="little").view(word).astype(np.int64)


def _word(bits: int) -> np.dtype[Any]:
    return _SHORT_WORD if bits <= 32 else _WORD


def compact_log_probs(logp_N: NDArray[np.float32]) -> NDArray[np.int64] | None:
    """Codes from 0 to 2^16 - 1; None if a log-prob is outside the range that they cover, or not a number.

    >>> compact_log_probs(np.array([0.0, -LOG_PROB_ERROR_NATS, -1.0], np.float32)).tolist()
    [0, 1, 2048]
    """
    if not (np.minimum.reduce(logp_N) >= _LOWEST and np.maximum.reduce(logp_N) <= 0):
        return None
    sum_N: NDArray[np.int64] = np.rint(logp_N * _MINUS_UNITS_PER_NAT).astype(np.int64)
    sum_N[0] += _HALF_A_STEP
    np.add.accumulate(sum_N, out=sum_N)
    sum_N >>= _UNIT_BITS
    code_N = sum_N.copy()
    code_N[1:] -= sum_N[:-1]
    code_N &= 2**CODE_BITS - 1  # a sum beyond 64 bits wraps without harm
    return code_N


def restore_log_probs(code_N: NDArray[np.int64]) -> NDArray[np.float32]:
    """Log-probs of `compact_log_probs`, never above 0.

    >>> restore_log_probs(np.array([0, 1, 2048])).tolist()
    [0.0, -0.00048828125, -1.0]
    """
    logp_N = code_N.astype(np.float32)
    logp_N *= _MINUS_STEP
    logp_N += np.float32(0.0)  # no -0.0
    return logp_N


def exact_log_probs(logp_N: NDArray[np.float32]) -> bytes:
    """4 bytes each, float32, whatever they hold."""
    return logp_N.astype(_EXACT, copy=False).tobytes()


def read_exact_log_probs(packed: memoryview) -> NDArray[np.float32]:
    """Log-probs of `exact_log_probs`, bit by bit."""
    return np.frombuffer(packed, _EXACT).astype(np.float32, copy=True)
