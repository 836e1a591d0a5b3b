"""A group's bytes on the wire, version 3. Any bytes give a group or one `WireError`, nothing else.

    offset  size
    0       4             magic b"MOTG"
    4       2             wire version, unsigned, little endian (as are all numbers outside the header)
    6       4             H = bytes of the header
    10      H             header: MessagePack of `_Header`; a whole temperature or reward is an integer; rewards that
                          are all 0 or 1 are the bits of one; a fingerprint of 16 hex digits is the number that they are
    10+H    ceil(N*b/8)   N = tokens of all rollouts; a word of b bits for each: the id in the fewest bits (1..32) that
                          hold the largest; above it, if log-probs are compact, its code in the fewest (1..16) likewise
    ...     N*4           exact log-probs, where they are not compact (`motet.records.packing`)

A group has exactly one encoding of either kind, so that equal groups have equal bytes and a signature can cover them.
A group with a log-prob that compact ones cannot hold (above 0, below -31.9995, not finite) travels exact. Whether the
numbers are plausible (log-probs above 0, NaN, an id outside the vocabulary) is for the gate to judge, not for this
module: it promises types, lengths and sizes only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from motet.errors import WireError
from motet.records import packing
from motet.records.rollout import Group, Rollout, SamplerInfo

WIRE_VERSION = 3
_ARCHIVED_VERSION = 2  # differs in the header; archives hold groups with exact log-probs in it

LogProbs = Literal["compact", "exact"]
"""How log-probs travel: in at most 16 bits, or as they are."""

_MAGIC = b"MOTG"
_PREFIX = struct.Struct("<4sHI")
_LARGEST_EXACT = 2**53
_MOST_FLAGS = 64  # bits of MessagePack's largest integer
_ID_DTYPE, _LOG_PROB_DTYPE = np.dtype(np.uint32), np.dtype(np.float32)
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
        """Bytes of the largest header that keeps to the other limits: 4 names, 4 numbers, 18 bytes per rollout."""
        return 64 + 4 * (5 + self.max_name_bytes) + 18 * self.max_group_size


class _Names(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    peer: str
    round: int
    prompt_id: str
    model: str
    policy_step: int
    temperature: int | float
    tokenizer: str | int
    id_bits: Annotated[int, msgspec.Meta(ge=1, le=32)]

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer if isinstance(self.tokenizer, str) else f"{self.tokenizer:016x}"

    def is_shortest(self) -> bool:
        """True if the temperature and the fingerprint stand in no longer form than `encode_group` gives them."""
        return type(self.tokenizer) is type(_hex_as_number(self.tokenizer_name)) and _is_shortest(self.temperature)


_Lengths = Annotated[  # tokens of each rollout, below 0 for one that was cut ("length")
    tuple[Annotated[int, msgspec.Meta(gt=-(2**32), lt=2**32)], ...], msgspec.Meta(min_length=1)
]


class _Header(_Names, array_like=True, forbid_unknown_fields=True, frozen=True):
    code_bits: Annotated[int, msgspec.Meta(ge=0, le=packing.CODE_BITS)]  # 0: exact log-probs
    lengths: _Lengths
    rewards: tuple[int | float, ...] | int

    def reward_of_each(self) -> list[float] | None:
        """Rewards, rollout by rollout; None if there are not as many, or they stand in another form than they must."""
        count, rewards = len(self.lengths), self.rewards
        if isinstance(rewards, int):
            fits = count <= _MOST_FLAGS and 0 <= rewards < 1 << count
            return [float(rewards >> number & 1) for number in range(count)] if fits else None
        values = [float(reward) for reward in rewards]
        shortest = all(map(_is_shortest, rewards)) and not isinstance(_short_rewards(values), int)
        return values if len(values) == count and shortest else None


class _ArchivedHeader(_Names, array_like=True, forbid_unknown_fields=True, frozen=True):
    is_exact: Literal[True]
    lengths: _Lengths
    rewards: tuple[int | float, ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Header)
_ARCHIVED_DECODER = msgspec.msgpack.Decoder(_ArchivedHeader)


def encode_group(group: Group, *, log_probs: LogProbs = "compact") -> bytes:
    """The one encoding of a group, of this kind.

    Args:
        group: what to encode.
        log_probs: "compact": 2 bytes each, changed by less than `LOG_PROB_ERROR_NATS`, or exact if one of them is
            outside the range for that; "exact": 4 bytes each, unchanged.

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
    id_N = np.concatenate([rollout.token_ids for rollout in group.rollouts], dtype=_ID_DTYPE, casting="equiv")
    logp_N = np.concatenate([rollout.logp_gen for rollout in group.rollouts], dtype=_LOG_PROB_DTYPE, casting="equiv")
    code_N = packing.compact_log_probs(logp_N) if log_probs == "compact" else None
    id_bits = packing.num_bits(id_N)
    if code_N is None:
        code_bits, word_N = 0, id_N.astype(np.int64)
    else:
        code_bits, word_N = packing.num_bits(code_N), code_N
        word_N <<= id_bits
        word_N |= id_N
    header = _Header(
        peer=group.peer,
        round=group.round,
        prompt_id=group.prompt_id,
        model=group.sampler.model,
        policy_step=group.sampler.policy_step,
        temperature=_shortest(group.sampler.temperature),
        tokenizer=_hex_as_number(group.sampler.tokenizer),
        id_bits=id_bits,
        code_bits=code_bits,
        lengths=tuple([len(r.token_ids) if r.finish_reason == "stop" else -len(r.token_ids) for r in group.rollouts]),
        rewards=_short_rewards([rollout.reward for rollout in group.rollouts]),
    )
    header_bytes = _ENCODER.encode(header)
    prefix = _PREFIX.pack(_MAGIC, WIRE_VERSION, len(header_bytes))
    exact = packing.exact_log_probs(logp_N) if code_N is None else b""
    return b"".join((prefix, header_bytes, packing.pack(word_N, id_bits + code_bits), exact))


