"""`bench wire`: bytes per token, and tokens per second, of groups on the wire; beside plain MessagePack of arrays.

And tokens per second through the gate that judges what comes, scoring aside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np

from motet.bench.gate import gate_tokens_per_s
from motet.bench.machine import describe_machine, now
from motet.bench.process import Say
from motet.records import Group, Rollout, SamplerInfo, decode_group, encode_group

VOCABULARIES = (16, 49_152, 262_144)
COMPLETIONS = (12, 24, 200)
GROUP_SIZE = 8
_LIKELIEST_NATS = 8.0


@dataclass(frozen=True, slots=True)
class Encoding:
    """One way to bytes and back."""

    encode: Callable[[Group], bytes]
    decode: Callable[[bytes], Any]


ENCODINGS = {
    "compact": Encoding(partial(encode_group, log_probs="compact"), decode_group),
    "exact": Encoding(partial(encode_group, log_probs="exact"), decode_group),
    "msgpack": Encoding(lambda group: msgspec.msgpack.encode(_as_arrays(group)), lambda data: _from_arrays(data)),
}
"""The wire's two forms, and MessagePack of int32 ids and float32 log-probs: 8 bytes a token and a small header."""


def bench_wire(
    *,
    say: Say,
    vocabularies: Sequence[int] = VOCABULARIES,
    completions: Sequence[int] = COMPLETIONS,
    num_tokens: int = 60_000,
    repeats: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure every pair of vocabulary and length, and return every figure as plain data.

    Ids are drawn evenly, which no compression can shorten; log-probs as -8 x^3 with x even in (0, 1], most near 0.
    """
    cells = []
    for vocabulary in vocabularies:
        for completion in completions:
            say(f"wire: vocabulary of {vocabulary:,}, completions of {completion}")
            groups = draw_groups(vocabulary, completion, num_tokens=num_tokens, seed=seed)
            figures: dict[str, Any] = {**measure_groups(groups, repeats)}
            figures["gate"] = {"tokens_per_s": gate_tokens_per_s(groups, vocabulary, repeats=repeats)}
            cells.append({"vocabulary": vocabulary, "completion": completion, **figures})
    return {
        "bench": "wire",
        "date": now(),
        "machine": describe_machine(),
        "settings": {"group_size": GROUP_SIZE, "tokens": num_tokens, "repeats": repeats, "seed": seed},
        "figures": cells,
    }


def measure_groups(groups: Sequence[Group], repeats: int) -> dict[str, dict[str, float]]:
    """Bytes per token, rates and error of each encoding; encodings take turns, medians count."""
    num_tokens = sum(group.num_tokens for group in groups)
    messages = {name: [encoding.encode(group) for group in groups] for name, encoding in ENCODINGS.items()}
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ENCODINGS}
    for _ in range(repeats):
        for name, encoding in ENCODINGS.items():
            seconds[name][0].append(_clocked(encoding.encode, groups))
            seconds[name][1].append(_clocked(encoding.decode, messages[name]))
    return {
        name: {
            "bytes_per_token": sum(map(len, messages[name])) / num_tokens,
            "encode_tokens_per_s": num_tokens / statistics.median(seconds[name][0]),
            "decode_tokens_per_s": num_tokens / statistics.median(seconds[name][1]),
            "largest_error_nats": _largest_error(groups, messages[name]) if name != "msgpack" else 0.0,
        }
        for name in ENCODINGS
    }


def draw_groups(vocabulary: int, completion: int, *, num_tokens: int, seed: int) -> list[Group]:
    """Groups of completions of exactly this length, `num_tokens` tokens or a little more in all."""
    rng = np.random.default_rng(seed)
    sampler = SamplerInfo("tiny:small", 3, 1.0, "0123456789abcdef")
    groups = []
    for number in range(-(-num_tokens // (GROUP_SIZE * completion))):
        rollouts = tuple(
            Rollout(
                rng.integers(0, vocabulary, completion, dtype=np.uint32),
                (-_LIKELIEST_NATS * (1 - rng.random(completion)) ** 3).astype(np.float32),
                "stop",
                float(row % 2),
            )
            for row in range(GROUP_SIZE)
        )
        groups.append(Group("kim", 3, f"train/{number}", sampler, rollouts))
    return groups


def _clocked(function: Callable[[Any], Any], arguments: Sequence[Any]) -> float:
    start = time.perf_counter()
    for argument in arguments:
        function(argument)
    return time.perf_counter() - start


def _largest_error(groups: Sequence[Group], messages: Sequence[bytes]) -> float:
    return max(
        float(np.abs(sent.logp_gen - got.logp_gen).max())
        for group, message in zip(groups, messages, strict=True)
        for sent, got in zip(group.rollouts, decode_group(message).rollouts, strict=True)
    )


def _as_arrays(group: Group) -> tuple[object, ...]:
    rows = [(r.token_ids.tobytes(), r.logp_gen.tobytes(), r.finish_reason, r.reward) for r in group.rollouts]
    sampler = group.sampler
    return (
        (group.peer, group.round, group.prompt_id),
        (sampler.model, sampler.policy_step, sampler.temperature, sampler.tokenizer),
        rows,
    )


def _from_arrays(data: bytes) -> Group:
    (peer, round, prompt_id), sampler, rows = msgspec.msgpack.decode(data)
    rollouts = tuple(
        Rollout(np.frombuffer(ids, np.uint32), np.frombuffer(logp, np.float32), finish, reward)
        for ids, logp, finish, reward in rows
    )
    return Group(peer, round, prompt_id, SamplerInfo(*sampler), rollouts)
