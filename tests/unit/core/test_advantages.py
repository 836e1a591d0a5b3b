from __future__ import annotations

import math

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.core import group_advantages


def test_by_hand():
    # Group 5: rewards 1, 0, 0, 0: mean 1/4, squares (9 + 1 + 1 + 1)/16 = 3/4, Bessel 3/4/3 = 1/4, std 1/2.
    # Group 2: rewards 2, 4: mean 3, squares 1 + 1 = 2, Bessel 2/1, std sqrt 2.
    reward_B = torch.tensor([1.0, 2.0, 0.0, 0.0, 4.0, 0.0], dtype=torch.float64)
    group_B = torch.tensor([5, 2, 5, 5, 2, 5])
    high, low, pair = 0.75 / 0.5001, -0.25 / 0.5001, 1 / (math.sqrt(2) + 1e-4)
    expected_B = torch.tensor([high, -pair, low, low, pair, low], dtype=torch.float64)
    torch.testing.assert_close(group_advantages(reward_B, group_B), expected_B, rtol=0, atol=1e-12)


def test_without_scaling_it_is_the_centred_reward():
    reward_B = torch.tensor([1.0, 0.0, 0.0, 0.0])
    expected_B = torch.tensor([0.75, -0.25, -0.25, -0.25])
    assert torch.equal(group_advantages(reward_B, torch.zeros(4, dtype=torch.long), scale="none"), expected_B)


@pytest.mark.parametrize("scale", ["std", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_equal_rewards_give_exactly_zero_although_their_mean_rounds(scale, dtype, size):
    # 0.1 + 0.1 + 0.1 = 0.30000000000000004; divided by a std of 1e-17 + 1e-4 this is no longer nothing.
    advantage_B = group_advantages(torch.full((size,), 0.1, dtype=dtype), torch.full((size,), 9), scale=scale)
    assert advantage_B.tolist() == [0.0] * size


def test_groups_of_one_give_exactly_zero():
    reward_B = torch.tensor([0.3, -7.0, 1e9])
    assert group_advantages(reward_B, torch.tensor([-1, 4, 2**40])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_raises(bad):
    with pytest.raises(ValueError, match="not finite"):
        group_advantages(torch.tensor([1.0, bad]), torch.tensor([0, 0]))


def test_malformed_arguments_raise():
    with pytest.raises(ValueError, match=r"got \(2,\) and \(1,\)"):
        group_advantages(torch.zeros(2), torch.zeros(1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"got \(1, 2\)"):
        group_advantages(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="integers"):
        group_advantages(torch.zeros(2), torch.zeros(2))


def test_no_samples_no_advantages():
    assert group_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_integer_rewards_and_gradients_of_rewards():
    reward_B = torch.tensor([1.0, 0.0], requires_grad=True)
    assert not group_advantages(reward_B, torch.tensor([0, 0])).requires_grad
    advantage_B = group_advantages(torch.tensor([1, 0]), torch.tensor([0, 0]))
    assert advantage_B.dtype == torch.float32
    assert advantage_B[0] == -advantage_B[1] > 0


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.integers(-3, 3)), min_size=1, max_size=20),
    st.sampled_from(["std", "none"]),
)
def test_agrees_with_the_naive_reference(samples, scale):
    rewards = [round(reward, 3) for reward, _ in samples]
    groups = [group for _, group in samples]
    expected_B = torch.tensor(reference.advantages(rewards, groups, scale), dtype=torch.float64)
    advantage_B = group_advantages(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), scale=scale)
    torch.testing.assert_close(advantage_B, expected_B, rtol=0, atol=1e-9)
