"""Cards: one encoding, one digest, and differences that are safe to print."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from motet.swarm.network.card import card_digest, decode_card, encode_card, tell_difference

CARDS = st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=8)


@given(CARDS)
def test_a_card_has_one_encoding_whatever_its_order(card):
    encoded = encode_card(card)
    assert decode_card(encoded) == card
    assert encode_card(dict(reversed(card.items()))) == encoded
    assert len(card_digest(encoded)) == 16


@given(CARDS, CARDS)
def test_digests_differ_where_cards_do(one, other):
    assert (card_digest(encode_card(one)) == card_digest(encode_card(other))) == (one == other)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_card_or_none(data):
    card = decode_card(data)
    assert card is None or encode_card(card) == data


@given(CARDS, CARDS)
def test_differences_are_short_and_printable(ours, theirs):
    told = tell_difference(ours, theirs)
    assert (told == "") == (ours == theirs)
    assert told.isascii()
    assert told.isprintable()
    assert len(told) < 2 * 3 * 64 + 60


def test_differences_name_both_sides():
    ours, theirs = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x" * 100, "d": "\x00", "e": "5"}
    told = tell_difference(ours, theirs)
    assert told == f"b: here '2', there '{'x' * 57}...'; c: here '3', there nothing; and 2 more"
