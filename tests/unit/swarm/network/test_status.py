"""Counting refusals and telling events."""

from __future__ import annotations

from motet.swarm.network.status import EventLog, Refusals


def test_refusals_are_counted_since_the_last_call_and_in_all():
    refusals = Refusals(lambda name: name == "bob")
    refusals.count("bob", "replay")
    refusals.count("bob", "replay")
    assert refusals.drain() == {"bob": {"replay": 2}}
    refusals.count("bob", "clock")
    refusals.count("mallory", "clock")
    refusals.count("eve", "clock")
    assert refusals.drain() == {"?": {"clock": 2}, "bob": {"clock": 1}}
    assert refusals.drain() == {}
    assert refusals.total() == {"?": {"clock": 2}, "bob": {"clock": 1, "replay": 2}}


def test_the_same_is_told_again_only_after_a_while():
    now_s = 0.0
    log = EventLog(lambda: now_s, quiet_s=10.0)
    for _ in range(5):
        log.tell("silent", "bob", "1")
    log.tell("silent", "cid", "2")
    log.tell("refused", "bob", "3", subject="clock")
    log.tell("refused", "bob", "4", subject="replay")
    assert [event.text for event in log.drain()] == ["1", "2", "3", "4"]
    now_s = 9.0
    log.tell("silent", "bob", "too soon")
    now_s = 11.0
    log.tell("silent", "bob", "5")
    log.tell("clock", "bob", "6", once=True)
    now_s = 1e9
    log.tell("clock", "bob", "never again", once=True)
    assert [event.text for event in log.drain()] == ["5", "6"]


def test_what_is_refused_is_told_once_and_then_summed_up_ever_more_rarely():
    now_s = 0.0
    log = EventLog(lambda: now_s)
    told = []
    for second in range(3600):
        now_s = float(second)
        log.refused("bob", "wrong_key")
        told += [(second, event.kind, event.peer, event.text) for event in log.drain()]
    words = "refused: signed by another key than bob's"
    assert told[:4] == [
        (0, "refused", "bob", f"1 message {words}"),
        (10, "refused", "bob", f"10 more messages {words}"),
        (70, "refused", "bob", f"60 more messages {words}"),
        (670, "refused", "bob", f"600 more messages {words}"),
    ]
    assert [second for second, *_ in told[4:]] == [1270, 1870, 2470, 3070]
    now_s += 9.0
    log.refused("?", "wrong_key")
    log.refused("bob", "clock")
    assert [event.text for event in log.drain()] == [
        "1 message refused: signed by another key than its owner's",
        "1 message refused: the sender's clock is more than ten minutes off",
    ]
    now_s += 700.0
    log.drain()
    now_s += 700.0
    assert log.drain() == []
    assert not log._refused, "what has long been over is forgotten"
    log.refused("bob", "wrong_key")
    assert [event.text for event in log.drain()] == [f"1 message {words}"]


def test_events_are_bounded():
    log = EventLog(lambda: 0.0)
    for number in range(10_000):
        log.tell("refused", f"n{number}", "x")
    assert [event.peer for event in log.drain()] == [f"n{number}" for number in range(10_000 - 256, 10_000)]
    assert len(log._told) <= 4096
