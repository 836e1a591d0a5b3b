"""fp16's loss scale: what underflow would lose, overflow, and the way back up. All of it computes on a processor."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from motet.learner import Method, OptimizerOptions, build_batch
from motet.learner.gradient import backward_rows
from motet.learner.optimizer import MasterOptimizer

OPTIONS = OptimizerOptions(learning_rate=1e-3, num_steps=4, max_grad_norm=1.0)


def make_half():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = MasterOptimizer({"w": parameter}, OPTIONS, compute_dtype=torch.float16)
    parameter.data = parameter.data.half()
    return parameter, optimizer


def take(parameter, optimizer, gradient):
    parameter.grad = torch.tensor(gradient, dtype=torch.float32).mul(optimizer.scale.value).half()
    optimizer.collect_gradients()
    return optimizer.step(0)


def test_masters_get_gradients_below_the_range_of_fp16():
    parameter, optimizer = make_half()
    parameter.grad = torch.tensor([2.0**-30, -(2.0**-30)]).mul(optimizer.scale.value).half()
    optimizer.collect_gradients()
    assert torch.tensor(2.0**-30).half() == 0
    assert optimizer.masters[0].grad.tolist() == [2.0**-30, -(2.0**-30)]


def test_overflow_skips_the_step_and_halves_the_scale():
    parameter, optimizer = make_half()
    norm, taken = take(parameter, optimizer, [100.0, 0.0])
    assert not taken
    assert math.isinf(norm)
    assert optimizer.scale.value == 2**15
    assert parameter.tolist() == [1.0, 1.0]


def test_after_200_good_steps_it_doubles_and_never_leaves_its_range():
    parameter, optimizer = make_half()
    for _ in range(200):
        take(parameter, optimizer, [1e-3, 0.0])
    assert optimizer.scale.value == 2**17
    for _ in range(30):
        optimizer.scale.update(finite=False)
    assert optimizer.scale.value == 1
    for _ in range(200 * 30):
        optimizer.scale.update(finite=True)
    assert optimizer.scale.value == 2**24


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_have_none(dtype):
    optimizer = MasterOptimizer({"w": torch.nn.Parameter(torch.ones(1))}, OPTIONS, compute_dtype=dtype)
    for finite in (True, False):
        optimizer.scale.update(finite=finite)
    assert optimizer.scale.value == 1


def gradient(policy, batch, scale):
    policy.model.zero_grad(set_to_none=True)
    backward_rows(policy, batch, torch.arange(len(batch)), Method(rule="off"), denominator=len(batch), scale=scale)
    return torch.cat([p.grad.float().flatten() for p in policy.trainable().values()]) / scale


def test_a_model_s_small_gradient_survives(random_policy, sample_groups, encode):
    policy = random_policy()
    groups = sample_groups(policy, "ann", ["train/0", "train/1"], rewards=[1.0, 0.0, 1.0, 0.0])
    batch = build_batch(groups, [], prompt_ids=encode(policy), joined=False)
    batch = dataclasses.replace(batch, advantage_B=batch.advantage_B * 1e-5)
    exact = gradient(policy, batch, 1.0)
    policy.cast(torch.float16)
    scaled, plain = gradient(policy, batch, 2.0**16), gradient(policy, batch, 1.0)
    assert float((scaled - exact).norm() / exact.norm()) < 0.01
    assert float((plain - exact).norm() / exact.norm()) > 0.05
