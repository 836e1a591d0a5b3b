from __future__ import annotations

import json
import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.admission.conduct import BROKEN, DISAGREEING, HONEST_DISAGREEMENT, INNOCENT, WEIGHTS, Conduct
from motet.admission.verdict import Reason

NEVER = 1e9


def test_every_reason_has_its_weight():
    assert set(WEIGHTS) == set(get_args(Reason))


@pytest.mark.parametrize("reason", ["duplicate", "wrong_round", "quarantined", "unknown_peer"])
def test_what_the_network_does_is_no_strike(reason):
    conduct = Conduct(quarantine_after=1, quarantine_rounds=5)
    assert [conduct.note("bob", reason, round) for round in range(50)] == [INNOCENT] * 50
    assert conduct.quarantined_until("bob", 50) is None
    assert conduct.to_dict() == {}


def test_three_hostile_groups_or_twelve_broken_ones():
    conduct = Conduct(quarantine_after=3, quarantine_rounds=20)
    for number in range(1, 4):
        assert conduct.quarantined_until("eve", 7) is None
        conduct.note("eve", "malformed", 7)
        assert conduct.strikes("eve", 7) == (number if number < 3 else 0)
    assert conduct.quarantined_until("eve", 7) == 28
    for _ in range(11):
        assert conduct.note("old", "wrong_version", 7) == BROKEN
    assert conduct.quarantined_until("old", 7) is None
    conduct.note("old", "wrong_version", 7)
    assert conduct.quarantined(7) == ["eve", "old"]
    assert conduct.quarantined_until("bob", 7) is None


def test_released_on_time_and_twice_as_long_each_further_time():
    conduct = Conduct(quarantine_after=1, quarantine_rounds=3)
    round, lengths = 10, []
    for _ in range(4):
        conduct.note("eve", "bad_logp", round)
        begun = round
        while conduct.quarantined_until("eve", round) is not None:
            round += 1
        lengths.append(round - begun - 1)
    assert lengths == [3, 6, 12, 24]


def test_the_length_of_a_quarantine_stays_a_number():
    conduct = Conduct(quarantine_after=1, quarantine_rounds=20)
    round = 0
    for _ in range(40):
        conduct.note("eve", "bad_logp", round)
        round = conduct.quarantined_until("eve", round)
    assert round < 2**40


def test_strikes_fade():
    conduct = Conduct(quarantine_after=3, quarantine_rounds=10)
    conduct.note("bob", "bad_token", 0)
    conduct.note("bob", "bad_token", 0)
    assert [conduct.strikes("bob", round) for round in (0, 10, 20)] == [2, 1, 0.5]
    conduct.note("bob", "bad_token", 20)
    assert conduct.strikes("bob", 20) == 1.5
    assert conduct.strikes("bob", 19) == 1.5, "rounds do not go back"


def test_one_hostile_group_in_a_while_is_never_enough():
    conduct = Conduct(quarantine_after=3, quarantine_rounds=20)
    for round in range(0, 2000, 20):
        conduct.note("bob", "bad_length", round)
        assert conduct.quarantined_until("bob", round) is None


class TestClaims:
    def test_honest_disagreement_costs_nothing(self):
        random = np.random.default_rng(0)
        for _ in range(20):
            conduct = Conduct(quarantine_after=NEVER)
            costs = [
                conduct.note_claims("bob", round, claims=8, disagreements=int(random.binomial(8, HONEST_DISAGREEMENT)))
                for round in range(500)
            ]
            assert sum(costs) == 0

    @pytest.mark.parametrize(("share", "claims"), [(1.0, 6), (0.5, 40), (0.3, 100)])
    def test_lies_cost_strikes(self, share, claims):
        conduct = Conduct(quarantine_after=NEVER)
        cost = conduct.note_claims("eve", 0, claims=claims, disagreements=int(share * claims))
        assert cost == conduct.strikes("eve", 0) == DISAGREEING

    def test_a_single_lie_costs_nothing(self):
        conduct = Conduct(quarantine_after=NEVER)
        assert conduct.note_claims("bob", 0, claims=1, disagreements=1) == 0
        assert conduct.note_claims("bob", 0, claims=4, disagreements=4) == 0, "five of five"

    def test_a_liar_is_quarantined_within_rounds(self):
        conduct = Conduct(quarantine_after=3, quarantine_rounds=20)
        for round in range(10):
            conduct.note_claims("eve", round, claims=16, disagreements=16)
        assert conduct.quarantined_until("eve", 9) is not None

    def test_a_long_honest_past_does_not_pay_for_lies(self):
        conduct = Conduct(quarantine_after=NEVER)
        for round in range(10_000):
            conduct.note_claims("eve", round, claims=8, disagreements=0)
        costs = [conduct.note_claims("eve", 10_000, claims=8, disagreements=8) for _ in range(20)]
        assert sum(costs) > 0


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(sorted(WEIGHTS)), st.integers(0, 60))))
def test_an_interruption_changes_nothing(events):
    whole, first = (Conduct(quarantine_after=2, quarantine_rounds=5) for _ in range(2))
    events = sorted(events, key=lambda event: event[2])
    half = len(events) // 2
    for event in events:
        whole.note(*event)
    for event in events[:half]:
        first.note(*event)
    second = Conduct(quarantine_after=2, quarantine_rounds=5)
    second.restore(json.loads(json.dumps(first.to_dict())))
    for event in events[half:]:
        second.note(*event)
    assert second.to_dict() == whole.to_dict()


@pytest.mark.parametrize("fields", [{"strikes": "many"}, {"unheard_of": 1}, {"strikes": math.inf}, {"until": None}])
def test_damaged_records_are_refused(fields):
    with pytest.raises((TypeError, ValueError)):
        Conduct().restore({"bob": fields})
