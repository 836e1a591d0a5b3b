"""Schedules by hand, the clip, and fp32 masters."""

from __future__ import annotations

import math

import pytest
import torch

from motet.learner import OptimizerOptions
from motet.learner.optimizer import MasterOptimizer


def rates(num_steps=6, **options):
    chosen = OptimizerOptions(learning_rate=2.0, num_steps=num_steps, **options)
    return [chosen.rate(step) for step in range(num_steps)]


def test_constant():
    assert rates() == [2.0] * 6


def test_warm_up():
    assert rates(warmup_steps=4) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_linear():
    assert rates(schedule="linear", final_learning_rate=1.0) == pytest.approx([2.0, 1.8, 1.6, 1.4, 1.2, 1.0])


def test_linear_after_a_warm_up():
    expected = [1.0, 2.0, 2.0, 4 / 3, 2 / 3, 0.0]
    assert rates(schedule="linear", warmup_steps=2) == pytest.approx(expected)


def test_cosine():
    expected = [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5), 0.0]
    assert rates(num_steps=5, schedule="cosine") == pytest.approx(expected)


def test_cosine_ends_at_the_final_rate_and_stays():
    options = OptimizerOptions(learning_rate=2.0, num_steps=5, schedule="cosine", final_learning_rate=0.5)
    assert options.rate(4) == options.rate(9) == pytest.approx(0.5)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup_steps", [0, 1, 3])
def test_short_runs_have_finite_rates(schedule, warmup_steps):
    for num_steps in (1, 2, 3):
        assert all(
            0 <= rate <= 2.0 for rate in rates(num_steps=num_steps, schedule=schedule, warmup_steps=warmup_steps)
        )


def optimizer_of(parameter, **options):
    settings = OptimizerOptions(**({"learning_rate": 0.1, "num_steps": 4, "max_grad_norm": 1.0} | options))
    return MasterOptimizer({"w": parameter}, settings, compute_dtype=parameter.dtype)


@pytest.mark.parametrize(("length", "expected"), [(10.0, 1.0), (0.5, 0.5)])
def test_gradients_above_the_norm_are_scaled_down_to_it(length, expected, monkeypatch):
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = optimizer_of(parameter)
    parameter.grad = torch.tensor([0.6, 0.8]) * length
    seen = []
    monkeypatch.setattr(optimizer.adamw, "step", lambda: seen.append(parameter.grad.clone()))
    norm, taken = optimizer.step(0)
    assert taken
    assert norm == pytest.approx(length)
    torch.testing.assert_close(seen[0], torch.tensor([0.6, 0.8]) * expected)
    assert parameter.grad is None


def test_the_first_step_of_adamw_is_the_rate_in_the_gradients_sign():
    parameter = torch.nn.Parameter(torch.tensor([1.0, -1.0, 5.0]))
    optimizer = optimizer_of(parameter, schedule="linear", final_learning_rate=0.05)
    parameter.grad = torch.tensor([0.3, -0.2, 0.0])
    optimizer.step(2)  # rate 0.1 - 0.05 * 2/3
    rate = 0.1 - 0.05 * 2 / 3
    torch.testing.assert_close(parameter.detach(), torch.tensor([1.0 - rate, -1.0 + rate, 5.0]))


def test_decay_is_decoupled():
    parameter = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = optimizer_of(parameter, weight_decay=0.5)
    parameter.grad = torch.tensor([1.0])
    optimizer.step(0)
    torch.testing.assert_close(parameter.detach(), torch.tensor([2.0 * (1 - 0.1 * 0.5) - 0.1]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_forgotten(bad):
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = optimizer_of(parameter)
    parameter.grad = torch.tensor([bad, 1.0])
    norm, taken = optimizer.step(0)
    assert not taken
    assert not math.isfinite(norm)
    assert parameter.tolist() == [1.0, 2.0]
    assert parameter.grad is None
    assert optimizer.adamw.state == {}


def test_masters_of_a_bf16_model():
    """Gradients of 1 and 2**-12: bf16 cannot add them up, fp32 can."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = MasterOptimizer(
        {"w": parameter}, OptimizerOptions(learning_rate=1e-5, num_steps=4), compute_dtype=torch.bfloat16
    )
    parameter.data = parameter.data.bfloat16()
    for gradient in (1.0, 2.0**-12):
        parameter.grad = torch.tensor([gradient], dtype=torch.bfloat16)
        optimizer.collect_gradients()
        assert parameter.grad is None
    assert optimizer.masters[0].grad.item() == 1.0 + 2.0**-12
    optimizer.step(0)
    assert optimizer.masters[0].item() == pytest.approx(1.0 - 1e-5, abs=1e-7)
    assert parameter.item() == 1.0


def test_an_fp32_model_is_its_own_master():
    parameter = torch.nn.Parameter(torch.ones(1))
    assert optimizer_of(parameter).masters[0] is parameter
