"""What compact log-probs change for the one who learns from them: weights, filter, loss and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.core.importance import importance_weights
from motet.core.loss import FtisLoss, ftis_loss
from motet.records import LOG_PROB_ERROR_NATS, Group, Rollout, SamplerInfo, decode_group, encode_group

SHAPES = [(8, 12), (8, 24), (64, 24), (8, 200), (8, 2000)]
# What float64 and the units of the sums add to the stated bound.
WEIGHT_ERROR = np.exp(LOG_PROB_ERROR_NATS) - 1 + 1e-6


def sample(size: tuple[int, int], seed: int, *, certain: float = 0.5) -> tuple[torch.Tensor, ...]:
    """logp_gen as sent, as received, and logp_old: float64 tensors.

    A share `certain` of the tokens is nearly certain, as most of a trained model's are; the policies differ by about
    a third of a nat on the others.
    """
    rng = np.random.default_rng(seed)
    nearly = -(10 ** rng.uniform(-6, -2, size))
    sent = np.where(rng.random(size) < certain, nearly, -rng.exponential(0.5, size)).astype(np.float32)
    rollouts = tuple(Rollout(np.ones(size[1], np.uint32), row, "stop", 1.0) for row in sent)
    group = decode_group(encode_group(Group("kim", 0, "train/0", SamplerInfo("m", 0, 1.0, "t"), rollouts)))
    received = np.stack([rollout.logp_gen for rollout in group.rollouts])
    assert not np.array_equal(sent, received)
    old = np.minimum(sent + rng.normal(0, 0.3, size) * np.minimum(1, -3 * sent), 0)
    return tuple(torch.tensor(array, dtype=torch.float64) for array in (sent, received, old))


@pytest.mark.parametrize("certain", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("kind", ["none", "vanilla", "truncated"])
@pytest.mark.parametrize("size", SHAPES)
def test_weights_change_by_a_twentieth_of_a_percent(size, kind, level, certain) -> None:
    """Of a token and, because rounding does not add up, of a whole completion of any length."""
    sent, received, old = sample(size, seed=1, certain=certain)
    mask = torch.ones(size)
    plain, changed = (importance_weights(old, gen, mask, kind=kind, level=level) for gen in (sent, received))
    assert ((changed / plain - 1).abs().max() < WEIGHT_ERROR).item()
    assert WEIGHT_ERROR < 0.005
    if kind == "vanilla" and certain < 1:
        assert not torch.equal(plain, changed)


def losses(size: tuple[int, int], seed: int, **options) -> tuple[FtisLoss, FtisLoss, torch.Tensor, torch.Tensor]:
    """The loss with log-probs as sent and as received, and the gradients."""
    sent, received, old = sample(size, seed)
    rng = np.random.default_rng(seed + 1000)
    advantage = torch.tensor(rng.normal(size=size[0]))
    advantage -= advantage.mean()
    external = torch.ones(size[0], dtype=torch.bool)
    theta = (old + torch.tensor(rng.normal(0, 0.05, size))).requires_grad_()
    outcomes, gradients = [], []
    for gen in (sent, received):
        outcome = ftis_loss(theta, old, gen, torch.ones(size), advantage, external, **options)
        outcomes.append(outcome)
        gradients.append(torch.autograd.grad(outcome.loss, theta)[0])
    return outcomes[0], outcomes[1], gradients[0], gradients[1]


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("weights", ["vanilla", "truncated"])
@pytest.mark.parametrize("rule", ["either", "both"])
@pytest.mark.parametrize("size", SHAPES)
def test_loss_and_gradient_change_by_less_than_a_thousandth(size, weights, level, rule) -> None:
    for seed in range(10):
        plain, changed, gradient, changed_gradient = losses(size, seed, weights=weights, level=level, rule=rule)
        assert plain.keep_B.any()
        assert torch.equal(plain.reason_B, changed.reason_B)
        assert torch.equal(gradient == 0, changed_gradient == 0)
        moved = gradient != 0
        assert ((changed_gradient[moved] / gradient[moved] - 1).abs().max() < WEIGHT_ERROR).item()
        if rule == "either":  # all that is kept has an advantage above 0: nothing cancels
            assert WEIGHT_ERROR < 1e-3
            assert ((changed.loss / plain.loss - 1).abs() < WEIGHT_ERROR).item()
        else:  # relative to what the tokens contribute before those above and below 0 cancel
            assert ((changed.loss - plain.loss).abs() < 1e-3 * gradient.abs().sum()).item()
