from __future__ import annotations

import msgspec
import pytest

from motet.errors import UsageError
from motet.swarm import HubState, MemoryHub, Parcel


def payloads(exchange, round, max_lag=None):
    return [parcel.payload for parcel in exchange.collect(round, deadline_s=0.0, max_lag=max_lag)]


def test_two_live_nodes_of_one_name_are_the_users_mistake():
    hub = MemoryHub()
    ann = hub.join("ann")
    with pytest.raises(UsageError, match=r"node.name: 'ann' is used by two nodes") as caught:
        hub.join("ann")
    assert caught.value.code == "E-SWARM-01"
    ann.close()
    hub.join("ann")


def test_a_node_that_joins_under_way_is_waited_for_from_its_first_publish_on():
    hub = MemoryHub()
    ann, bob = hub.join("ann"), hub.join("bob")
    ann.publish(0, [b"before"])
    cid = hub.join("cid")
    assert ann.peers() == ["bob", "cid"]
    assert ann.waiting_for(0) == ["bob"]
    assert payloads(cid, 0) == []
    bob.publish(0, [b"after"])
    assert payloads(cid, 0) == [b"after"]
    cid.publish(1, [])
    assert ann.waiting_for(1) == ["bob"]
    assert ann.waiting_for(2) == ["bob", "cid"]


def test_a_node_that_comes_back_begins_anew():
    hub = MemoryHub()
    ann, bob = hub.join("ann"), hub.join("bob")
    bob.publish(0, [])
    ann.publish(0, [b"missed"])
    bob.close()
    again = hub.join("bob")
    assert payloads(again, 0, max_lag=5) == []
    assert ann.waiting_for(1) == []
    assert again.waiting_for(1) == ["ann"]


def test_a_later_round_counts_for_the_earlier_ones():
    hub = MemoryHub()
    ann, bob = hub.join("ann"), hub.join("bob")
    bob.publish(5, [b"5"])
    assert ann.waiting_for(3) == []
    bob.publish(4, [b"4"])
    assert ann.waiting_for(5) == []
    assert payloads(ann, 4) == [b"4"]


def test_publishing_twice_for_a_round_appends():
    hub = MemoryHub()
    ann, bob = hub.join("ann"), hub.join("bob")
    bob.publish(0, [b"1"])
    bob.publish(0, [b"2"])
    assert payloads(ann, 0) == [b"1", b"2"]


def test_an_inbox_holds_only_what_is_yet_to_be_collected():
    hub = MemoryHub()
    ann, bob = hub.join("ann"), hub.join("bob")
    for round in range(100):
        bob.publish(round, [b"x"] * 3)
        payloads(ann, round)
        ann.publish(round, [b"y"])
        assert len(hub.snapshot().undelivered) == round + 1  # those that bob never collects
    payloads(bob, 99)
    assert hub.snapshot().undelivered == ()
    assert bob.num_late() == {"ann": 99}


def played():
    hub = MemoryHub()
    ann, bob, cid = (hub.join(name) for name in ("ann", "bob", "cid"))
    for round in range(3):
        ann.publish(round, [f"a{round}".encode()])
        bob.publish(round, [f"b{round}".encode()] * 2)
    cid.publish(0, [])
    payloads(cid, 2, max_lag=1)
    payloads(ann, 1)
    return hub, (ann, bob, cid)


def test_snapshot_is_plain_data():
    hub, _ = played()
    state = hub.snapshot()
    assert state == HubState(
        published={"ann": 2, "bob": 2, "cid": 0},
        undelivered=(
            ("ann", Parcel("bob", 2, b"b2")),
            ("ann", Parcel("bob", 2, b"b2")),
            ("bob", Parcel("ann", 0, b"a0")),
            ("bob", Parcel("ann", 1, b"a1")),
            ("bob", Parcel("ann", 2, b"a2")),
        ),
        late={"ann": {"bob": 2}, "cid": {"ann": 1, "bob": 2}},
    )
    packed = msgspec.msgpack.encode(state)
    twin = MemoryHub()
    twin.restore(msgspec.msgpack.decode(packed, type=HubState))
    assert twin.snapshot() == state


@pytest.mark.parametrize("joins_first", [True, False])
def test_a_restored_hub_goes_on_like_the_one_before(joins_first):
    before, nodes_before = played()
    after = MemoryHub()
    names = ("ann", "bob", "cid")
    if joins_first:
        nodes_after = [after.join(name) for name in names]
        after.restore(before.snapshot())
    else:
        after.restore(before.snapshot())
        nodes_after = [after.join(name) for name in names]
    assert after.snapshot() == before.snapshot()
    for one, other in zip(nodes_before, nodes_after, strict=True):
        assert one.waiting_for(2) == other.waiting_for(2)
        assert one.waiting_for(3) == other.waiting_for(3)
        assert payloads(one, 2, max_lag=1) == payloads(other, 2, max_lag=1)
        assert one.num_late() == other.num_late()


def test_a_restored_node_that_never_joins_is_not_waited_for():
    hub = MemoryHub()
    hub.restore(HubState(published={"ann": 3, "bob": 3}))
    ann = hub.join("ann")
    assert ann.peers() == []
    assert ann.waiting_for(4) == []
