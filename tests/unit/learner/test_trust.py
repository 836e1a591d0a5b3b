"""A peer's gradient counts as far as it is shown to agree with the node's own: numbers by hand, limits, memory."""

from __future__ import annotations

import dataclasses
import json
import math
import weakref

import numpy as np
import pytest
import torch

from motet.learner import GradientTrust
from motet.learner.trust import RunningMean

OWN, PEER = ["train/0", "train/1", "train/2", "train/3"], ["train/4", "train/5"]
ONES = [torch.ones(2)]


def vector(*numbers: float) -> list[torch.Tensor]:
    return [torch.tensor(numbers)]


def after(trust, rounds, halves, peers):
    for _ in range(rounds):
        total = trust.combine(halves, peers.items(), ONES)
    return total[0].tolist()


class TestByHand:
    HALVES = (vector(1.0, 0.0), vector(1.0, 0.0))

    def test_two_rounds_teach_nothing_and_then_a_twin_has_half(self):
        trust = GradientTrust()
        twin = {"bob": vector(3.0, 0.0)}
        assert after(trust, 2, self.HALVES, twin) == [2.0, 0.0]
        assert trust.share("bob") == 0
        assert after(trust, 1, self.HALVES, twin) == [3.0, 0.0], "its own length is 3: half of |u + v| = 2 is added"
        assert trust.share("bob") == 1

    def test_a_short_gradient_is_not_made_longer(self):
        assert after(GradientTrust(), 3, self.HALVES, {"bob": vector(0.25, 0.0)}) == [2.25, 0.0]

    def test_half_as_aligned_as_the_own_half(self):
        """cos 60 degrees = 0.5 against 1, in every round: no error to subtract."""
        trust = GradientTrust()
        slanted = {"bob": vector(0.5, math.sqrt(0.75))}
        assert after(trust, 3, self.HALVES, slanted) == pytest.approx([2.25, 0.5 * math.sqrt(0.75)])
        assert trust.share("bob") == pytest.approx(0.5)

    def test_what_points_away_teaches_nothing(self):
        trust = GradientTrust()
        assert after(trust, 20, self.HALVES, {"bob": vector(-1.0, 0.2)}) == [2.0, 0.0]
        assert trust.share("bob") == 0

    def test_one_turn_against_it_loses_the_part_against_it(self):
        trust = GradientTrust()
        after(trust, 10, self.HALVES, {"bob": vector(1.0, 0.0)})
        total = after(trust, 1, self.HALVES, {"bob": vector(-1.0, 0.5)})
        assert total[0] == pytest.approx(2.0), "nothing along u and v is taken back"
        assert total[1] == pytest.approx(0.5 * trust.share("bob"))

    def test_peers_are_judged_one_by_one(self):
        trust = GradientTrust()
        total = after(trust, 3, self.HALVES, {"bob": vector(0.5, 0.0), "eve": vector(-5.0, 5.0)})
        assert total == [2.5, 0.0]
        assert (trust.share("bob"), trust.share("eve"), trust.share("who?")) == (1, 0, 0)

    def test_inner_products_are_those_of_the_step(self):
        """An entry whose gradients are usually large counts less: along it both agree, along the other they do not."""
        trust = GradientTrust()
        halves, peers = (vector(1.0, 1.0), vector(1.0, 1.0)), {"bob": vector(1.0, -1.0)}
        for _ in range(3):
            trust.combine(halves, peers.items(), vector(1.0, 0.01))
        assert trust.share("bob") == pytest.approx(0.99 / 1.01)
        blind = GradientTrust()
        after(blind, 3, halves, peers)
        assert blind.share("bob") == 0

    @pytest.mark.parametrize("broken", [math.nan, math.inf])
    def test_a_gradient_that_is_not_finite_is_left_out(self, broken):
        trust = GradientTrust()
        after(trust, 3, self.HALVES, {"bob": vector(1.0, 0.0)})
        assert after(trust, 1, self.HALVES, {"bob": vector(broken, 0.0)}) == [2.0, 0.0]
        assert after(trust, 1, self.HALVES, {"bob": vector(1.0, 0.0)}) == [3.0, 0.0]

    def test_without_an_own_gradient_there_is_none(self):
        trust = GradientTrust()
        after(trust, 3, self.HALVES, {"bob": vector(1.0, 0.0)})
        assert after(trust, 1, (vector(0.0, 0.0), vector(0.0, 0.0)), {"bob": vector(1.0, 0.0)}) == [0.0, 0.0]


def test_one_peers_gradient_is_held_at_a_time():
    alive = weakref.WeakSet()

    def gradients():
        for peer in ("bob", "cid", "dan"):
            assert not alive, f"{list(alive)} beside that of {peer}"
            gradient = vector(1.0, 0.5)
            alive.add(gradient[0])
            yield peer, gradient
            del gradient

    trust = GradientTrust()
    for _ in range(4):
        trust.combine(TestByHand.HALVES, gradients(), ONES)
    assert trust.share("dan") > 0


