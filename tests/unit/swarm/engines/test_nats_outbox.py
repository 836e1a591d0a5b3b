from __future__ import annotations

from motet.swarm.engines.nats_outbox import Outbox, Outgoing


def _topics(outbox: Outbox) -> list[str]:
    return [outgoing.topic for outgoing in iter(outbox.take, None)]


def test_rounds_leave_in_order() -> None:
    outbox = Outbox(max_bytes=100)
    for number in range(5):
        assert outbox.put(Outgoing(f"roll/a/{number}", b"x")) == 0
    assert _topics(outbox) == [f"roll/a/{number}" for number in range(5)]


def test_the_oldest_go_when_there_is_too_much() -> None:
    outbox = Outbox(max_bytes=10)
    assert [outbox.put(Outgoing(f"roll/a/{number}", b"1234")) for number in range(4)] == [0, 0, 1, 1]
    assert _topics(outbox) == ["roll/a/2", "roll/a/3"]


def test_what_has_left_makes_room() -> None:
    outbox = Outbox(max_bytes=4)
    for number in range(100):
        assert outbox.put(Outgoing(f"roll/a/{number}", b"1234")) == 0
        assert outbox.take() is not None


def test_a_message_larger_than_the_limit_goes_itself() -> None:
    outbox = Outbox(max_bytes=3)
    assert outbox.put(Outgoing("roll/a/0", b"1234")) == 1
    assert outbox.take() is None


def test_of_heartbeats_only_the_latest_waits_and_goes_first() -> None:
    outbox = Outbox(max_bytes=1)
    outbox.put(Outgoing("roll/a/0", b"r"))
    for beat in (b"1" * 100, b"2" * 100):
        assert outbox.put(Outgoing("beat/a", beat)) == 0
    assert [outgoing.message for outgoing in iter(outbox.take, None)] == [b"2" * 100, b"r"]


def test_heartbeats_can_be_forgotten() -> None:
    outbox = Outbox(max_bytes=10)
    outbox.put(Outgoing("beat/a", b"1"))
    outbox.put(Outgoing("roll/a/0", b"r"))
    outbox.drop_beats()
    assert _topics(outbox) == ["roll/a/0"]
