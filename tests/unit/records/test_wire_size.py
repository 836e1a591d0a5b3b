from __future__ import annotations

import sys

import numpy as np
import pytest

from motet.records import Group, Rollout, SamplerInfo, encode_group


def make_group(num_rollouts: int, length: int, vocab_size: int) -> Group:
    """As a node would send it: names of usual lengths, one rollout in four cut."""
    rng = np.random.default_rng(0)
    rollouts = tuple(
        Rollout(
            rng.integers(0, vocab_size, length, dtype=np.uint32),
            -rng.exponential(0.5, size=length).astype(np.float32),
            "length" if index % 4 == 3 else "stop",
            float(rng.integers(0, 2)),
        )
        for index in range(num_rollouts)
    )
    sampler = SamplerInfo(model="smollm2:135m", policy_step=1234, temperature=0.7, tokenizer="9c1f0b2d3e4a5566")
    return Group("node-12", 1234, "train/123456", sampler, rollouts)


@pytest.mark.parametrize(
    ("num_rollouts", "length", "vocab_size", "most", "most_exact"),
    [
        (8, 200, 49_152, 4.1, 6.1),
        (8, 200, 151_936, 4.35, 6.35),
        (8, 200, 262_144, 4.35, 6.35),
        (8, 24, 49_152, 4.3, 6.5),
        (8, 12, 16, 3.5, 5.5),
        (8, 24, 262_144, 4.5, 6.7),
        (2, 12, 16, 5.8, 7.8),
        (64, 200, 262_144, 4.3, 6.3),
    ],
)
def test_bytes_per_token(
    num_rollouts: int,
    length: int,
    vocab_size: int,
    most: float,
    most_exact: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group = make_group(num_rollouts, length, vocab_size)
    compact, exact = (len(encode_group(group, log_probs=kind)) / group.num_tokens for kind in ("compact", "exact"))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{num_rollouts} x {length} tokens, {vocab_size} ids: {compact:.2f} bytes per token, exact {exact:.2f}\n"
        )
    assert 2 < compact <= most
    assert 4 < exact <= most_exact