def test_the_running_mean_is_that_of_numpy():
    numbers = np.random.default_rng(0).normal(size=40)
    mean = RunningMean()
    for number in numbers:
        mean.add(float(number))
    weights = 0.9 ** np.arange(39, -1, -1)
    expected = np.average(numbers, weights=weights)
    effective = weights.sum() ** 2 / (weights**2).sum()
    variance = np.average((numbers - expected) ** 2, weights=weights)
    assert mean.mean == pytest.approx(expected)
    assert mean.num_effective == pytest.approx(effective)
    assert mean.standard_error == pytest.approx(math.sqrt(variance / effective))


@pytest.fixture
def groups(random_policy, sample_groups):
    own = sample_groups(random_policy(), "ann", OWN, seed=1)
    bob = sample_groups(random_policy(), "bob", PEER, seed=2)
    return own, bob


def rewarded(groups, reward):
    """The same groups with other rewards."""
    return [
        dataclasses.replace(g, rollouts=tuple(dataclasses.replace(r, reward=reward(r)) for r in g.rollouts))
        for g in groups
    ]


def is_even(rollout):
    """Something to learn: begin with an even token."""
    return float(rollout.token_ids[0] % 2 == 0)


def is_odd(rollout):
    return 1.0 - is_even(rollout)


@pytest.fixture
def alike(random_policy, sample_groups):
    """Two nodes with the same weights that learn the same."""
    own, bob = (
        sample_groups(random_policy(), name, OWN, seed=seed, size=32, max_new_tokens=1)
        for name, seed in (("ann", 1), ("bob", 2))
    )
    return rewarded(own, is_even), rewarded(bob, is_even)


def assert_close(first, second, tolerance):
    assert all(float((first[name] - weight).abs().max()) <= tolerance for name, weight in second.items())


def test_until_a_peer_is_known_the_steps_are_those_of_training_alone(random_policy, make_learner, groups):
    own, bob = groups
    alone, watched = make_learner(random_policy()), make_learner(random_policy(), trust=GradientTrust())
    for _ in range(2):
        alone.learner.learn(own, [])
        report = watched.learner.learn(own, bob)
        assert report.metrics["external/influence_scale"] == 0
        assert report.uses["bob"].kept == 0
        assert report.uses["bob"].dropped["influence"] > 0
        assert report.uses["bob"].worth == 0
    assert_close(watched.weights(), alone.weights(), 1e-6)


def test_who_learns_the_same_is_learned_from_and_who_learns_the_opposite_is_not(random_policy, make_learner, alike):
    own, bob = alike
    eve = [dataclasses.replace(group, peer="eve") for group in rewarded(bob, is_odd)]
    watched = make_learner(random_policy(), trust=GradientTrust(), rule="off", learning_rate=1e-5)
    for _ in range(5):
        report = watched.learner.learn(own, [*bob, *eve])
    assert report.uses["bob"].kept == sum(len(group.rollouts) for group in bob)
    assert report.uses["eve"].kept == 0
    assert report.metrics["external/influence_share"] > 0


@pytest.mark.parametrize("peers_turn", [2, 5])
def test_without_an_own_signal_no_step_is_taken(random_policy, make_learner, groups, peers_turn):
    own, bob = groups
    dead = rewarded(own, lambda _: 1.0)
    watched = make_learner(random_policy(), trust=GradientTrust())
    for _ in range(peers_turn):
        watched.learner.learn(own, bob)
    before = watched.weights()
    report = watched.learner.learn(dead, bob)
    assert report.metrics["optim/skipped"] == 1
    assert report.metrics["samples/backward"] == 0
    assert all(torch.equal(before[name], weight) for name, weight in watched.weights().items())
    assert all(master.grad is None for master in watched.learner.optimizer.masters)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_micro_batches_do_not_matter(random_policy, make_learner, alike, precision):
    own, bob = alike
    learners = [
        make_learner(random_policy(), trust=GradientTrust(), max_batch_tokens=tokens, precision=precision)
        for tokens in (60, 16384)
    ]
    for _ in range(4):
        reports = [watched.learner.learn(own, bob).metrics for watched in learners]
    assert reports[0]["external/influence_scale"] > 0
    for key in ("loss/value", "clip/share", "optim/grad_norm", "external/influence_scale"):
        assert reports[0][key] == pytest.approx(reports[1][key], rel=1e-3 if precision == "fp32" else 0.1), key


def test_a_checkpoint_remembers_whom_it_trusts(random_policy, make_learner, groups):
    own, bob = groups
    first = make_learner(random_policy(), trust=GradientTrust())
    for _ in range(4):
        first.learner.learn(own, bob)
    trust = GradientTrust()
    again = make_learner(random_policy(), trust=trust)
    again.learner.restore_counters(json.loads(json.dumps(first.learner.counters())))
    assert again.learner.counters() == first.learner.counters()
    with pytest.raises((TypeError, ValueError)):
        trust.restore({"bob": [1.0, 2.0, 3.0, 4.0, 5.0]})
