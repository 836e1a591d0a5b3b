from __future__ import annotations

import numpy as np

from motet.admission.reward import Scored, score_group
from motet.records import Group, Rollout, SamplerInfo
from motet.tasks import RunningSums

TASK = RunningSums()
PROMPT = TASK.prompt("train/0")  # 9+6+8=
TEXTS = {1: "15.23", 2: "15.22", 3: "23"}


def group(*claims):
    rollouts = tuple(
        Rollout(np.array([first], dtype=np.uint32), np.array([-0.5], dtype=np.float32), "stop", reward)
        for first, reward in claims
    )
    return Group("kim", 3, "train/0", SamplerInfo("tiny:large", 3, 1.0, "9c1f"), rollouts)


def test_claims_are_replaced_and_compared_one_by_one():
    claimed = group((1, 1.0), (2, 1.0), (3, 0.0), (2, 0.0), (3, 1.0 + 1e-5))
    scored = score_group(claimed, PROMPT, TASK, lambda ids: TEXTS[ids[0]])
    assert isinstance(scored, Scored)
    assert [rollout.reward for rollout in scored.group.rollouts] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert scored.reward_mismatches == 3


def test_the_group_that_came_is_left_as_it_was():
    claimed = group((1, 0.0))
    scored = score_group(claimed, PROMPT, TASK, lambda ids: TEXTS[ids[0]])
    assert claimed.rollouts[0].reward == 0.0
    twin = scored.group
    assert (twin.peer, twin.round, twin.prompt_id, twin.sampler) == ("kim", 3, "train/0", claimed.sampler)


def test_one_rollout_that_cannot_be_decoded_condemns_the_group():
    finding = score_group(group((1, 1.0), (7, 1.0)), PROMPT, TASK, lambda ids: TEXTS[ids[0]])
    assert (finding.reason, finding.detail) == ("bad_token", "1 of 2 rollouts cannot be decoded")
