"""Means and intervals against numbers worked out by hand, and Student's t against its density."""

from __future__ import annotations

import math

import pytest

from motet.study.intervals import Mean, student_t

# Printed tables, two-sided 95 % and one-sided 95 %, for 1 to 30 degrees of freedom.
T_975 = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
]  # fmt: skip
T_95 = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
]  # fmt: skip


def area_beyond(t: float, degrees: int, *, steps: int = 4000) -> float:
    """Simpson's rule over the density from 0 to t."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)

    def density(x: float) -> float:
        return scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2)

    width = t / steps
    inner = math.fsum((4 if place % 2 else 2) * density(place * width) for place in range(1, steps))
    return 0.5 - width / 3 * (density(0.0) + inner + density(t))


def test_quantiles_are_those_of_the_printed_tables() -> None:
    assert [round(student_t(0.025, degrees), 3) for degrees in range(1, 31)] == T_975
    assert [round(student_t(0.05, degrees), 3) for degrees in range(1, 31)] == T_95


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 8, 39, 40])
@pytest.mark.parametrize("tail", [0.05, 0.025, 0.025 / 6, 0.2])
def test_the_density_beyond_a_quantile_has_the_area_of_the_tail(degrees: int, tail: float) -> None:
    assert area_beyond(student_t(tail, degrees), degrees) == pytest.approx(tail, rel=1e-6)


def test_many_degrees_are_nearly_normal() -> None:
    assert student_t(0.025, 10_000) == pytest.approx(1.96, abs=5e-4)


def test_a_mean_by_hand() -> None:
    mean = Mean.of([0.01, 0.02, 0.06])  # mean .03, squares .0004 + .0001 + .0009, variance .0007, se sqrt(.0007 / 3)
    assert mean.value == pytest.approx(0.03)
    assert mean.se == pytest.approx(0.015275, abs=1e-6)
    assert mean.n == 3
    assert mean.low == pytest.approx(0.03 - 4.303 * 0.015275, abs=1e-5)
    assert mean.high == pytest.approx(0.03 + 4.303 * 0.015275, abs=1e-5)
    assert mean.lower_bound == pytest.approx(0.03 - 2.920 * 0.015275, abs=1e-5)


def test_a_lone_seed_shows_nothing() -> None:
    mean = Mean.of([0.5])
    assert (mean.value, mean.se, mean.n) == (0.5, None, 1)
    assert (mean.low, mean.high, mean.lower_bound) == (-math.inf, math.inf, -math.inf)
    assert not mean.is_no_worse(10.0)
    assert not mean.is_level(10.0)
    assert not mean.is_above(-10.0)
    assert not mean.is_below(10.0)


def test_no_number_is_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one number"):
        Mean.of([])


def test_non_inferiority_asks_on_one_side_only() -> None:
    mean = Mean(-0.005, 0.007, 5)  # one-sided bound -.005 - 2.132 * .007 = -.01992, two-sided -.005 - 2.776 * .007
    assert mean.lower_bound == pytest.approx(-0.01992, abs=1e-5)
    assert mean.is_no_worse(0.02)
    assert not mean.is_no_worse(0.0199)
    assert mean.low == pytest.approx(-0.02443, abs=1e-5)
    assert not mean.is_level(0.02)
    assert mean.is_level(0.025)


def test_a_gain_passes_non_inferiority_and_is_not_level() -> None:
    mean = Mean(0.10, 0.001, 5)
    assert mean.is_no_worse(0.02)
    assert not mean.is_level(0.02)


def test_several_looks_widen_the_interval() -> None:
    mean = Mean(0.03, 0.01, 5)  # 2.776 at .025, 4.604 at .005
    assert mean.is_above(0.0)
    assert mean.half_width(0.005) == pytest.approx(0.04604, abs=1e-5)
    assert not mean.is_above(0.0, looks=5)
    assert Mean(-0.03, 0.01, 5).is_below(0.0)
    assert not Mean(-0.03, 0.01, 5).is_below(0.0, looks=5)
