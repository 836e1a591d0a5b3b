from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import UsageError
from motet.tasks import Prompt, load_reward


def values(spec, answer, completions):
    return [score.value for score in load_reward(spec)(Prompt("train/0", "?", answer), completions)]


def test_exact_compares_texts_apart_from_blanks_around_them():
    assert values("exact", "a b ", [" a b\n", "a b", "a  b", "A b", ""]) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_numeric_compares_last_numbers():
    completions = ["It costs 1,200.", "1200.0", "12/0.01", "1,200 or 3", "no idea", "-1200"]
    assert values("numeric", "#### 1200", completions) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert values("numeric", "\u22120.5", ["-1/2", "0.5", "-.50"]) == [1.0, 0.0, 1.0]


def test_score_says_what_was_found():
    (score,) = load_reward("numeric")(Prompt("train/0", "?", "2"), ["1 or 1.5"])
    assert (score.extracted, score.parts) == ("3/2", {"answer": 0.0})
    (score,) = load_reward("numeric")(Prompt("train/0", "?", "2"), ["none"])
    assert score.extracted is None


@given(st.lists(st.text()), st.text())
def test_built_in_rewards_score_any_text(completions, answer):
    for spec in ("exact", "numeric"):
        assert all(value in (0.0, 1.0) for value in values(spec, answer, completions))
        assert len(values(spec, answer, completions)) == len(completions)


def test_numeric_wants_a_number_in_the_answer():
    assert load_reward("numeric").problem_with("many") == "holds no number"
    assert load_reward("numeric").problem_with("7") is None
    assert load_reward("exact").problem_with("") is None


@pytest.mark.parametrize(("spec", "words"), [("exakt", 'did you mean "exact"'), ("qqq", "allowed: ")])
def test_unknown_reward_names_what_is_allowed(spec, words):
    with pytest.raises(UsageError, match=words) as caught:
        load_reward(spec)
    assert caught.value.code == "E-REWARD-01"
