"""Means, standard errors and differences, against numbers by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.reports.estimates import Estimate, as_percent, as_points, difference, over_seeds, standing


def test_one_seed_keeps_the_error_of_its_evaluation() -> None:
    assert over_seeds([Estimate(0.4, 0.015, n=1024)]) == Estimate(0.4, 0.015, "prompts", 1024)


def test_several_seeds_give_the_error_over_seeds() -> None:
    # mean 0.43; squared deviations 0.0009 + 0 + 0.0009 = 0.0018; / 2 = 0.0009; / 3 = 0.0003; root 0.0173205
    found = over_seeds([Estimate(0.40, 0.5), Estimate(0.43, 0.5), Estimate(0.46, 0.5)])
    assert found is not None
    assert found.value == pytest.approx(0.43)
    assert found.se == pytest.approx(math.sqrt(0.0003))
    assert (found.over, found.n) == ("seeds", 3)


def test_equal_values_over_seeds_are_one_measurement() -> None:
    assert over_seeds([Estimate(0.3, 0.01), Estimate(0.3, 0.01)]) == Estimate(0.3, 0.01)


def test_nothing_measured_gives_nothing() -> None:
    assert over_seeds([]) is None
    assert difference({0: Estimate(0.1, 0.1)}, {1: Estimate(0.1, 0.1)}) is None


def test_difference_of_one_seed_adds_the_errors_in_squares() -> None:
    found = difference({0: Estimate(0.43, 0.03)}, {0: Estimate(0.40, 0.04)})
    assert found == Estimate(0.03, 0.05)


def test_difference_of_several_seeds_is_paired() -> None:
    # The seeds lie far apart, the pairs do not: differences 0.02 and 0.04, mean 0.03, se |0.02| / 2 = 0.01.
    first = {0: Estimate(0.32, 0.2), 1: Estimate(0.64, 0.2), 7: Estimate(0.99, 0.2)}
    second = {0: Estimate(0.30, 0.2), 1: Estimate(0.60, 0.2), 8: Estimate(0.01, 0.2)}
    found = difference(first, second)
    assert found is not None
    assert found.value == pytest.approx(0.03)
    assert found.se == pytest.approx(0.01)
    assert (found.over, found.n) == ("seeds", 2)


def test_difference_without_standard_errors_has_none() -> None:
    assert difference({0: Estimate(0.4, None)}, {0: Estimate(0.3, 0.01)}) == Estimate(0.1, None)


@pytest.mark.parametrize(
    ("value", "se", "expected"),
    [
        (0.05, 0.02, "above"),
        (-0.05, 0.02, "below"),
        (0.02, 0.005, "above"),
        (0.03, 0.02, "level"),
        (-0.03, 0.015, "level"),
        (0.04, 0.03, "unclear"),
        (0.0, 0.0, "level"),
        (0.04, None, "unknown"),
    ],
)
def test_standing(value: float, se: float | None, expected: str) -> None:
    assert standing(Estimate(value, se)) == expected


def test_for_people() -> None:
    assert as_percent(Estimate(0.4312, 0.0151)) == "43.1 \u00b1 1.5 %"
    assert as_points(Estimate(-0.0312, 0.0151)) == "-3.1 \u00b1 1.5 points"
    assert as_points(Estimate(-0.0001, None)) == "+0.0 points"
    assert as_points(None) == "-"


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_mean_lies_between_and_the_error_is_that_of_statistics(values: list[float]) -> None:
    import statistics

    found = over_seeds([Estimate(value, 0.0) for value in values])
    assert found is not None
    assert min(values) - 1e-9 <= found.value <= max(values) + 1e-9
    assert found.se == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-9)
