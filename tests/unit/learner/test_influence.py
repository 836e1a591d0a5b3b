"""No peer decides a step: who is scaled, that the gradient is that of scaled coefficients, what forgery buys."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from motet.core import ftis_loss

OWN, PEER, OTHER = ["train/0"], ["train/1", "train/2", "train/3"], ["train/4"]


@pytest.fixture
def groups(random_policy, sample_groups):
    """Three groups of bob's against one of our own and one of cid's: bob would have most of the step."""
    own = sample_groups(random_policy(), "ann", OWN, seed=1)
    bob = sample_groups(random_policy(), "bob", PEER, seed=2, temperature=0.8, size=5)
    cid = sample_groups(random_policy(), "cid", OTHER, seed=3)
    return own, bob, cid


def scaled_up(gradient, factor):
    return {name: factor * tensor for name, tensor in gradient.items()}


def summed(*gradients):
    return {name: sum(gradient[name] for gradient in gradients) for name in gradients[0]}


@pytest.mark.parametrize("max_batch_tokens", [1, 40, 16384])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("limit", [0.5, 0.3])
def test_the_gradient_is_that_of_the_scaled_parts(
    random_policy, make_learner, groups, assert_alike, limit, packed, max_batch_tokens
):
    """g = (B_own g_own + sum_p s_p B_p g_p) / B with the parts' own gradients, whatever the path."""
    own, bob, cid = groups

    def policy():
        made = random_policy()
        made.takes_plans = packed
        return made

    parts, sizes = [], []
    for part in ((own, []), ([], bob), ([], cid)):
        alone = make_learner(policy(), dtype=torch.float64)
        alone.learner.learn(*part)
        parts.append(alone.gradients[0])
        sizes.append(sum(len(group.rollouts) for group in (*part[0], *part[1])))
    watched = make_learner(policy(), max_influence=limit, dtype=torch.float64, max_batch_tokens=max_batch_tokens)
    seen = []
    step = watched.learner.optimizer.step
    watched.learner.optimizer.step = lambda number: seen.append(number) or step(number)
    report = watched.learner.learn(own, [*bob, *cid])
    assert seen == [0], "one step, however often its gradient was computed"
    free = make_learner(policy(), dtype=torch.float64)
    shares = free.learner.learn(own, [*bob, *cid]).metrics
    assert shares["external/influence_max"] > limit
    assert shares["external/influence_scale"] == 1
    scale = report.metrics["external/influence_scale"]
    assert report.metrics["external/influence_max"] == pytest.approx(limit)
    scales = [1.0, scale, cid_scale(watched, own, bob, cid, limit)]
    expected = summed(*(scaled_up(g, s * n / sum(sizes)) for g, s, n in zip(parts, scales, sizes, strict=True)))
    assert_alike(watched.gradients[0], expected, 1e-5)


def cid_scale(watched, own, bob, cid, limit):
    """Cid's scale, from influences by hand: with a limit of 0.3 both peers are scaled, to one influence."""
    amounts = [influence_of(watched, *part) for part in ((own, []), ([], bob), ([], cid))]
    ceiling = limit * (amounts[0] + amounts[2]) / (1 - limit)
    if amounts[2] <= ceiling:
        return 1.0
    return limit * amounts[0] / (1 - 2 * limit) / amounts[2]


def influence_of(watched, own, foreign):
    """Summed |A| of what is kept: samplers have our own weights here, so that every weight is 1."""
    del watched
    total = 0.0
    for group in (*own, *foreign):
        rewards = np.array([rollout.reward for rollout in group.rollouts])
        advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        total += np.abs(advantages if own else advantages[advantages > 0]).sum()
    return total


@pytest.mark.parametrize("limit", [None, 1.0, 0.99])
def test_without_need_not_a_bit_changes(random_policy, make_learner, groups, limit):
    own, bob, cid = groups
    plain, watched = make_learner(random_policy()), make_learner(random_policy(), max_influence=limit)
    for _ in range(3):
        report, again = plain.learner.learn(own, [*bob, *cid]), watched.learner.learn(own, [*bob, *cid])
        assert report == again
    assert all(torch.equal(plain.weights()[name], weight) for name, weight in watched.weights().items())


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_precisions(random_policy, make_learner, groups, precision):
    own, bob, cid = groups
    watched = make_learner(random_policy(), max_influence=0.4, precision=precision)
    report = watched.learner.learn(own, [*bob, *cid])
    assert report.metrics["external/influence_max"] == pytest.approx(0.4, rel=1e-2)
    assert report.metrics["optim/skipped"] == 0


@pytest.mark.parametrize("options", [{"rule": "off"}, {"rule": "both"}, {"weights": "none"}, {"level": "sequence"}])
def test_methods(random_policy, make_learner, groups, options):
    own, bob, cid = groups
    report = make_learner(random_policy(), max_influence=0.35, **options).learner.learn(own, [*bob, *cid])
    assert report.metrics["external/influence_max"] == pytest.approx(0.35)
    assert report.metrics["external/influence_scale"] < 1


