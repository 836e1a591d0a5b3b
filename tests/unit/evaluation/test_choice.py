"""Which model is kept: bounds by hand, and who is refused for what."""

from __future__ import annotations

import math

import pytest

from motet.evaluation import choose

HALF = {"test": [0.0, 1.0] * 500, "ood": [0.0, 1.0] * 500}


def solved(*, test: int, ood: int = 500, n: int = 1000) -> dict[str, list[float]]:
    """A model that solves the last so many prompts of each split, one in two of which HALF solves."""
    return {"test": [0.0] * (n - test) + [1.0] * test, "ood": [0.0] * (n - ood) + [1.0] * ood}


def test_the_bound_by_hand():
    reference, candidate = {"test": [0.0, 0.0, 1.0, 1.0]}, {"test": [1.0, 0.0, 1.0, 0.0]}
    (by_split,) = choose(reference, [candidate], margin=0.5).differences
    difference = by_split["test"]
    assert difference.value == 0.0
    assert difference.se == pytest.approx(math.sqrt((1 + 0 + 0 + 1 + 1) / 4 / 4))
    assert difference.bound == pytest.approx(-1.6449 * difference.se, abs=1e-4)


def test_the_bound_is_wider_among_several():
    alone = choose(HALF, [solved(test=600)], margin=0.02).differences[0]["test"]
    among_five = choose(HALF, [solved(test=600)] * 5, margin=0.02).differences[0]["test"]
    assert alone.value == among_five.value
    assert among_five.bound == pytest.approx(alone.value - 2.3263 * alone.se, abs=1e-4)


def test_the_best_of_those_that_are_no_worse_is_taken():
    good, better, best = solved(test=650, ood=600), solved(test=700, ood=600), solved(test=800, ood=300)
    choice = choose(HALF, [good, better, best], margin=0.02)
    assert choice.is_safe == [True, True, False], "the last one loses out of distribution"
    assert choice.taken == 1


def test_no_worse_but_no_better_is_not_taken():
    same = choose(HALF, [HALF], margin=0.02)
    assert same.is_safe == [True]
    assert same.taken is None


def test_better_by_chance_is_not_taken():
    (one_more,) = ({split: [1.0, *values[1:]] for split, values in HALF.items()},)
    assert choose(HALF, [one_more], margin=0.02).taken == 0, "it differs in one prompt, where it is right"
    noisy = {"test": [1.0, 0.0] * 500, "ood": [1.0, 0.0] * 499 + [1.0, 1.0]}
    assert choose(HALF, [noisy], margin=0.02).taken is None, "it differs in every prompt, and nothing is sure"


def test_few_prompts_prove_nothing():
    nothing, few, enough = ({"test": [share] * n} for share, n in ((0.0, 19), (1.0, 19), (1.0, 20)))
    assert choose(nothing, [few], margin=0.02).is_safe == [False]
    assert choose({"test": [0.0] * 20}, [enough], margin=0.02).is_safe == [True]


@pytest.mark.parametrize(
    ("reference", "candidates"),
    [
        ({"test": [1.0]}, []),
        ({}, [{}]),
        ({"test": []}, [{"test": []}]),
        ({"test": [1.0]}, [{"test": [1.0, 0.0]}]),
        ({"test": [1.0]}, [{"ood": [1.0]}]),
    ],
)
def test_what_cannot_be_compared(reference, candidates):
    with pytest.raises(ValueError, match=r"choice needs|must be asked"):
        choose(reference, candidates, margin=0.02)
