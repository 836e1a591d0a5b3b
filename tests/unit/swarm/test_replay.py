"""The exchange of a replay: what is stored of a round comes in that round, once, and nobody is waited for."""

from __future__ import annotations

from motet.swarm import Parcel, ReplayExchange

STORED = {0: [("ann", b"a0"), ("bob", b"b0"), ("bob", b"b0 too")], 2: [("ann", b"a2")]}


def make_exchange(name: str = "ann") -> ReplayExchange:
    return ReplayExchange(name, peers=["bob", "ann"], payloads=lambda round: STORED.get(round, []))


def test_a_round_brings_what_is_stored_of_it_under_the_names_of_then() -> None:
    exchange = make_exchange()
    assert exchange.collect(0, deadline_s=0) == [
        Parcel("ann", 0, b"a0"),
        Parcel("bob", 0, b"b0"),
        Parcel("bob", 0, b"b0 too"),
    ]
    assert exchange.collect(1, deadline_s=0) == []
    assert exchange.collect(2, deadline_s=0, max_lag=4) == [Parcel("ann", 2, b"a2")]


def test_nothing_comes_twice() -> None:
    exchange = make_exchange()
    assert len(exchange.collect(2, deadline_s=0)) == 1
    assert exchange.collect(2, deadline_s=0) == []
    assert exchange.collect(0, deadline_s=0) == []


def test_a_replay_may_begin_in_any_round() -> None:
    assert make_exchange().collect(2, deadline_s=0) == [Parcel("ann", 2, b"a2")]


def test_nobody_is_waited_for_and_nobody_listens() -> None:
    exchange = make_exchange()
    exchange.publish(0, [b"mine"])
    assert exchange.waiting_for(0) == []
    assert b"mine" not in [parcel.payload for parcel in exchange.collect(0, deadline_s=0)]
    assert (exchange.name, exchange.peers()) == ("ann", ["ann", "bob"])
    assert (exchange.num_late(), exchange.num_refused(), exchange.events()) == ({}, {}, [])


def test_whoever_has_left_gets_nothing() -> None:
    exchange = make_exchange()
    exchange.close()
    exchange.close()
    assert exchange.peers() == []
    assert exchange.collect(0, deadline_s=0) == []
