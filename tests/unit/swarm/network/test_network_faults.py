"""The exchange over a network that fails: with threads of its own, as in a run."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from network_hub import PATIENCE_S, Party, wait_for

from motet.errors import SwarmRefused
from motet.swarm.engines.memory_link import Faults, MemoryNet

LONG_S = 60.0
LOSSY = Faults(drop=0.3, duplicate=0.2, reorder=0.3)
NAMES = ("ann", "bob", "cid")


@pytest.fixture
def net():
    net = MemoryNet(seed=11)
    yield net
    net.close()


@pytest.fixture
def trio(net):
    """Three nodes that have met; quick heartbeats, so that tests are."""
    party = Party(net.link, NAMES, heartbeat_s=0.1, fresh_s=4.0, repair_after_s=0.1, fetch_timeout_s=0.5)
    nodes = [party.join(name) for name in NAMES]
    wait_for(lambda: all(len(node.peers()) == 2 for node in nodes), "all to meet")
    yield nodes
    party.close()


def in_threads(calls):
    """Results of calls that run at once."""
    results = [None] * len(calls)

    def work(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S * 3)
        assert not thread.is_alive(), "still waiting"
    return results


def play(node, rounds):
    """Lockstep rounds of two groups; what came in each."""
    came = []
    for round in rounds:
        node.publish(round, [f"{node.name}{round}{half}".encode() for half in "ab"])
        came.append([parcel.payload for parcel in node.collect(round, deadline_s=LONG_S)])
    return came


def whole(node, rounds):
    others = [name for name in NAMES if name != node.name]
    return [[f"{name}{round}{half}".encode() for name in others for half in "ab"] for round in rounds]


def test_what_is_lost_doubled_and_reordered_comes_exactly_once_in_lockstep(net, trio):
    net.faults = LOSSY
    results = in_threads([lambda node=node: play(node, range(12)) for node in trio])
    for node, came in zip(trio, results, strict=True):
        assert came == whole(node, range(12))
        assert node.num_late() == {}
    assert sum(node.status().num_repaired for node in trio) > 0


def test_what_is_lost_doubled_and_reordered_comes_exactly_once_at_free_pace(net):
    party = Party(net.link, NAMES, heartbeat_s=0.1, fresh_s=4.0, repair_after_s=0.1, max_lag=50, keep_rounds=60)
    nodes = [party.join(name) for name in NAMES]
    wait_for(lambda: all(len(node.peers()) == 2 for node in nodes), "all to meet")
    net.faults = LOSSY
    for round in range(30):
        for node in nodes:
            node.publish(round, [f"{node.name}{round}{half}".encode() for half in "ab"])
    for node in nodes:
        came = []

        def has_all(node=node, came=came):
            came += node.collect(30, deadline_s=0.0, max_lag=50)
            return len(came) >= 2 * 30 * 2

        wait_for(has_all, "everything to come")
        came += node.collect(30, deadline_s=0.0, max_lag=50)
        assert sorted(parcel.payload for parcel in came) == sorted(
            one for some in whole(node, range(30)) for one in some
        )
        assert node.num_late() == {}
    party.close()


def test_late_messages_are_not_lost_on_a_slow_net(net, trio):
    net.faults = Faults(delay_s=0.05)
    results = in_threads([lambda node=node: play(node, range(5)) for node in trio])
    for node, came in zip(trio, results, strict=True):
        assert came == whole(node, range(5))


def test_a_partition_costs_the_others_nothing_and_heals(net, trio):
    ann, bob, cid = trio
    net.partition(["cid"])
    wait_for(lambda: ann.peers() == ["bob"] and bob.peers() == ["ann"], "cid to be missed")
    wait_for(lambda: cid.peers() == [], "cid to find itself alone")
    results = in_threads([lambda node=node: play(node, range(3)) for node in trio])
    assert results[0] == [[b"bob%da" % round, b"bob%db" % round] for round in range(3)]
    assert results[2] == [[], [], []]
    assert cid.status().is_alone
    net.heal()
    wait_for(lambda: all(len(node.peers()) == 2 for node in trio), "all to meet again")
    results = in_threads([lambda node=node: play(node, range(3, 6)) for node in trio])
    for node, came in zip(trio, results, strict=True):
        assert came == whole(node, range(3, 6))


def test_churn_during_a_partition_hurts_nobody(net, trio):
    ann, bob, cid = trio
    net.partition(["cid"])
    wait_for(lambda: ann.peers() == ["bob"] and bob.peers() == ["ann"], "cid to be missed")
    party = Party(net.link, NAMES)
    party.run_id = ann._identity.run_id
    for _ in range(3):
        stranger = party.join("dan")  # not of the run file
        with suppress(SwarmRefused):  # it may have heard by now that nobody believes it
            stranger.publish(0, [b"x"])
        stranger.close()
    results = in_threads([lambda node=node: play(node, range(3)) for node in (ann, bob)])
    assert [[len(came) for came in one] for one in results] == [[2, 2, 2], [2, 2, 2]]
    net.heal()
    wait_for(lambda: all(len(node.peers()) == 2 for node in trio), "all to meet again")
    assert ann.num_refused()["?"]["unknown_peer"] > 0
    assert cid.peers() == ["ann", "bob"]


def test_a_frozen_peer_is_dropped_and_lockstep_goes_on(net, trio):
    ann, bob, cid = trio
    in_threads([lambda node=node: play(node, [0]) for node in trio])
    net.freeze("cid")
    start_s = time.monotonic()
    results = in_threads([lambda node=node: play(node, [1, 2]) for node in (ann, bob)])
    assert time.monotonic() - start_s < LONG_S / 2, "that is long before the deadline"
    assert results == [[[b"bob1a", b"bob1b"], [b"bob2a", b"bob2b"]], [[b"ann1a", b"ann1b"], [b"ann2a", b"ann2b"]]]
    told = []
    wait_for(lambda: told.extend(ann.events()) or "silent" in [event.kind for event in told], "the silence to be told")
    assert [event.kind for event in told if event.peer == "cid"] == ["joined", "silent"]
    net.thaw("cid")
    wait_for(lambda: ann.peers() == ["bob", "cid"], "cid to come back")
    wait_for(lambda: cid.swarm_round() == 2, "cid to hear how far the others are")


def test_a_broken_link_is_opened_anew_and_what_was_missed_is_fetched(net, trio):
    ann, bob, cid = trio
    net.break_link("ann", "cable out", reopens=False)
    wait_for(lambda: ann.status().link_fault is not None, "the fault to be seen")
    ann.publish(0, [b"a0"])
    for node in (bob, cid):
        node.publish(0, [f"{node.name}0".encode()])
    net.let_in("ann")
    wait_for(lambda: ann.status().link_fault is None, "the link to work again")
    came = in_threads([lambda node=node: node.collect(0, deadline_s=LONG_S) for node in trio])
    assert [[parcel.payload for parcel in one] for one in came] == [
        [b"bob0", b"cid0"], [b"a0", b"cid0"], [b"a0", b"bob0"]
    ]  # fmt: skip
    assert [event.kind for event in ann.events() if not event.peer] == ["link_down", "link_up"]


def test_a_flood_of_one_delays_and_loses_nothing_of_another(net, trio):
    ann, bob, _ = trio
    stop = threading.Event()

    def flood():
        number = 0
        while not stop.is_set():
            number += 1
            ann._arrivals.put(f"roll/cid/{number % 900}", bytes(20_000))
            ann._arrivals.put(f"roll/nobody{number % 500}/0", bytes(20_000))

    flooding = threading.Thread(target=flood, daemon=True)
    flooding.start()
    try:
        for round in range(20):
            bob.publish(round, [b"b%d" % round] * 8)
            wait_for(lambda round=round: "bob" not in ann.waiting_for(round), "bob's round to come")
            came = ann.collect(round, deadline_s=0.0)
            assert [parcel.payload for parcel in came if parcel.peer == "bob"] == [b"b%d" % round] * 8
    finally:
        stop.set()
        flooding.join()
    refused = ann.num_refused()
    assert refused["cid"]["flood"] > 0
    assert refused["?"]["flood"] > 0
    assert "flood" not in refused.get("bob", {})
    waiting_bytes = sum(queue.num_bytes for queue in ann._arrivals._queues.values())
    assert waiting_bytes <= 3 * 8 * 1_000_000
    assert len(ann._arrivals._queues) <= 3
