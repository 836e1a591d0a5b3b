"""Text of strangers on a terminal: one line, nothing that steers it."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from motet.cli.strangers import pairs, plain


@given(text=st.text(), most=st.integers(2, 50))
def test_plain_text_is_printable_and_short(text, most):
    shown = plain(text, most)
    assert shown.isprintable()
    assert len(shown) <= most


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40))
def test_a_line_of_pairs_can_be_taken_apart(text):
    (found,) = shlex.split(pairs({"key": text}), comments=False) or [""]
    assert found.startswith("key=")


def test_nothing_of_a_name_becomes_another_pair():
    assert pairs({"node": "bob state=finished", "round": 1}) == 'node="bob state=finished" round=1'
    assert pairs({"node": 'a" b="c'}) == 'node="a\\" b=\\"c"'
