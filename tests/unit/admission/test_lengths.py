from __future__ import annotations

import numpy as np
import pytest

from motet.admission.lengths import OwnLengths
from motet.records import Group, Rollout, SamplerInfo


def group(*sizes, reward=1.0):
    rollouts = tuple(Rollout(np.ones(size, np.uint32), np.zeros(size, np.float32), "stop", reward) for size in sizes)
    return Group("bob", 0, "train/0", SamplerInfo("m", 0, 1.0, "t"), rollouts)


@pytest.fixture
def lengths():
    known = OwnLengths()
    known.note([group(*[10] * 95, *[20] * 10)])
    return known


def test_far_outside_is_a_finding(lengths):
    assert lengths.check(group(80, 80)) is None
    finding = lengths.check(group(80, 90))
    assert (finding.reason, finding.detail) == (
        "padded",
        "correct completions of 85 tokens; 95 % of ours have 20 or less",
    )


def test_only_correct_completions_count(lengths):
    assert lengths.check(group(500, 500, reward=0.0)) is None
    assert lengths.ratio(group(500, reward=0.0)) == 0


def test_the_ratio_is_that_of_the_means(lengths):
    assert lengths.ratio(group(10, 30)) == pytest.approx(20 / (1150 / 105))


def test_nothing_is_compared_before_there_is_enough():
    lengths = OwnLengths()
    lengths.note([group(*[10] * 63), group(*[10] * 50, reward=0.5)])
    assert lengths.check(group(10_000)) is None
    assert lengths.ratio(group(10_000)) == 0
    lengths.note([group(10)])
    assert lengths.check(group(10_000)).reason == "padded"


def test_lengths_survive_an_interruption(lengths):
    after = OwnLengths()
    after.restore(lengths.to_list())
    assert after.check(group(90)) == lengths.check(group(90)) is not None
    assert after.to_list() == lengths.to_list()
    after.note([group(*[100] * 600)])
    assert after.to_list() == [100] * 512
