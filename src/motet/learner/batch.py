"""Groups as arrays: one row for each rollout.

Legend: B rollouts of the round, T completion tokens (padded on the right).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from motet.core import Scale, group_advantages
from motet.records import Group, Rollout


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Everything that was sampled for one step, kept or not.

    Attributes:
        rollouts: the B rollouts, own first.
        prompt_ids: prompt ids of each.
        peers: who sampled each.
        is_external_B: True where a peer sampled it.
        group_B: number of the group whose mean and std judge the rollout.
        reward_B: rewards, float64.
        advantage_B: group advantages, float32.
        temperature_B: the sampler's temperature, float32.
        length_B: completion tokens.
        logp_gen_BT: the sampler's log-probs, 0 behind the end, float32.
    """

    rollouts: Sequence[Rollout]
    prompt_ids: Sequence[Sequence[int]]
    peers: Sequence[str]
    is_external_B: torch.Tensor
    group_B: torch.Tensor
    reward_B: torch.Tensor
    advantage_B: torch.Tensor
    temperature_B: torch.Tensor
    length_B: torch.Tensor
    logp_gen_BT: torch.Tensor

    def __len__(self) -> int:
        """Rollouts in the batch, B."""
        return len(self.rollouts)

    @property
    def mask_BT(self) -> torch.Tensor:
        """True at completion tokens; from the lengths, never from the ids."""
        return torch.arange(self.logp_gen_BT.shape[1]) < self.length_B[:, None]


def build_batch(
    own: Sequence[Group],
    foreign: Sequence[Group],
    *,
    prompt_ids: Callable[[str], Sequence[int]],
    joined: bool,
    scale_rewards: Scale = "std",
    mask_truncated: bool = False,
) -> Batch:
    """Rows and advantages of a round.

    Args:
        own: this node's groups.
        foreign: groups of peers, admitted, with rewards scored here.
        prompt_ids: the receiver's own ids of the prompt with a given id.
        joined: horizontal collaboration: groups of one prompt and round are shares of one group, whoever sampled them.
        scale_rewards: "std" or "none".
        mask_truncated: completions that were cut at the length limit get advantage 0; they count in their group's mean
            and standard deviation.

    Raises:
        ValueError: if there is not a single rollout.
    """
    numbers: dict[object, int] = {}
    rollouts: list[Rollout] = []
    prompts: list[Sequence[int]] = []
    peers: list[str] = []
    external: list[bool] = []
    group_numbers: list[int] = []
    temperatures: list[float] = []
    for group, is_external in [(g, False) for g in own] + [(g, True) for g in foreign]:
        key = (group.round, group.prompt_id) if joined else (group.peer, group.round, group.prompt_id)
        number = numbers.setdefault(key, len(numbers))
        ids = prompt_ids(group.prompt_id)
        for rollout in group.rollouts:
            rollouts.append(rollout)
            prompts.append(ids)
            peers.append(group.peer)
            external.append(is_external)
            group_numbers.append(number)
            temperatures.append(group.sampler.temperature)
    if not rollouts:
        raise ValueError("a batch needs at least one rollout")
    length_B = torch.tensor([len(rollout.token_ids) for rollout in rollouts])
    logp_gen_BT = torch.zeros(len(rollouts), int(length_B.max()))
    for row, rollout in enumerate(rollouts):
        logp_gen_BT[row, : len(rollout.logp_gen)] = torch.from_numpy(rollout.logp_gen.copy())
    reward_B = torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64)
    group_B = torch.tensor(group_numbers)
    advantage_B = group_advantages(reward_B, group_B, scale=scale_rewards).float()
    if mask_truncated:
        advantage_B[torch.tensor([rollout.finish_reason == "length" for rollout in rollouts])] = 0.0
    return Batch(
        rollouts=rollouts,
        prompt_ids=prompts,
        peers=peers,
        is_external_B=torch.tensor(external),
        group_B=group_B,
        reward_B=reward_B,
        advantage_B=advantage_B,
        temperature_B=torch.tensor(temperatures, dtype=torch.float32),
        length_B=length_B,
        logp_gen_BT=logp_gen_BT,
    )
