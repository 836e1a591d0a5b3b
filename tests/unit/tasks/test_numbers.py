from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.tasks.numbers import last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17", 17),
        ("#### 72", 72),
        ("1,234,567", 1_234_567),
        ("1,2345", 2345),
        ("3, 4", 4),
        ("so it is 17.", 17),
        ("0.50", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"\boxed{\frac{3}{4}}", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        ("-5", -5),
        ("\u22125", -5),
        ("(-5)", -5),
        ("-$5", -5),
        ("$1,000.25", Fraction(100025, 100)),
        ("7-5", 5),
        ("x-5", 5),
        ("f(x)-5", 5),
        ("1e3", 1000),
        ("2.5E-1", Fraction(1, 4)),
        ("+4", 4),
        ("", None),
        ("none", None),
        ("\u0661", None),
        ("4, then 1/0", None),
        ("9" * 301, None),
    ],
)
def test_last_number(text, number):
    assert last_number(text) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12))
def test_decimals_are_read_exactly(number):
    assert last_number(f"The answer is {number}.") == Fraction(number)


@given(st.text(alphabet="0123456789.,-+/eE$ \\frac{}\u2212"))
def test_no_text_raises_and_every_number_prints(text):
    str(last_number(text))


@pytest.mark.parametrize("text", ["1" + ",111" * 50_000 + "1", r"\frac{" * 50_000, "1/" * 50_000, "-" * 100_000])
def test_long_hostile_texts_take_linear_time(text):
    start = time.process_time()
    last_number(text)
    assert time.process_time() - start < 1.0
