from __future__ import annotations

import json

import pytest

from motet.admission.quota import Quota


@pytest.fixture
def quota():
    return Quota(max_bytes=1000, spare_groups=2)


def take(quota, peer="bob", round=3, num_bytes=10, assigned=4):
    return quota.take(peer, round, num_bytes=num_bytes, assigned=assigned)


def test_what_was_assigned_and_a_little_more(quota):
    assert [take(quota) is None for _ in range(10)] == [True] * 6 + [False] * 4
    finding = take(quota)
    assert (finding.reason, finding.detail) == ("over_quota", "6 groups before, 4 assigned and 2 to spare")


def test_bytes(quota):
    assert take(quota, num_bytes=1000) is None
    assert take(quota, num_bytes=1).detail == "1 bytes after 1000, allowed 1000 a round"


def test_what_is_refused_uses_nothing_up(quota):
    assert take(quota, num_bytes=1001).reason == "over_quota"
    assert take(quota, num_bytes=1000) is None


def test_peers_and_rounds_are_counted_apart(quota):
    for peer in ("bob", "cid"):
        for round in (3, 4):
            assert [take(quota, peer, round, assigned=0) is None for _ in range(3)] == [True, True, False]


def test_what_is_over_is_forgotten(quota):
    for round in range(1000):
        take(quota, round=round)
        quota.forget_before(round - 2)
        assert len(quota.used()) <= 3


def test_counts_survive_an_interruption(quota):
    for _ in range(5):
        take(quota)
    after = Quota(max_bytes=1000, spare_groups=2)
    after.restore(json.loads(json.dumps(quota.used())))
    assert after.used() == quota.used() == [(3, "bob", 5, 50)]
    assert [take(after) is None for _ in range(2)] == [True, False]
