"""How long a node bears with others: peers that never are in time, and a swarm that does not take it."""

from __future__ import annotations

import pytest
from network_hub import Party, Stage, wait_for

from motet.errors import SwarmRefused
from motet.swarm.engines.memory_link import MemoryNet
from motet.swarm.identity.keys import NodeKey

LONG_S = 30.0


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.party.close()


@pytest.fixture
def net():
    net = MemoryNet(seed=3)
    yield net
    net.close()


def test_who_misses_three_deadlines_is_not_waited_for_until_it_is_in_time(net):
    party = Party(net.link, ("ann", "bob"), heartbeat_s=0.05)
    ann, bob = party.join("ann"), party.join("bob")
    for node in (ann, bob):
        node.begin(0)
    wait_for(lambda: ann.peers() == ["bob"] and bob.peers() == ["ann"])
    for round in range(3):
        ann.publish(round, [b"a"])
        assert ann.waiting_for(round) == ["bob"]
        assert ann.collect(round, deadline_s=0.1) == []
    assert ("overdue", "bob") in [(event.kind, event.peer) for event in ann.events()]
    ann.publish(3, [b"a"])
    assert ann.waiting_for(3) == []
    assert ann.collect(3, deadline_s=LONG_S) == []
    bob.publish(4, [b"b"])
    wait_for(lambda: ann._known.shelf.has_all("bob", 4))
    ann.publish(4, [b"a"])
    assert [parcel.payload for parcel in ann.collect(4, deadline_s=LONG_S)] == [b"b"]
    assert ann.waiting_for(5) == ["bob"], "it was in time"
    party.close()


def test_a_look_without_a_wait_is_no_missed_deadline(stage):
    ann, _ = stage.meet("ann", "bob")
    for round in range(5):
        ann.publish(round, [])
        ann.collect(round, deadline_s=0.0)
    assert ann.waiting_for(5) == ["bob"]


def test_a_node_that_all_refuse_is_told_so_and_stops(stage):
    stage.join("bob")
    stage.join("cid")
    ann = stage.join("ann")
    stage.pass_s(2.0)
    ann.publish(0, [])
    other_key = NodeKey.generate()  # the name is taken, as by another machine with the same invitation
    ann.close()
    second = stage.net.link("second ann")
    impostor = stage.party.join("ann", threads=False, clock=ann._clock, key=other_key, link=second)
    stage.nodes["ann"] = impostor
    stage.pass_s(3.0)
    with pytest.raises(SwarmRefused) as caught:
        impostor.publish(0, [b"x"])
    assert caught.value.code == "E-SWARM-14"


def test_a_newcomer_sends_nobody_away(stage):
    ann = stage.join("ann")
    ann.publish(0, [])
    bob = stage.join("bob")
    stage.pass_s(2.0)
    bob._known.note_refused(ann._identity.key.public)
    stage.pass_s(3.0)
    assert ann._known.membership.peer("bob").refuses
    ann.publish(1, [])
