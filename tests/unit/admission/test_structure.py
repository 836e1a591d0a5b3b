"""What cannot be put on the wire, and so never reaches the gate's own tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.admission.structure import (
    check_group_size,
    check_rollout,
    check_rollouts,
    check_sampler,
    check_window,
)
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


ids = st.lists(st.integers(0, 11), min_size=1, max_size=5)
numbers = st.sampled_from([-1.0, -1.0, -1.0, -1000.0, -1001.0, 0.0, 1e-4, 2e-4, math.nan, math.inf, -math.inf])


@st.composite
def any_rollout(draw):
    token_ids = draw(ids)
    logp = [-1.0] * len(token_ids)
    logp[draw(st.integers(0, len(logp) - 1))] = draw(numbers)
    if draw(st.booleans()):
        token_ids = [*[min(token, 8) for token in token_ids][:3], 9]
        logp = [-1.0] * len(token_ids)
    finish, reward = draw(st.sampled_from(["stop", "stop", "length"])), draw(st.sampled_from([0.0, 1.0, math.nan]))
    return Rollout(np.array(token_ids, np.uint32), np.array(logp, np.float32), finish, reward)


@given(st.lists(any_rollout(), min_size=1, max_size=4), st.sampled_from([{9}, {7, 9}, set()]))
def test_all_at_once_finds_what_one_by_one_does(rollouts, end_token_ids):
    rules = {"vocab_size": 10, "end_token_ids": end_token_ids, "max_new_tokens": 4}
    findings = [check_rollout(rollout, index, **rules) for index, rollout in enumerate(rollouts)]
    expected = next((finding for finding in findings if finding is not None), None)
    assert check_rollouts(rollouts, **rules) == expected


@pytest.mark.parametrize(("ids", "logp"), [([1, 9], [-1]), ([1, 9], [[-1, -1]]), ([[1, 9]], [[-1, -1]]), ([], [])])
def test_ragged_arrays_are_found_all_at_once_too(ids, logp):
    rollout = Rollout(np.array(ids, dtype=np.uint32), np.array(logp, dtype=np.float32), "stop", 0.0)
    finding = check_rollouts([rollout], vocab_size=10, end_token_ids={9}, max_new_tokens=4)
    assert finding.reason == "bad_length"
