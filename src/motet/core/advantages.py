"""Group-relative advantages: how much better a completion is than the others of its group."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.core.choices import Scale, require_choice

STD_FLOOR = 1e-4
"""Added to the standard deviation, so that tiny differences of reward are not blown up."""


def group_advantages(reward_B: Tensor, group_B: Tensor, *, scale: Scale = "std") -> Tensor:
    """Advantage of each sample within its group.

        A_i = (r_i - mean) / (std + 1e-4)      scale = "std", std with Bessel's correction (n - 1)
        A_i =  r_i - mean                      scale = "none"

    A group whose rewards are all equal says nothing, nor does a group of one: their advantages are exactly 0,
    whatever the rounding of the mean.

    Args:
        reward_B: rewards, shape (B,), any real dtype, all finite.
        group_B: integer labels, shape (B,); samples with the same label form a group. Any values, any order.
        scale: divide by the group's standard deviation, or not.

    Returns:
        Advantages, shape (B,), without a graph, in the dtype of the rewards (at least float32).

    Raises:
        ValueError: shapes differ, labels are not integers, or a reward is not finite. A sample whose reward could
            not be computed must be left out by the caller; 0 would be a claim about it.

    Example:
        The first group has mean 1/2 and std sqrt(1/2) = 0.7071; the second has no variance.

        >>> group_advantages(torch.tensor([1.0, 0.1, 0.0, 0.1]), torch.tensor([7, 3, 7, 3]))
        tensor([ 0.7070,  0.0000, -0.7070,  0.0000])
    """
    require_choice("scale", scale, Scale)
    if reward_B.ndim != 1 or group_B.shape != reward_B.shape:
        msg = f"rewards and group labels must be (B,) both; got {tuple(reward_B.shape)} and {tuple(group_B.shape)}"
        raise ValueError(msg)
    if group_B.is_floating_point():
        msg = f"group labels must be integers; got {group_B.dtype}"
        raise ValueError(msg)
    reward_B = reward_B.detach().to(torch.promote_types(reward_B.dtype, torch.float32))
    if not bool(torch.isfinite(reward_B).all()):
        msg = "a reward is not finite; leave samples without a reward out of their group"
        raise ValueError(msg)
    if reward_B.numel() == 0:
        return reward_B

    _, group_B = torch.unique(group_B, return_inverse=True)
    zero_K = reward_B.new_zeros(int(group_B.max()) + 1)
    size_K = zero_K.index_add(0, group_B, torch.ones_like(reward_B))
    mean_K = zero_K.index_add(0, group_B, reward_B) / size_K
    centred_B = reward_B - mean_K[group_B]
    lowest_K = zero_K.scatter_reduce(0, group_B, reward_B, "amin", include_self=False)
    highest_K = zero_K.scatter_reduce(0, group_B, reward_B, "amax", include_self=False)
    says_something_B = (lowest_K < highest_K)[group_B]
    if scale == "std":
        std_K = (zero_K.index_add(0, group_B, centred_B.square()) / (size_K - 1).clamp(min=1)).sqrt()
        centred_B = centred_B / (std_K[group_B] + STD_FLOOR)
    return torch.where(says_something_B, centred_B, 0.0)
