"""What cannot be put on the wire, and so never reaches the gate's own tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motet.admission.structure import check_group_size, check_rollout, check_sampler, check_window
from motet.records import Group, Rollout, SamplerInfo


def check(ids, logp, finish="stop", reward=0.0):
    rollout = Rollout(np.array(ids, dtype=np.uint32), np.array(logp, dtype=np.float32), finish, reward)
    return check_rollout(rollout, 0, vocab_size=10, end_token_ids={9}, max_new_tokens=4)


def test_a_good_rollout_has_no_finding():
    assert check([1, 9], [-1, 0]) is None
    assert check([1, 2, 3, 4], [-1, -1, -1, 1e-4], finish="length") is None
    assert check([9], [-1000.0]) is None


@pytest.mark.parametrize(
    ("ids", "logp", "detail"),
    [
        ([1, 9], [-1], "rollout 0: 2 ids but 1 log-probs"),
        ([1, 9], [[-1, -1]], "rollout 0: 2 ids but 2 log-probs"),
        ([[1, 9]], [[-1, -1]], "rollout 0: 2 ids but 2 log-probs"),
        ([], [], "rollout 0: 0 tokens, allowed 1..4"),
    ],
)
def test_ragged_and_empty_arrays(ids, logp, detail):
    finding = check(ids, logp)
    assert (finding.reason, finding.detail) == ("bad_length", detail)


def test_the_first_finding_is_the_cheapest():
    assert check([99] * 5, [math.nan] * 5, reward=math.nan).reason == "bad_length"
    assert check([99], [math.nan], reward=math.nan).reason == "bad_token"
    assert check([9], [math.nan], reward=math.nan).reason == "bad_logp"
    assert check([9], [-1], reward=math.nan).reason == "bad_reward"


def test_a_group_needs_a_rollout():
    sampler = SamplerInfo("tiny:small", 0, 1.0, "9c1f")
    assert check_sampler(sampler) is None
    finding = check_group_size(Group("kim", 0, "train/0", sampler, ()), 4)
    assert (finding.reason, finding.detail) == ("bad_group_size", "0 rollouts, allowed 1..4")


def test_numbers_too_large_to_print_are_described():
    assert check_window(10**5000, 3, None, None).detail == "parcel of round beyond 10^18, allowed 3..3"
    assert check_window(3, 3, None, None) is None
