"""Groups as arrays, and micro-batches under a token budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.learner import build_batch
from motet.records import Group, Rollout, SamplerInfo

PROMPTS = {"train/0": [1, 2, 3], "train/1": [4]}


def group(peer, prompt_id, lengths, rewards, *, round=0, temperature=1.0):
    rollouts = tuple(
        Rollout(np.arange(1, n + 1, dtype=np.uint32), np.full(n, -0.5, np.float32), "length", reward)
        for n, reward in zip(lengths, rewards, strict=True)
    )
    return Group(peer, round, prompt_id, SamplerInfo("m", 0, temperature, "t"), rollouts)


def build(own, foreign=(), **options):
    return build_batch(own, foreign, prompt_ids=PROMPTS.__getitem__, **({"joined": False} | options))


def test_rows():
    own = [group("ann", "train/0", [2, 4], [1.0, 0.0], temperature=0.5)]
    foreign = [group("bob", "train/1", [1, 3, 2], [0.0, 0.0, 1.0])]
    batch = build(own, foreign)
    assert len(batch) == 5
    assert batch.peers == ["ann", "ann", "bob", "bob", "bob"]
    assert batch.is_external_B.tolist() == [False, False, True, True, True]
    assert batch.group_B.tolist() == [0, 0, 1, 1, 1]
    assert [list(ids) for ids in batch.prompt_ids] == [[1, 2, 3]] * 2 + [[4]] * 3
    assert batch.length_B.tolist() == [2, 4, 1, 3, 2]
    assert batch.temperature_B.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert batch.mask_BT.sum(dim=1).tolist() == [2, 4, 1, 3, 2]
    assert batch.logp_gen_BT.tolist()[2] == [-0.5, 0.0, 0.0, 0.0]
    half = 1 / 2**0.5
    expected = [half, -half, -(1 / 3) / (1 / 3) ** 0.5, -(1 / 3) / (1 / 3) ** 0.5, (2 / 3) / (1 / 3) ** 0.5]
    torch.testing.assert_close(batch.advantage_B, torch.tensor(expected), atol=5e-4, rtol=0)


def test_advantages_that_are_not_scaled():
    batch = build([group("ann", "train/0", [1, 1], [1.0, 0.5])], scale_rewards="none")
    assert batch.advantage_B.tolist() == [0.25, -0.25]


def test_masked_completions_teach_nothing_and_count_in_their_group():
    cut, whole = group("ann", "train/0", [2, 2], [0.0, 0.0]).rollouts[0], []
    for reward in (1.0, 0.0):
        whole.append(Rollout(np.array([5, 1], np.uint32), np.full(2, -0.5, np.float32), "stop", reward))
    mixed = Group("ann", 0, "train/0", SamplerInfo("m", 0, 1.0, "t"), (*whole, cut))
    masked, scored = (
        build([], [mixed], scale_rewards="none", mask_truncated=mask).advantage_B.tolist() for mask in (True, False)
    )
    assert scored == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert masked == pytest.approx([2 / 3, -1 / 3, 0.0])


def test_the_mask_comes_from_lengths_not_from_ids():
    zeros = Rollout(np.zeros(3, np.uint32), np.zeros(3, np.float32), "length", 1.0)
    batch = build([Group("ann", 0, "train/0", SamplerInfo("m", 0, 1.0, "t"), (zeros,))])
    assert batch.mask_BT.tolist() == [[True, True, True]]


def test_shares_are_joined_by_prompt_and_round():
    own = [group("ann", "train/0", [1, 1], [1.0, 1.0]), group("ann", "train/1", [1], [1.0])]
    foreign = [
        group("bob", "train/0", [1], [0.0]),
        group("bob", "train/0", [1], [0.0], round=1),
        group("cid", "train/1", [1], [1.0]),
    ]
    assert build(own, foreign, joined=True).group_B.tolist() == [0, 0, 1, 0, 2, 1]
    assert build(own, foreign).group_B.tolist() == [0, 0, 1, 2, 3, 4]


def test_no_rollout():
    with pytest.raises(ValueError, match="at least one"):
        build([])