def decode_group(payload: bytes, limits: WireLimits = WireLimits(), *, archived: bool = False) -> Group:
    """The group that `payload` encodes, of either kind; its arrays are read-only and share no memory with `payload`.

    Args:
        payload: the message.
        limits: the most that is accepted.
        archived: accept exact groups of wire version 2 as well, which older archives hold.

    Raises:
        WireError: E-WIRE-01 (not the encoding of a group), E-WIRE-02 (another wire version), E-WIRE-03 (over a limit).
            The message holds no text of the sender's.
    """
    if len(payload) > limits.max_payload_bytes:
        raise WireError(f"message of {len(payload)} bytes, limit {limits.max_payload_bytes}", code=_OVER_LIMIT)
    header, rewards, data_start = _read_header(payload, limits, archived=archived)
    _check_limits(header, limits)
    id_N, logp_N = _read_tokens(payload, data_start, header)
    rollouts: list[Rollout] = []
    start = 0
    for length, reward in zip(header.lengths, rewards, strict=True):
        end = start + abs(length)
        rollouts.append(Rollout(id_N[start:end], logp_N[start:end], "stop" if length > 0 else "length", reward))
        start = end
    sampler = SamplerInfo(header.model, header.policy_step, float(header.temperature), header.tokenizer_name)
    return Group(header.peer, header.round, header.prompt_id, sampler, tuple(rollouts))


def _read_header(payload: bytes, limits: WireLimits, *, archived: bool) -> tuple[_Header, list[float], int]:
    """The header, the reward of each rollout, and the offset at which the header ends."""
    if len(payload) < _PREFIX.size:
        raise WireError(f"message of {len(payload)} bytes, too short for a group", code=_MALFORMED)
    magic, version, header_size = _PREFIX.unpack_from(payload)
    if magic != _MAGIC:
        raise WireError("message does not begin like a group", code=_MALFORMED)
    is_old = archived and version == _ARCHIVED_VERSION
    if version != WIRE_VERSION and not is_old:
        raise WireError(
            f"message of wire version {version}, this motet speaks version {WIRE_VERSION}: update the older side",
            code=_WRONG_VERSION,
        )
    if header_size > limits.max_header_bytes:
        raise WireError(f"header of {header_size} bytes, limit {limits.max_header_bytes}", code=_OVER_LIMIT)
    end = _PREFIX.size + header_size
    header_bytes = payload[_PREFIX.size : end]
    try:
        found = (_ARCHIVED_DECODER if is_old else _DECODER).decode(header_bytes)
    except msgspec.DecodeError as error:
        raise WireError("header that does not parse", code=_MALFORMED) from error
    if not found.is_shortest() or _ENCODER.encode(found) != header_bytes:
        raise WireError("header that is not in its canonical form", code=_MALFORMED)
    header = _of_today(found) if isinstance(found, _ArchivedHeader) else found
    rewards = header.reward_of_each()
    if rewards is None or 0 in header.lengths:
        raise WireError("header whose rollouts do not fit together", code=_MALFORMED)
    return header, rewards, end


