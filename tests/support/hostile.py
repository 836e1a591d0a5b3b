"""Groups that no honest node sends, of every kind, made from honest ones; and floods of them.

`ATTACKS` has the reason for which each must be rejected if it comes alone. Whoever sends several of one prompt may meet
"duplicate" instead, and whoever goes on "over_quota" and "quarantined".
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from motet.records import Group, encode_group


@dataclass(frozen=True, slots=True)
class Target:
    """Whom the groups are sent to.

    Attributes:
        name: of the receiver.
        other: of a third node.
        unassigned: a training prompt that the sender was not given.
        vocab_size: ids lie below it.
        end: id of the end token.
        max_new_tokens: longest completion.
    """

    name: str
    other: str
    unassigned: str
    vocab_size: int
    end: int
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Attack:
    """How a group is made hostile, and why the gate must reject it.

    Attributes:
        make: from an honest group to a hostile one, or to bytes.
        reason: the gate's.
    """

    make: Callable[[Group, Target], Group | bytes]
    reason: str

    def payload(self, group: Group, target: Target) -> bytes:
        """What is sent."""
        made = self.make(group, target)
        return made if isinstance(made, bytes) else encode_group(made, log_probs="exact")


@dataclass(frozen=True, slots=True)
class Shot:
    """One message of a flood."""

    kind: str
    reason: str
    payload: bytes


def change(group: Group, index: int = 0, **fields: Any) -> Group:
    """The group with one rollout changed."""
    rollouts = list(group.rollouts)
    rollouts[index] = dataclasses.replace(rollouts[index], **fields)
    return dataclasses.replace(group, rollouts=tuple(rollouts))


def change_sampler(group: Group, **fields: Any) -> Group:
    """The group with another sampler."""
    return dataclasses.replace(group, sampler=dataclasses.replace(group.sampler, **fields))


def with_logp(group: Group, value: float) -> Group:
    """One token's log-prob replaced."""
    logp = group.rollouts[0].logp_gen.copy()
    logp[-1] = value
    return change(group, logp_gen=logp)


def lowered(group: Group, nats: float) -> Group:
    """All claims lower by so many nats: a forger who wants weight."""
    rollouts = (dataclasses.replace(r, logp_gen=(r.logp_gen - np.float32(nats))) for r in group.rollouts)
    return dataclasses.replace(group, rollouts=tuple(rollouts))


def repeated(group: Group, nats: float) -> Group:
    """One completion again and again, each time claimed to be rare."""
    first = group.rollouts[0]
    rare = dataclasses.replace(first, logp_gen=np.full_like(first.logp_gen, -nats))
    return dataclasses.replace(group, rollouts=(rare,) * len(group.rollouts))


def with_ids(group: Group, ids: Sequence[int], finish_reason: str = "stop") -> Group:
    """The first completion replaced."""
    new = np.array(ids, dtype=np.uint32)
    return change(group, token_ids=new, logp_gen=np.full(len(new), -0.5, np.float32), finish_reason=finish_reason)


def with_header(payload: bytes, position: int, value: object) -> bytes:
    """The payload with one field of its header replaced: what no honest encoder would write."""
    size = struct.unpack_from("<4sHI", payload)[2]
    header = msgspec.msgpack.decode(payload[10 : 10 + size])
    header[position] = value
    return with_header_bytes(payload, msgspec.msgpack.encode(header))


def with_header_bytes(payload: bytes, header: bytes) -> bytes:
    """The payload with another header."""
    magic, version, size = struct.unpack_from("<4sHI", payload)
    return struct.pack("<4sHI", magic, version, len(header)) + header + payload[10 + size :]


def ragged_header(payload: bytes) -> bytes:
    """One rollout announces three tokens more than it has."""
    size = struct.unpack_from("<4sHI", payload)[2]
    lengths = msgspec.msgpack.decode(payload[10 : 10 + size])[9]
    return with_header(payload, 9, [lengths[0] + (3 if lengths[0] > 0 else -3), *lengths[1:]])