def test_a_peer_that_would_be_alone_teaches_nothing(random_policy, make_learner, groups):
    """Our own group has no variance: bob would have all of the step, whatever he is scaled by."""
    own, bob, _ = groups
    dead = [
        dataclasses.replace(group, rollouts=tuple(dataclasses.replace(r, reward=1.0) for r in group.rollouts))
        for group in own
    ]
    watched = make_learner(random_policy(), max_influence=0.5)
    before = watched.weights()
    report = watched.learner.learn(dead, bob)
    assert report.metrics["optim/skipped"] == 1
    assert report.metrics["samples/backward"] == 0
    assert report.metrics["external/influence_scale"] == report.metrics["external/influence_max"] == 0
    assert all(torch.equal(before[name], weight) for name, weight in watched.weights().items())
    assert all(master.grad is None for master in watched.learner.optimizer.masters)
    use = report.uses["bob"]
    assert use.kept == 0
    assert sum(use.dropped.values()) == sum(len(group.rollouts) for group in bob)
    assert use.dropped["influence"] > 0


def test_own_samples_are_never_scaled(random_policy, groups, make_learner):
    own, _, _ = groups
    watched, plain = make_learner(random_policy(), max_influence=0.01), make_learner(random_policy())
    assert watched.learner.learn(own, []) == plain.learner.learn(own, [])


class TestForgedClaims:
    """A lower claim buys weight up to the cap, and nothing past the filter."""

    TOKENS = 12

    def lose(self, nats, advantage, **method):
        """The loss of one external completion whose claims are lowered by so many nats."""
        random = torch.Generator().manual_seed(0)
        logp = -torch.rand(1, self.TOKENS, generator=random)
        honest = logp + 0.1 * torch.randn(1, self.TOKENS, generator=random)
        theta = logp.clone().requires_grad_()
        loss = ftis_loss(
            theta, logp, honest - nats, torch.ones(1, self.TOKENS), torch.tensor([advantage]), torch.tensor([True]),
            **method,
        )  # fmt: skip
        (gradient,) = torch.autograd.grad(loss.loss, theta) if loss.loss.requires_grad else (torch.zeros_like(theta),)
        return loss, gradient

    @pytest.mark.parametrize("nats", [0.1, 0.7, 2.0, 20.0, 900.0])
    @pytest.mark.parametrize("cap", [1.0, 2.0, 5.0])
    @pytest.mark.parametrize("rule", ["either", "both", "off"])
    def test_no_weight_beyond_the_cap(self, nats, cap, rule):
        loss, gradient = self.lose(nats, 1.0, cap=cap, rule=rule)
        assert float(loss.weight_BT.max()) <= cap
        assert float(gradient.abs().max()) <= cap / self.TOKENS + 1e-6
        assert math.isfinite(float(loss.loss.detach()))

    @pytest.mark.parametrize("nats", [0.0, 0.1, 0.7, 2.0, 2.5, 20.0, 900.0])
    def test_nothing_that_pushes_away_passes(self, nats):
        loss, gradient = self.lose(nats, -1.0, rule="either")
        assert not bool(loss.keep_B.any())
        assert float(gradient.abs().max()) == 0

    @pytest.mark.parametrize("nats", [2.5, 4.0, 20.0, 900.0])
    def test_the_kl_of_a_forged_claim_is_large_under_k3_and_negative_under_k1(self, nats):
        """Under rule "both" the KL alone stands between a forger and a push away from good text."""
        loss, gradient = self.lose(nats, -1.0, rule="both", kl_limit_nats=50.0)
        assert float(loss.kl_B) > 50
        assert not bool(loss.keep_B.any())
        assert float(gradient.abs().max()) == 0
        signed, _ = self.lose(nats, -1.0, rule="both", kl_limit_nats=50.0, kl_estimator="k1")
        assert float(signed.kl_B) < 0
        assert bool(signed.keep_B.all()), "which is why k1 is not the default"

    def test_what_passes_weighs_little_before_the_cap(self):
        """Kept under k3 means e^d - 1 - d <= limit for each token."""
        for nats in np.linspace(0, 6, 61):
            loss, _ = self.lose(float(nats), -1.0, rule="both", kl_limit_nats=50.0, weights="vanilla")
            if bool(loss.keep_B.all()):
                weight = loss.weight_BT
                assert float((weight - 1 - weight.log()).max()) <= 50

    @pytest.mark.parametrize("nats", [0.5, 5.0, 50.0])
    def test_a_higher_claim_censors_the_sender(self, nats):
        honest, _ = self.lose(0.0, 1.0, rule="off")
        forged, _ = self.lose(-nats, 1.0, rule="off")
        assert bool((forged.weight_BT <= honest.weight_BT).all())
