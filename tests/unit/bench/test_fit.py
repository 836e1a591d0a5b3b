from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.bench.fit import fit_exponent


@given(st.floats(-2, 3), st.floats(1e-6, 1e6), st.integers(2, 6))
def test_a_power_law_gives_its_exponent(exponent: float, factor: float, points: int) -> None:
    sizes = [2.0**number for number in range(points)]
    found = fit_exponent(sizes, [factor * size**exponent for size in sizes])
    assert found.value == pytest.approx(exponent, abs=1e-5)
    assert found.last == pytest.approx(exponent, abs=1e-5)
    assert (found.se is None) == (points == 2)


def test_by_hand() -> None:
    # log2 of the costs: 0, 2, 3 at 0, 1, 2: slope 3/2, residuals -1/6, 1/3, -1/6, so se = sqrt(1/6 / 1 / 2)
    found = fit_exponent([1, 2, 4], [1, 4, 8])
    assert (found.value, found.last) == (1.5, 1.0)
    assert found.se == pytest.approx((1 / 12) ** 0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("sizes", "costs"), [([1], [1]), ([1, 2], [1]), ([1, 2], [1, 0]), ([0, 1], [1, 1]), ([2, 2], [1, 3])]
)
def test_what_has_no_exponent_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="exponent"):
        fit_exponent(sizes, costs)
