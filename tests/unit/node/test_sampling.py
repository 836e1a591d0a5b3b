"""A node's own groups."""

from __future__ import annotations

import numpy as np
import pytest

from motet.generation import HFGenerator
from motet.node import derived_seed
from motet.node.sampling import Sampler
from motet.swarm import Ask
from motet.tasks import Score
from motet.tasks.running_sums import RunningSums


@pytest.fixture
def sampler(tiny_policy):
    def build(task, seed=0, name="ann"):
        policy = tiny_policy()
        return Sampler(
            name,
            seed=seed,
            policy=policy,
            generator=HFGenerator(policy),
            task=task,
            max_new_tokens=10,
            temperature=0.8,
        )

    return build


ASKS = [Ask("train/3", 2), Ask("train/1", 3)]


def test_groups_are_scored_and_say_how_they_were_sampled(sampler):
    task = RunningSums()
    made = sampler(task)
    groups = made.sample(ASKS, round=4, policy_step=7)
    assert [(g.peer, g.round, g.prompt_id, len(g.rollouts)) for g in groups] == [
        ("ann", 4, "train/3", 2),
        ("ann", 4, "train/1", 3),
    ]
    for group in groups:
        assert (group.sampler.model, group.sampler.policy_step, group.sampler.temperature) == ("tiny:small", 7, 0.8)
        for rollout in group.rollouts:
            assert rollout.reward in {0.0, 1.0}
            assert rollout.token_ids.dtype == np.uint32


def test_the_same_round_again_is_the_same(sampler):
    task = RunningSums()

    def ids(groups):
        return [r.token_ids.tolist() for g in groups for r in g.rollouts]

    first = ids(sampler(task).sample(ASKS, round=1, policy_step=0))
    assert ids(sampler(task).sample(ASKS, round=1, policy_step=0)) == first
    assert ids(sampler(task).sample(ASKS, round=2, policy_step=0)) != first
    assert ids(sampler(task, seed=1).sample(ASKS, round=1, policy_step=0)) != first
    assert ids(sampler(task, name="bob").sample(ASKS, round=1, policy_step=0)) != first


def test_completions_without_a_score_are_left_out_and_empty_groups_too(sampler):
    class Picky(RunningSums):
        def score(self, prompt, completions):
            if prompt.id == "train/3":
                return [None] * len(completions)
            return [None if index == 1 else Score(float(index)) for index in range(len(completions))]

    (group,) = sampler(Picky()).sample(ASKS, round=0, policy_step=0)
    assert group.prompt_id == "train/1"
    assert [rollout.reward for rollout in group.rollouts] == [0.0, 2.0]


def test_nothing_asked_nothing_sampled(sampler):
    assert sampler(RunningSums()).sample([], round=0, policy_step=0) == []


def test_seeds_of_different_purposes_differ():
    purposes = [(s, p, n, r) for s in (0, 1) for p in ("sample", "adapter") for n in ("ann", "bob") for r in range(3)]
    seeds = {derived_seed(s, p, n, r) for s, p, n, r in purposes}
    assert len(seeds) == len(purposes)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(0, "a", "b") != derived_seed(0, "ab")
