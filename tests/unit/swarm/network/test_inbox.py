"""Queues of what has arrived: bounded by name, served in turn."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.swarm.network.inbox import Arrivals, Topic, parse_topic, roll_topic
from motet.swarm.network.status import Refusals


@pytest.fixture
def refusals():
    return Refusals(lambda name: name in ("bob", "cid"))


@pytest.fixture
def arrivals(refusals):
    return Arrivals(refusals, max_message_bytes=100)


def drain(arrivals):
    taken = []
    while (one := arrivals.take(timeout_s=0)) is not None:
        taken.append((one[0].kind, one[0].peer, one[1]))
    return taken


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("beat/ann", Topic("beat", "ann")),
        ("card/a.b-c_9", Topic("card", "a.b-c_9")),
        ("roll/ann/0", Topic("roll", "ann", 0)),
        ("roll/ann/12", Topic("roll", "ann", 12)),
        *[
            (text, None)
            for text in (
                "",
                "beat",
                "beat/",
                "beat/ann/0",
                "roll/ann",
                "roll/ann/01",
                "roll/ann/-1",
                "roll/ann/1\n",
                "beat/.x",
                "beat/" + "n" * 33,
                "hello/ann",
                "roll//1",
                "beat/\u00e9",
                "roll/a/\u0661",
                "roll/a/" + "9" * 19,
            )
        ],
    ],
)
def test_topics(text, topic):
    assert parse_topic(text) == topic


@given(st.text())
def test_any_text_is_a_topic_or_none(text):
    found = parse_topic(text)
    assert found is None or text in (f"{found.kind}/{found.peer}", roll_topic(found.peer, found.round))


def test_names_are_served_in_turn_and_heartbeats_first(arrivals):
    for number in (b"1", b"2", b"3"):
        arrivals.put("roll/bob/0", number)
    arrivals.put("beat/bob", b"b")
    arrivals.put("roll/cid/0", b"c")
    assert drain(arrivals) == [
        ("beat", "bob", b"b"),
        ("roll", "cid", b"c"),
        *[("roll", "bob", number) for number in (b"1", b"2", b"3")],
    ]


def test_a_full_queue_refuses_rounds_and_lets_old_heartbeats_go(arrivals, refusals):
    for number in range(10):
        arrivals.put("roll/bob/0", bytes([number]) * 100)
        arrivals.put("beat/cid", b"%d" % number)
    taken = drain(arrivals)
    assert [message[0] for kind, _, message in taken if kind == "roll"] == list(range(8))
    assert [message for kind, _, message in taken if kind == "beat"] == [b"%d" % number for number in range(2, 10)]
    assert refusals.drain() == {"bob": {"flood": 2}, "cid": {"flood": 2}}
    arrivals.put("roll/bob/0", bytes(100))
    assert len(drain(arrivals)) == 1, "room again"


def test_many_small_messages_are_bounded_too(arrivals, refusals):
    for _ in range(2000):
        arrivals.put("roll/bob/0", b"")
    assert len(drain(arrivals)) == 1024
    assert refusals.drain() == {"bob": {"flood": 2000 - 1024}}


def test_strangers_share_one_queue(arrivals, refusals):
    for number in range(5000):
        arrivals.put(f"roll/stranger{number}/0", b"x")
    arrivals.put("roll/bob/0", b"b")
    taken = drain(arrivals)
    assert taken[1] == ("roll", "bob", b"b")
    assert len(taken) == 800 + 1, "as many bytes as eight of the longest messages have"
    assert set(refusals.drain()) == {"?"}


def test_what_is_too_long_or_no_topic_is_not_kept(arrivals, refusals):
    arrivals.put("roll/bob/0", bytes(101))
    arrivals.put("nonsense", b"x")
    assert drain(arrivals) == []
    assert refusals.drain() == {"?": {"malformed": 1}, "bob": {"oversized": 1}}
    assert arrivals.num_bytes_in == 102


def test_closing_wakes_who_waits(arrivals):
    results = []
    waiting = threading.Thread(target=lambda: results.append(arrivals.take(timeout_s=60)))
    waiting.start()
    arrivals.close()
    waiting.join(60)
    assert results == [None]
    arrivals.put("roll/bob/0", b"x")
    assert arrivals.take(timeout_s=0) is None
