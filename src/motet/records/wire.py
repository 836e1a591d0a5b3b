"""A group's bytes on the wire, version 1. Any bytes give a group or one `WireError`, nothing else.

    offset  size
    0       4      magic b"MOTG"
    4       2      wire version, unsigned, little endian (as are all numbers outside the header)
    6       4      H = bytes of the header
    10      H      header: MessagePack of `_Header`, with one `_RolloutHeader` (length, finish, reward) per rollout;
                   a whole temperature or reward is an integer, as most rewards are 0 or 1
    10+H    N*w    N = tokens of all rollouts; their ids in w bytes each, the fewest (1..4) that hold the largest id
    ...     N*4    their log-probs, float32

A group has exactly one encoding, so that equal groups have equal bytes and a signature can cover them. Whether the
numbers are plausible (log-probs above 0, NaN, an id outside the vocabulary) is for the gate to judge, not for this
module: it promises types, lengths and sizes only.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from motet.errors import WireError
from motet.records.rollout import FinishReason, Group, Rollout, SamplerInfo

WIRE_VERSION = 1

_MAGIC = b"MOTG"
_PREFIX = struct.Struct("<4sHI")
_LARGEST_EXACT = 2**53
_MALFORMED, _WRONG_VERSION, _OVER_LIMIT = "E-WIRE-01", "E-WIRE-02", "E-WIRE-03"


@dataclass(frozen=True, slots=True)
class WireLimits:
    """The most that is accepted from a peer.

    Attributes:
        max_payload_bytes: whole message, checked before anything is parsed.
        max_group_size: rollouts of a group.
        max_completion_tokens: tokens of one rollout.
        max_name_bytes: UTF-8 bytes of each of peer, prompt id, model label and tokenizer fingerprint.
    """

    max_payload_bytes: int = 4_000_000
    max_group_size: int = 64
    max_completion_tokens: int = 65_536
    max_name_bytes: int = 128

    @property
    def max_header_bytes(self) -> int:
        """Bytes of the largest header that keeps to the other limits: 4 names, 4 numbers, 16 bytes per rollout."""
        return 64 + 4 * (5 + self.max_name_bytes) + 16 * self.max_group_size


class _RolloutHeader(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    length: Annotated[int, msgspec.Meta(ge=1, lt=2**32)]
    stopped: bool
    reward: int | float


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    peer: str
    round: int
    prompt_id: str
    model: str
    policy_step: int
    temperature: int | float
    tokenizer: str
    id_bytes: Annotated[int, msgspec.Meta(ge=1, le=4)]
    rollouts: Annotated[tuple[_RolloutHeader, ...], msgspec.Meta(min_length=1)]

    def names(self) -> tuple[str, str, str, str]:
        return self.peer, self.prompt_id, self.model, self.tokenizer

    def numbers(self) -> list[int | float]:
        return [self.temperature, *(rollout.reward for rollout in self.rollouts)]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Header)


def encode_group(group: Group) -> bytes:
    """The one encoding of a group.

    Raises:
        ValueError: no rollout, or one whose arrays are empty, not flat or of different lengths.
        TypeError: arrays of another dtype than `Rollout` states.
    """
    if not group.rollouts:
        raise ValueError("a group needs at least one rollout")
    for rollout in group.rollouts:
        shape = rollout.token_ids.shape
        if len(shape) != 1 or shape[0] < 1 or rollout.logp_gen.shape != shape:
            raise ValueError(f"token_ids of shape {shape} and logp_gen of shape {rollout.logp_gen.shape} in a rollout")
    id_N = np.concatenate([rollout.token_ids for rollout in group.rollouts], dtype="<u4", casting="equiv")
    logp_N = np.concatenate([rollout.logp_gen for rollout in group.rollouts], dtype="<f4", casting="equiv")
    id_bytes = _narrowest(id_N)
    header = _Header(
        peer=group.peer,
        round=group.round,
        prompt_id=group.prompt_id,
        model=group.sampler.model,
        policy_step=group.sampler.policy_step,
        temperature=_shortest(group.sampler.temperature),
        tokenizer=group.sampler.tokenizer,
        id_bytes=id_bytes,
        rollouts=tuple(
            _RolloutHeader(len(rollout.token_ids), rollout.finish_reason == "stop", _shortest(rollout.reward))
            for rollout in group.rollouts
        ),
    )
    header_bytes = _ENCODER.encode(header)
    prefix = _PREFIX.pack(_MAGIC, WIRE_VERSION, len(header_bytes))
    packed_ids = id_N.view(np.uint8).reshape(-1, 4)[:, :id_bytes].tobytes()
    return b"".join((prefix, header_bytes, packed_ids, logp_N.tobytes()))


def decode_group(payload: bytes, limits: WireLimits = WireLimits()) -> Group:
    """The group that `payload` encodes; its arrays are read-only and share no memory with `payload`.

    Raises:
        WireError: E-WIRE-01 (not the encoding of a group), E-WIRE-02 (another wire version), E-WIRE-03 (over a limit).
            The message holds no text of the sender's.
    """
    if len(payload) > limits.max_payload_bytes:
        raise WireError(f"message of {len(payload)} bytes, limit {limits.max_payload_bytes}", code=_OVER_LIMIT)
    header, data_start = _read_header(payload, limits)
    _check_limits(header, limits)
    lengths = [rollout.length for rollout in header.rollouts]
    num_tokens = sum(lengths)
    expected = data_start + num_tokens * (header.id_bytes + 4)
    if len(payload) != expected:
        raise WireError(f"message of {len(payload)} bytes, its header announces {expected}", code=_MALFORMED)

    id_N = _unpack_ids(payload, data_start, num_tokens, header.id_bytes)
    logp_start = data_start + num_tokens * header.id_bytes
    logp_N = np.frombuffer(payload, "<f4", num_tokens, logp_start).astype(np.float32, copy=True)
    logp_N.setflags(write=False)
    rollouts: list[Rollout] = []
    start = 0
    for rollout in header.rollouts:
        end = start + rollout.length
        finish_reason: FinishReason = "stop" if rollout.stopped else "length"
        rollouts.append(Rollout(id_N[start:end], logp_N[start:end], finish_reason, float(rollout.reward)))
        start = end
    return Group(
        peer=header.peer,
        round=header.round,
        prompt_id=header.prompt_id,
        sampler=SamplerInfo(header.model, header.policy_step, float(header.temperature), header.tokenizer),
        rollouts=tuple(rollouts),
    )


def _read_header(payload: bytes, limits: WireLimits) -> tuple[_Header, int]:
    """The header, and the offset at which it ends."""
    if len(payload) < _PREFIX.size:
        raise WireError(f"message of {len(payload)} bytes, too short for a group", code=_MALFORMED)
    magic, version, header_size = _PREFIX.unpack_from(payload)
    if magic != _MAGIC:
        raise WireError("message does not begin like a group", code=_MALFORMED)
    if version != WIRE_VERSION:
        raise WireError(
            f"message of wire version {version}, this motet speaks version {WIRE_VERSION}: update the older side",
            code=_WRONG_VERSION,
        )
    if header_size > limits.max_header_bytes:
        raise WireError(f"header of {header_size} bytes, limit {limits.max_header_bytes}", code=_OVER_LIMIT)
    end = _PREFIX.size + header_size
    header_bytes = payload[_PREFIX.size : end]
    try:
        header = _DECODER.decode(header_bytes)
    except msgspec.DecodeError as error:
        raise WireError("header that does not parse", code=_MALFORMED) from error
    is_short = all(_is_exact(n) if isinstance(n, int) else isinstance(_shortest(n), float) for n in header.numbers())
    if not is_short or _ENCODER.encode(header) != header_bytes:
        raise WireError("header that is not in its canonical form", code=_MALFORMED)
    return header, end


def _check_limits(header: _Header, limits: WireLimits) -> None:
    if len(header.rollouts) > limits.max_group_size:
        raise WireError(f"group of {len(header.rollouts)} rollouts, limit {limits.max_group_size}", code=_OVER_LIMIT)
    longest = max(rollout.length for rollout in header.rollouts)
    if longest > limits.max_completion_tokens:
        raise WireError(f"rollout of {longest} tokens, limit {limits.max_completion_tokens}", code=_OVER_LIMIT)
    longest_name = max(len(name.encode()) for name in header.names())
    if longest_name > limits.max_name_bytes:
        raise WireError(f"name of {longest_name} bytes, limit {limits.max_name_bytes}", code=_OVER_LIMIT)


def _unpack_ids(payload: bytes, start: int, num_tokens: int, id_bytes: int) -> NDArray[np.uint32]:
    packed = np.frombuffer(payload, np.uint8, num_tokens * id_bytes, start).reshape(num_tokens, id_bytes)
    wide = np.zeros((num_tokens, 4), dtype=np.uint8)
    wide[:, :id_bytes] = packed
    id_N = wide.reshape(-1).view("<u4").astype(np.uint32, copy=False)
    if _narrowest(id_N) != id_bytes:
        raise WireError(f"ids in {id_bytes} bytes each where fewer hold them", code=_MALFORMED)
    id_N.setflags(write=False)
    return id_N


def _shortest(number: float) -> int | float:
    """A whole number as an integer, which takes 1 byte instead of 9 for most rewards; any other as it is."""
    number = float(number)
    is_whole = number.is_integer() and _is_exact(number) and (number != 0 or math.copysign(1, number) > 0)
    return int(number) if is_whole else number


def _is_exact(number: float) -> bool:
    """True if float and integer of this size are the same number."""
    return abs(number) <= _LARGEST_EXACT


def _narrowest(id_N: NDArray[np.uint32]) -> int:
    """Fewest bytes, 1 to 4, that hold the largest id."""
    return max(1, (int(id_N.max()).bit_length() + 7) // 8)
