"""Means, Wilson's interval and pass@k against numbers worked out by hand and by counting."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.evaluation import Accuracy, pass_at_k, wilson


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_mean_and_standard_error(rewards):
    accuracy = Accuracy.of(rewards)
    assert accuracy.num_prompts == len(rewards)
    assert accuracy.value == pytest.approx(float(np.mean(rewards)), abs=1e-9)
    assert accuracy.se == pytest.approx(float(np.std(rewards, ddof=1)) / math.sqrt(len(rewards)), abs=1e-9)
    assert accuracy.low <= accuracy.value + 1e-9
    assert accuracy.high >= accuracy.value - 1e-9


def test_one_prompt_has_no_error():
    accuracy = Accuracy.of([0.5])
    assert (accuracy.value, accuracy.se, accuracy.num_prompts, accuracy.interval) == (0.5, 0.0, 1, "normal")


def test_no_prompt():
    with pytest.raises(ValueError, match="at least one"):
        Accuracy.of([])


def test_shares_get_wilson_s_interval_and_means_the_normal_one():
    share = Accuracy.of([1.0, 0.0, 0.0, 1.0])
    assert (share.interval, share.low, share.high) == ("wilson", *wilson(2, 4))
    mean = Accuracy.of([0.5, 1.0, 0.0, 0.25])
    assert mean.interval == "normal"
    assert mean.high - mean.value == pytest.approx(1.959964 * mean.se)
    assert mean.value - mean.low == pytest.approx(1.959964 * mean.se)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.277533),  # z^2 / (n + z^2) = 3.841459 / 13.841459
        (10, 10, 0.722467, 1.0),
        (5, 10, 0.236593, 0.763407),  # 0.5 -+ 1.959964 sqrt(0.025 + 0.00960365) / 1.3841459
        (1, 1, 0.206549, 1.0),  # 1 / (1 + z^2)
    ],
)
def test_wilson_by_hand(successes, n, low, high):
    assert wilson(successes, n) == pytest.approx((low, high), abs=2e-6)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(successes, n, low, high):
    """Newcombe, Statistics in Medicine 17 (1998), method 3."""
    assert wilson(successes, n) == pytest.approx((low, high), abs=5.1e-5)


@given(st.integers(1, 5000), st.data())
def test_wilson_s_ends_solve_its_equation(n, data):
    """An end p' is where the share observed lies z standard errors, computed at p', away."""
    successes = data.draw(st.integers(0, n))
    low, high = wilson(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0
    for end in (low, high):
        if 0 < end < 1:
            assert abs(successes / n - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n), rel=1e-4)


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (0, 0)])
def test_no_share(successes, n):
    with pytest.raises(ValueError, match="no share"):
        wilson(successes, n)


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_counts_the_subsets_that_hold_a_solution(n):
    for solved in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([True] * solved + [False] * (n - solved), k))
            assert pass_at_k(n, solved, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@given(st.integers(1, 100_000), st.data())
def test_pass_at_k_for_any_numbers(n, data):
    solved, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, min(n, 64)))
    expected = 1.0 if n - solved < k else 1.0 - math.comb(n - solved, k) / math.comb(n, k)
    assert pass_at_k(n, solved, k) == pytest.approx(expected, abs=1e-9)
    assert 0.0 <= pass_at_k(n, solved, k) <= 1.0


@pytest.mark.parametrize(("n", "solved", "k"), [(3, 1, 0), (3, 1, 4), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_that_cannot_be(n, solved, k):
    with pytest.raises(ValueError, match="undefined"):
        pass_at_k(n, solved, k)
