"""Large swarms: nothing is pushed, and each node fetches a fair sample of what is announced."""

from __future__ import annotations

from collections import Counter

import pytest
from network_hub import Stage

from motet.swarm.engines.memory_link import Faults

LONG_S = 30.0
NAMES = tuple(f"n{number:02d}" for number in range(12))


@pytest.fixture
def stage():
    stage = Stage(NAMES, max_foreign_groups=8, num_rounds=200)
    yield stage
    stage.party.close()


def groups(node, round, count=4):
    return [f"{node.name}/{round}/{number}".encode() for number in range(count)]


def publish_all(nodes, round, count=4):
    for node in nodes:
        node.publish(round, groups(node, round, count))


def sent_rolls(stage):
    return sum(node._link.traffic.received_messages["roll"] for node in stage.nodes.values())


def test_lockstep_takes_as_many_groups_as_wanted_and_no_more(stage):
    nodes = stage.meet(*NAMES)
    for round in range(3):
        publish_all(nodes, round)
        for node in nodes:
            came = node.collect(round, deadline_s=LONG_S)
            assert len(came) == 8
            assert {parcel.round for parcel in came} == {round}
            assert len({parcel.peer for parcel in came}) == 2
            assert all(parcel.payload.startswith(f"{parcel.peer}/{round}/".encode()) for parcel in came)
    assert sent_rolls(stage) == 3 * len(nodes) * 2, "nothing was sent that was not drawn"


def test_everything_is_taken_where_there_is_no_more(stage):
    nodes = stage.meet("n00", "n01", "n02")
    publish_all(nodes, 0)
    assert len(nodes[0].collect(0, deadline_s=LONG_S)) == 8
    publish_all(nodes, 1, count=3)
    assert len(nodes[0].collect(1, deadline_s=LONG_S)) == 6
    publish_all(nodes, 2, count=0)
    assert nodes[0].collect(2, deadline_s=LONG_S) == []


def test_the_draw_is_the_same_for_the_same_seed_and_another_for_each_node_and_round():
    def play(seed):
        stage = Stage(NAMES, max_foreign_groups=8, seed=seed)
        nodes = stage.meet(*NAMES)
        drawn = {}
        for round in range(2):
            publish_all(nodes, round)
            for node in nodes:
                came = node.collect(round, deadline_s=LONG_S)
                drawn[node.name, round] = frozenset(parcel.peer for parcel in came)
        stage.party.close()
        return drawn

    first = play(1)
    assert first == play(1) != play(2)
    assert len(set(first.values())) > 12


def test_the_draw_is_fair_over_peers(stage):
    nodes = stage.meet(*NAMES)
    counts = Counter()
    for round in range(60):
        publish_all(nodes, round)
        counts.update(parcel.peer for parcel in nodes[0].collect(round, deadline_s=LONG_S))
    expected = 60 * 8 / 11
    assert set(counts) == set(NAMES[1:])
    assert all(expected / 2 < count < expected * 2 for count in counts.values())


def test_free_pace_draws_over_peers_and_rounds_and_takes_nothing_twice(stage):
    stage.party.options |= {"max_lag": 3, "keep_rounds": 5}
    nodes = stage.meet(*NAMES)
    seen = Counter()
    for round in range(10):
        publish_all(nodes, round)
        came = nodes[0].collect(round, deadline_s=0.0, max_lag=3)
        assert len(came) <= 8
        assert all(round - 3 <= parcel.round <= round for parcel in came)
        seen.update(parcel.payload for parcel in came)
    assert max(seen.values()) == 1
    assert sum(seen.values()) >= 8 * 8
    assert len({payload.split(b"/")[0] for payload in seen}) > 6


def test_a_claim_of_many_groups_does_not_take_the_place_of_others(stage):
    nodes = stage.meet(*NAMES)
    liar = nodes[1]
    for round in range(20):
        publish_all([node for node in nodes if node is not liar], round)
        liar.publish(round, groups(liar, round, count=500))
        came = Counter(parcel.peer for parcel in nodes[0].collect(round, deadline_s=LONG_S))
        assert came.total() == 8
        assert came[liar.name] <= 4


def test_announcing_what_is_not_there_costs_only_the_announcer(stage):
    nodes = stage.meet(*NAMES)
    liar = nodes[1]
    liar._publisher.answer = lambda _: ()
    stage.net._links[liar.name]._answer = lambda _: ()
    for round in range(10):
        publish_all(nodes, round)
        came = Counter(parcel.peer for parcel in nodes[0].collect(round, deadline_s=LONG_S))
        assert came.total() == 8
        assert came[liar.name] == 0


def test_answers_that_were_not_announced_do_not_exceed_what_was_wanted(stage):
    nodes = stage.meet("n00", "n01", "n02", max_message_bytes=4096)
    boaster = nodes[1]
    held = boaster._publisher.held
    boaster._publisher.held = lambda: tuple(type(one)(one.round, 1, 2) for one in held())
    boaster.publish(0, [bytes(1000)] * 100)
    nodes[2].publish(0, groups(nodes[2], 0))
    nodes[0].publish(0, [])
    came = Counter(parcel.peer for parcel in nodes[0].collect(0, deadline_s=LONG_S))
    assert came == {"n01": 2, "n02": 4}


def test_losses_are_asked_for_again(stage):
    nodes = stage.meet(*NAMES)
    stage.net.faults = Faults(drop=0.3)
    total = 0
    for round in range(5):
        publish_all(nodes, round)
        stage.pass_s(3.0)
        total += len(nodes[0].collect(round, deadline_s=0.2))
    assert total > 0.6 * 5 * 8


def test_a_silent_peer_is_not_asked(stage):
    nodes = stage.meet("n00", "n01", "n02")
    publish_all(nodes, 0)
    stage.net.freeze("n01")
    stage.pass_s(10.0)
    came = Counter(parcel.peer for parcel in nodes[0].collect(0, deadline_s=LONG_S))
    assert came == {"n02": 4}


def test_who_waits_goes_on_at_half_of_the_deadline_with_those_that_have_announced(stage):
    nodes = stage.meet("n00", "n01", "n02")
    publish_all(nodes[:2], 0)
    assert nodes[0].waiting_for(0) == ["n02"]
    came = Counter(parcel.peer for parcel in nodes[0].collect(0, deadline_s=0.2))
    assert came == {"n01": 4}