def _of_today(old: _ArchivedHeader) -> _Header:
    values = msgspec.structs.asdict(old)
    del values["is_exact"]
    return _Header(**{**values, "code_bits": 0, "rewards": _short_rewards([float(reward) for reward in old.rewards])})


def _check_limits(header: _Header, limits: WireLimits) -> None:
    if len(header.lengths) > limits.max_group_size:
        raise WireError(f"group of {len(header.lengths)} rollouts, limit {limits.max_group_size}", code=_OVER_LIMIT)
    longest = max(max(header.lengths), -min(header.lengths))
    if longest > limits.max_completion_tokens:
        raise WireError(f"rollout of {longest} tokens, limit {limits.max_completion_tokens}", code=_OVER_LIMIT)
    longest_name = max(map(len, map(str.encode, (header.peer, header.prompt_id, header.model, header.tokenizer_name))))
    if longest_name > limits.max_name_bytes:
        raise WireError(f"name of {longest_name} bytes, limit {limits.max_name_bytes}", code=_OVER_LIMIT)


def _read_tokens(payload: bytes, start: int, header: _Header) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    """Ids and log-probs of all rollouts, one after the other; nothing is allocated before the sizes agree."""
    num_tokens, id_bits, code_bits = sum(map(abs, header.lengths)), header.id_bits, header.code_bits
    end = start + packing.packed_size(num_tokens, id_bits + code_bits)
    expected = end if code_bits else end + num_tokens * 4
    if len(payload) != expected:
        raise WireError(f"message of {len(payload)} bytes, its header announces {expected}", code=_MALFORMED)
    view = memoryview(payload)
    word_N = packing.unpack(view[start:end], num_tokens, id_bits + code_bits)
    if word_N is None:
        raise WireError("words with bits behind the last one", code=_MALFORMED)
    seen, mask = int(np.bitwise_or.reduce(word_N)), (1 << id_bits) - 1
    if max(1, (seen & mask).bit_length()) != id_bits or code_bits not in (0, max(1, (seen >> id_bits).bit_length())):
        raise WireError("ids or codes in more bits than they need", code=_MALFORMED)
    id_N = (word_N & mask).astype(np.uint32)
    logp_N = packing.restore_log_probs(word_N >> id_bits) if code_bits else packing.read_exact_log_probs(view[end:])
    id_N.setflags(write=False)
    logp_N.setflags(write=False)
    return id_N, logp_N


def _short_rewards(rewards: Sequence[float]) -> tuple[int | float, ...] | int:
    """Rewards of 0 and 1 alone as bits of a number, the first the lowest; others one by one, in their shortest form."""
    flags, flag = 0, 1
    for reward in rewards:
        if reward == 1:
            flags |= flag
        elif reward != 0 or math.copysign(1, reward) < 0:
            break
        flag <<= 1
    else:
        if len(rewards) <= _MOST_FLAGS:
            return flags
    return tuple(map(_shortest, rewards))


def _shortest(number: float) -> int | float:
    """A whole number as an integer, which takes 1 byte instead of 9 for most rewards; any other as it is."""
    number = float(number)
    is_whole = number.is_integer() and abs(number) <= _LARGEST_EXACT
    return int(number) if is_whole and (number or math.copysign(1, number) > 0) else number


def _is_shortest(number: int | float) -> bool:
    return abs(number) <= _LARGEST_EXACT if isinstance(number, int) else isinstance(_shortest(number), float)


def _hex_as_number(text: str) -> str | int:
    """16 lower-case hex digits as a number, which takes at most 9 bytes instead of 17; any other text as it is."""
    try:
        number = int(text, 16)
    except ValueError:
        return text
    return number if 0 <= number < 2**64 and f"{number:016x}" == text else text
