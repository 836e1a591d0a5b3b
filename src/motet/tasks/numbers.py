"""Finding numbers in free text, exactly: commas, signs, decimals, exponents and fractions, never floating point."""

from __future__ import annotations

import re
from fractions import Fraction

_MINUS = "\u2212"
_MAX_DIGITS = 300  # Python refuses to print integers of more than 4300
_NUMBER = re.compile(
    rf"(?:(?<![0-9A-Za-z)\]])[-+{_MINUS}])?\$?"  # a sign, unless something is subtracted: 7-5 ends with 5
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,8}(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?"
    r"(?:/[0-9]+)?"
)
_LATEX_FRACTION = re.compile(rf"\\[dt]?frac\{{([-+{_MINUS}]?[0-9]+)\}}\{{([0-9]+)\}}")


def last_number(text: str) -> Fraction | None:
    """The last number in a text, or None if there is none (or one without a sane value, such as 1/0).

    >>> last_number("so 1,200 - 3 = 1,197.50.")
    Fraction(2395, 2)
    >>> last_number("no idea") is None
    True
    """
    found = last_number_text(text)
    number, _, divisor = (found or "").partition("/")
    try:
        return Fraction(number) / Fraction(divisor or 1) if number else None
    except ZeroDivisionError:
        return None


def last_number_text(text: str) -> str | None:
    """The last number as it is written, without thousands' commas and dollar sign, or None.

    >>> last_number_text("so it is $1,197.50.")
    '1197.50'
    """
    matches = _NUMBER.findall(_LATEX_FRACTION.sub(r"\1/\2", text))
    if not matches or len(matches[-1]) > _MAX_DIGITS:
        return None
    return str(matches[-1]).replace(_MINUS, "-").replace(",", "").replace("$", "")
