"""Token ids and log-probs to bytes and back, for `wire`.

Ids: N ids of b bits each, one after the other, the lowest bit first; bits left over in the last byte are 0.

Log-probs, compact: 16 bits each, in steps of 2^-11 nats from -31.9995 to 0. Not each value is rounded but the running
sum over the group, and a token gets the difference of two rounded sums. So the error is below one step for every token
*and* for the sum over any run of tokens (to T * 2^-32 nats for T tokens): rounding does not add up over a completion.

    step = 2^-11    S_t = -(logp_1 + ... + logp_t)    code_t = round(S_t / step) - round(S_{t-1} / step)

So an importance weight is off by less than 0.05 %, be it of a token or of a whole completion of any length; rounding
each value by itself would be off by more the longer the completion. `tests/unit/records/test_compact_effect.py` holds
weights and loss to it. Sums are taken in whole numbers, so that equal log-probs have equal bytes on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LOG_PROB_ERROR_NATS = 2.0**-11
"""Compact log-probs differ by less than this from those sent, token by token and summed over any run of tokens."""

_CODE, _EXACT, _ID = np.dtype("<u2"), np.dtype("<f4"), np.dtype("<u4")
_MINUS_STEP = np.float32(-LOG_PROB_ERROR_NATS)
_LOWEST = (2**16 - 1) * _MINUS_STEP
_UNIT_BITS = 20
_MINUS_UNITS_PER_NAT = np.float32(-(2**_UNIT_BITS) / LOG_PROB_ERROR_NATS)
_HALF_A_STEP = 2 ** (_UNIT_BITS - 1)


def num_bits(id_N: NDArray[np.uint32]) -> int:
    """Fewest bits, 1 to 32, that hold the largest id."""
    return max(1, int(np.maximum.reduce(id_N)).bit_length())


def packed_size(num_ids: int, bits: int) -> int:
    """Bytes of that many ids."""
    return (num_ids * bits + 7) // 8


def pack_ids(id_N: NDArray[np.uint32], bits: int) -> bytes:
    """The lowest `bits` bits of each id, one after the other.

    >>> pack_ids(np.array([1, 2, 3], np.uint32), 2).hex()
    '39'
    """
    byte_N4 = id_N.astype(_ID, copy=False).view(np.uint8).reshape(-1, 4)
    bit_Nb = np.unpackbits(byte_N4, axis=1, count=bits, bitorder="little")
    return np.packbits(bit_Nb, bitorder="little").tobytes()


def unpack_ids(packed: memoryview, num_ids: int, bits: int) -> NDArray[np.uint32] | None:
    """What `pack_ids` packed; None if these bytes are not what it would have written: fewer bits do, or spare bits set.

    >>> unpack_ids(memoryview(bytes([0x39])), 3, 2)
    array([1, 2, 3], dtype=uint32)
    """
    spare = len(packed) * 8 - num_ids * bits
    if packed[-1] >> (8 - spare):
        return None
    bit_Nb = np.unpackbits(np.frombuffer(packed, np.uint8), count=num_ids * bits, bitorder="little")
    bit_N32 = np.zeros((num_ids, 32), np.uint8)
    bit_N32[:, :bits] = bit_Nb.reshape(num_ids, bits)
    id_N = np.packbits(bit_N32, bitorder="little").view(_ID).astype(np.uint32, copy=False)
    return id_N if num_bits(id_N) == bits else None


def compact_log_probs(logp_N: NDArray[np.float32]) -> bytes | None:
    """2 bytes each; None if one is outside the range that 16 bits cover, or not a number.

    >>> compact_log_probs(np.array([0.0, -LOG_PROB_ERROR_NATS, -1.0], np.float32)).hex()
    '000001000008'
    """
    if not (np.minimum.reduce(logp_N) >= _LOWEST and np.maximum.reduce(logp_N) <= 0):
        return None
    unit_N = np.rint(logp_N * _MINUS_UNITS_PER_NAT).astype(np.int64)
    unit_N[0] += _HALF_A_STEP
    sum_N = unit_N.cumsum()
    step_N = (sum_N >> _UNIT_BITS).astype(_CODE)  # modulo 2^16, as is the difference, which fits
    code_N: NDArray[np.uint16] = step_N.copy()
    code_N[1:] -= step_N[:-1]
    return code_N.tobytes()


def restore_log_probs(packed: memoryview) -> NDArray[np.float32]:
    """Log-probs of `compact_log_probs`, never above 0.

    >>> restore_log_probs(memoryview(bytes.fromhex("000001000008"))).tolist()
    [0.0, -0.00048828125, -1.0]
    """
    logp_N = np.frombuffer(packed, _CODE).astype(np.float32)
    logp_N *= _MINUS_STEP
    logp_N += np.float32(0.0)  # no -0.0
    return logp_N


def exact_log_probs(logp_N: NDArray[np.float32]) -> bytes:
    """4 bytes each, float32, whatever they hold."""
    return logp_N.astype(_EXACT, copy=False).tobytes()


def read_exact_log_probs(packed: memoryview) -> NDArray[np.float32]:
    """Log-probs of `exact_log_probs`, bit by bit."""
    return np.frombuffer(packed, _EXACT).astype(np.float32, copy=True)
