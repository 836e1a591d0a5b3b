"""Groups that wait: each once, in order, in bounds."""

from __future__ import annotations

import pytest

from motet.swarm import Parcel
from motet.swarm.network.shelf import Shelf


@pytest.fixture
def shelf():
    return Shelf(max_bytes_per_round=1000, max_bytes=100_000)


def put(shelf, peer="bob", round=0, index=0, count=1, boot=1, payloads=(b"x",), num_bytes=10):
    return shelf.put(
        peer, boot=boot, round=round, index=index, count=count, payloads=list(payloads), num_bytes=num_bytes
    )


def taken(shelf, oldest, newest=None, **options):
    return [(p.peer, p.round, p.payload) for p in shelf.take(oldest, newest, **options)]


def test_parcels_come_by_peer_round_and_order_of_publishing(shelf):
    put(shelf, "cid", 1, payloads=[b"1"])
    put(shelf, "bob", 2, payloads=[b"6"])
    put(shelf, "bob", 1, index=1, count=2, payloads=[b"4", b"5"])
    put(shelf, "bob", 1, index=0, count=2, payloads=[b"2", b"3"])
    assert [p.payload for p in shelf.take(0, None)] == [b"2", b"3", b"4", b"5", b"6", b"1"]
    assert shelf.take(0, None) == []


def test_a_message_is_taken_in_once_before_and_after_it_was_collected(shelf):
    assert put(shelf) is None
    assert put(shelf) == "duplicate"
    assert taken(shelf, 0) == [("bob", 0, b"x")]
    assert put(shelf) == "duplicate"
    assert put(shelf, boot=2) == "duplicate", "a restarted peer does not get its round in twice"
    assert put(shelf, boot=0) == "duplicate"


def test_knows_whether_a_round_is_whole(shelf):
    assert not shelf.has_some("bob", 0)
    put(shelf, index=1, count=2)
    assert shelf.has_some("bob", 0)
    assert not shelf.has_all("bob", 0)
    put(shelf, index=0, count=2)
    assert shelf.has_all("bob", 0)
    assert (shelf.verified_round("bob"), shelf.verified_round("cid")) == (0, -1)


def test_a_newer_process_replaces_what_is_incomplete_and_not_collected(shelf):
    put(shelf, index=0, count=2, payloads=[b"old"])
    assert put(shelf, boot=2, index=0, count=3, payloads=[b"new"]) is None
    assert put(shelf, boot=1, index=1, count=2) == "duplicate"
    assert taken(shelf, 0) == [("bob", 0, b"new")]
    assert put(shelf, boot=3, index=0, count=1) == "duplicate"


def test_what_is_older_than_asked_for_is_late(shelf):
    put(shelf, round=0, payloads=[b"1", b"2"])
    put(shelf, round=1, payloads=[b"3"])
    put(shelf, round=2, payloads=[b"4"])
    put(shelf, round=3, payloads=[b"5"])
    assert taken(shelf, 2, 2, is_late=lambda round: round > 0) == [("bob", 2, b"4")]
    assert shelf.drain_late() == {"bob": 1}
    assert shelf.drain_late() == {}
    assert taken(shelf, 3) == [("bob", 3, b"5")]


def test_rounds_that_are_over_are_refused(shelf):
    put(shelf, round=1)
    shelf.forget_before(2)
    assert shelf.drain_late() == {"bob": 1}
    assert not shelf.drain_late()
    assert put(shelf, round=1, payloads=[b"1", b"2"]) is None
    assert shelf.drain_late() == {"bob": 2}, "its round is over"
    assert put(shelf, round=2) is None


def test_too_many_bytes_of_a_round_are_refused(shelf):
    assert put(shelf, index=0, count=3, num_bytes=1001) == "too_many_bytes"
    assert put(shelf, index=0, count=3, num_bytes=600) is None
    assert put(shelf, index=1, count=3, num_bytes=401) == "too_many_bytes"
    assert put(shelf, index=1, count=3, num_bytes=400) is None
    assert put(shelf, round=1, index=0, count=3, num_bytes=1001) == "too_many_bytes"


def test_counts_must_agree(shelf):
    put(shelf, index=0, count=2)
    assert put(shelf, index=1, count=3) == "inconsistent"


def test_who_takes_up_the_most_loses_its_oldest_round():
    shelf = Shelf(max_bytes_per_round=10**6, max_bytes=20_000)
    put(shelf, "bob", payloads=[b"b"])
    for round in range(10):
        put(shelf, "mallory", round, payloads=[bytes(4000)])
    assert shelf.drain_late()["mallory"] >= 6
    kept = [parcel.peer for parcel in shelf.take(0, None)]
    assert kept[0] == "bob"
    assert 1 <= kept.count("mallory") <= 4
    assert put(shelf, "mallory", 0) is None
    assert not shelf.has_some("mallory", 0), "what was thrown away does not come again"


def test_all_that_was_charged_is_given_back(shelf):
    for round in range(5):
        put(shelf, round=round, payloads=[b"abc"] * 3)
        put(shelf, "cid", round=round, index=0, count=2)
        put(shelf, "cid", boot=2, round=round)
    shelf.take(3, 3)
    shelf.forget_before(9)
    shelf.drop("cid")
    shelf.drop("nobody")
    assert shelf._num_bytes == 0
    assert shelf._boards["bob"].num_bytes == 0


def test_dropping_a_peer_drops_what_waits(shelf):
    put(shelf)
    put(shelf, "cid", payloads=[b"c"])
    shelf.drop("bob")
    assert shelf.take(0, None) == [Parcel("cid", 0, b"c")]
