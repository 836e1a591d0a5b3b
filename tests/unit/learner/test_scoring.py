"""Scoring against the model's own logits, row by row."""

from __future__ import annotations

import pytest
import torch

from motet.learner import build_batch
from motet.learner.scoring import score_rows


@pytest.fixture
def scored(encode, sample_groups):
    def score(policy, *, temperature=1.0, seed=0):
        groups = sample_groups(policy, "ann", ["train/0", "train/2", "train/5"], temperature=temperature, seed=seed)
        batch = build_batch(groups, [], prompt_ids=encode(policy), joined=False)
        return batch, score_rows(policy, batch, torch.arange(len(batch)))

    return score


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_every_row_as_if_it_were_alone(random_policy, scored, architecture, temperature):
    policy = random_policy(architecture)
    batch, logp_BT = scored(policy, temperature=temperature)
    assert logp_BT.requires_grad
    for row, rollout in enumerate(batch.rollouts):
        prompt, ids = list(batch.prompt_ids[row]), rollout.token_ids.tolist()
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / temperature, dim=-1)[range(len(ids)), ids]
        torch.testing.assert_close(logp_BT[row, : len(ids)].detach(), expected, atol=1e-5, rtol=0)
        assert bool((logp_BT[row, len(ids) :] == 0).all())


def test_rows_may_be_chosen_in_any_order(random_policy, scored):
    policy = random_policy()
    batch, logp_BT = scored(policy)
    rows = torch.tensor([7, 0, 3])
    torch.testing.assert_close(score_rows(policy, batch, rows), logp_BT[rows], atol=1e-5, rtol=0)


def test_gradients_reach_every_weight(random_policy, scored):
    policy = random_policy("qwen3")
    _, logp_BT = scored(policy)
    logp_BT.sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in policy.trainable().values())