def set_bytes(payload: bytes, offset: int, new: bytes) -> bytes:
    """Some bytes replaced."""
    return payload[:offset] + new + payload[offset + len(new) :]


def _noise(group: Group, seed: int) -> bytes:
    return np.random.default_rng([seed, group.round, len(group.prompt_id)]).bytes(2000)


ATTACKS: dict[str, Attack] = {
    name: Attack(make, reason)
    for name, (make, reason) in {
        "nan": (lambda g, _: with_logp(g, math.nan), "bad_logp"),
        "inf": (lambda g, _: with_logp(g, math.inf), "bad_logp"),
        "minus-inf": (lambda g, _: with_logp(g, -math.inf), "bad_logp"),
        "positive-logp": (lambda g, _: with_logp(g, 0.5), "bad_logp"),
        "absurd-logp": (lambda g, _: with_logp(g, -1e30), "bad_logp"),
        "forged-everywhere": (lambda g, _: lowered(g, 900.0), "forged_logp"),
        "forged-by-6-nats": (lambda g, _: lowered(g, 6.0), "forged_logp"),
        "forged-in-one-place": (lambda g, _: with_logp(g, -300.0), "forged_logp"),
        "nan-reward": (lambda g, _: change(g, reward=math.nan), "bad_reward"),
        "infinite-reward": (lambda g, _: change(g, reward=math.inf), "bad_reward"),
        "beyond-vocabulary": (lambda g, t: with_ids(g, [5, t.vocab_size, t.end]), "bad_token"),
        "largest-id": (lambda g, t: with_ids(g, [2**32 - 1, t.end]), "bad_token"),
        "end-in-the-middle": (lambda g, t: with_ids(g, [5, t.end, 6, t.end]), "bad_token"),
        "stop-without-end": (lambda g, _: with_ids(g, [5, 6, 7]), "bad_token"),
        "cut-with-end": (lambda g, t: with_ids(g, [5] * (t.max_new_tokens - 1) + [t.end], "length"), "bad_token"),
        "too-long": (lambda g, t: with_ids(g, [5] * t.max_new_tokens + [t.end]), "bad_length"),
        "cut-too-early": (lambda g, _: with_ids(g, [5, 6], "length"), "bad_length"),
        "too-many": (lambda g, _: dataclasses.replace(g, rollouts=g.rollouts * 40), "bad_group_size"),
        "test-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="test/0"), "unassigned_prompt"),
        "prompt-of-another": (lambda g, t: dataclasses.replace(g, prompt_id=t.unassigned), "unassigned_prompt"),
        "no-such-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="train/999999999"), "unknown_prompt"),
        "no-prompt": (lambda g, _: dataclasses.replace(g, prompt_id=""), "unknown_prompt"),
        "path-as-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="../../etc/passwd"), "unknown_prompt"),
        "escapes-as-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="\x1b[2J\x00\n"), "unknown_prompt"),
        "other-tokenizer": (lambda g, _: change_sampler(g, tokenizer="0" * 32), "wrong_tokenizer"),
        "temperature-0": (lambda g, _: change_sampler(g, temperature=0.0), "bad_sampler"),
        "temperature-nan": (lambda g, _: change_sampler(g, temperature=math.nan), "bad_sampler"),
        "temperature-inf": (lambda g, _: change_sampler(g, temperature=math.inf), "bad_sampler"),
        "temperature-below-0": (lambda g, _: change_sampler(g, temperature=-1.0), "bad_sampler"),
        "step-below-0": (lambda g, _: change_sampler(g, policy_step=-5), "bad_sampler"),
        "step-of-64-bits": (lambda g, _: change_sampler(g, policy_step=2**64 - 1), "bad_sampler"),
        "as-the-receiver": (lambda g, t: dataclasses.replace(g, peer=t.name), "impersonation"),
        "as-another": (lambda g, t: dataclasses.replace(g, peer=t.other), "impersonation"),
        "as-nobody": (lambda g, _: dataclasses.replace(g, peer=""), "impersonation"),
        "escapes-as-name": (lambda g, _: dataclasses.replace(g, peer="\x1b[31m" + g.peer), "impersonation"),
        "other-round": (lambda g, _: dataclasses.replace(g, round=g.round + 1), "wrong_round"),
        "round-below-0": (lambda g, _: dataclasses.replace(g, round=-1), "wrong_round"),
        "round-of-64-bits": (lambda g, _: dataclasses.replace(g, round=2**64 - 1), "wrong_round"),
        "other-version": (lambda g, _: set_bytes(encode_group(g), 4, b"\x02\x00"), "wrong_version"),
        "version-to-come": (lambda g, _: set_bytes(encode_group(g), 4, b"\x04\x00"), "wrong_version"),
        "other-magic": (lambda g, _: set_bytes(encode_group(g), 0, b"PK\x03\x04"), "malformed"),
        "cut": (lambda g, _: encode_group(g)[:-1], "malformed"),
        "prefix-only": (lambda g, _: encode_group(g)[:10], "malformed"),
        "longer": (lambda g, _: encode_group(g) + b"\0", "malformed"),
        "two-in-one": (lambda g, _: encode_group(g) * 2, "malformed"),
        "ragged": (lambda g, _: ragged_header(encode_group(g)), "malformed"),
        "no-rollouts": (lambda g, _: with_header(encode_group(g), 9, []), "malformed"),
        "no-rewards": (lambda g, _: with_header(encode_group(g), 10, []), "malformed"),
        "billions-announced": (lambda g, _: with_header(encode_group(g), 9, [2**31, 2**31]), "malformed"),
        "other-id-bits": (lambda g, _: with_header(encode_group(g), 7, 32), "malformed"),
        "exact-announced": (lambda g, _: with_header(encode_group(g), 8, True), "malformed"),
        "other-types": (lambda g, _: with_header(encode_group(g), 1, "zero"), "malformed"),
        "round-as-float": (lambda g, _: with_header(encode_group(g), 1, 0.0), "malformed"),
        "missing-field": (lambda g, _: with_header_bytes(encode_group(g), b"\x92\xa3bob\x00"), "malformed"),
        "text-of-no-encoding": (lambda g, _: with_header_bytes(encode_group(g), b"\x9b\xa2\xff\xfe"), "malformed"),
        "deep-header": (lambda g, _: with_header_bytes(encode_group(g), b"\x91" * 800), "malformed"),
        "header-of-gigabytes": (lambda g, _: set_bytes(encode_group(g), 6, b"\xff\xff\xff\xff"), "malformed"),
        "kilobyte-as-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="x" * 1000), "malformed"),
        "empty": (lambda _g, _: b"", "malformed"),
        "random": (lambda g, _: _noise(g, 0), "malformed"),
        "random-behind-a-good-start": (lambda g, _: encode_group(g)[:10] + _noise(g, 1), "malformed"),
        "zeros": (lambda _g, _: bytes(100_000), "malformed"),
        "too-large": (lambda _g, _: bytes(4_000_001), "malformed"),
        "pickle": (lambda _g, _: pickle.dumps(print), "malformed"),
    }.items()
}


def flood(honest: Sequence[Group], target: Target, *, count: int, seed: int = 0) -> list[Shot]:
    """So many hostile messages made from honest groups: every kind about equally often, in an order by the seed."""
    random = np.random.default_rng(seed)
    kinds = [name for name in ATTACKS if name != "too-large" or count <= 2 * len(ATTACKS)]  # 4 MB each
    shots = []
    for number in range(count):
        name = kinds[number % len(kinds)]
        group = honest[int(random.integers(len(honest)))]
        shots.append(Shot(name, ATTACKS[name].reason, ATTACKS[name].payload(group, target)))
    return [shots[index] for index in random.permutation(count)]
