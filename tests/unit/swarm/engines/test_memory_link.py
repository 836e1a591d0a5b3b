"""The faults of links in memory, and what they count."""

from __future__ import annotations

import threading

import pytest
from network_hub import wait_for

from motet.errors import SwarmUnreachable
from motet.swarm.engines.memory_link import Faults, MemoryNet


def meet(net, *names, pushed=True):
    """Links that are open, and what has come to each."""
    links, came = {}, {name: [] for name in names}
    for name in names:
        links[name] = net.link(name)
        links[name].open(
            inbox=lambda _, message, name=name: came[name].append(message),
            answer=lambda topic, name=name: [f"{name}:{topic}".encode()],
            pushed=pushed,
        )
    return links, came


def send_all(link, count, topic="beat/ann"):
    messages = [b"%d" % number for number in range(count)]
    for message in messages:
        link.send(topic, message)
    return messages


def test_without_faults_everything_comes_once_and_in_order():
    links, came = meet(MemoryNet(), "ann", "bob")
    assert came == {"ann": [], "bob": []}
    assert send_all(links["ann"], 50) == came["bob"]


def test_drop_loses_about_that_share():
    net = MemoryNet(seed=3)
    links, came = meet(net, "ann", "bob")
    net.faults = Faults(drop=0.3)
    send_all(links["ann"], 1000)
    assert 600 < len(came["bob"]) < 800


def test_duplicate_doubles_about_that_share():
    net = MemoryNet(seed=3)
    links, came = meet(net, "ann", "bob")
    net.faults = Faults(duplicate=0.3)
    sent = send_all(links["ann"], 1000)
    assert 1200 < len(came["bob"]) < 1400
    assert set(came["bob"]) == set(sent)


def test_reorder_loses_nothing_and_changes_the_order():
    net = MemoryNet(seed=3)
    links, came = meet(net, "ann", "bob")
    net.faults = Faults(reorder=0.5)
    sent = send_all(links["ann"], 200)
    net.faults = Faults()
    sent += send_all(links["ann"], 10)  # overtake what is still held back
    assert sorted(came["bob"]) == sorted(sent)
    assert came["bob"] != sent


def test_delayed_messages_come_later_by_a_thread_that_ends_with_the_net():
    net = MemoryNet(seed=3)
    links, came = meet(net, "ann", "bob")
    net.faults = Faults(delay_s=0.02)
    sent = send_all(links["ann"], 20)
    wait_for(lambda: len(came["bob"]) == 20)
    assert sorted(came["bob"]) == sorted(sent)
    net.close()
    assert [thread for thread in threading.enumerate() if thread.name == "memory-net"] == []


def test_a_partition_cuts_sending_and_fetching_until_it_heals():
    net = MemoryNet()
    links, came = meet(net, "ann", "bob", "cid", "dan")
    net.partition(["ann", "bob"], ["cid"])
    links["ann"].send("beat/ann", b"1")
    assert [came[name] for name in ("bob", "cid", "dan")] == [[b"1"], [], []]
    assert links["cid"].fetch("card/ann", timeout_s=1) == []
    assert [one.address for one in links["ann"].neighbours()] == ["memory/bob"]
    net.heal()
    links["ann"].send("beat/ann", b"2")
    assert [came[name] for name in ("bob", "cid", "dan")] == [[b"1", b"2"], [b"2"], [b"2"]]
    assert links["cid"].fetch("card/ann", timeout_s=1) == [b"ann:card/ann"]


def test_a_frozen_node_is_cut_off_without_a_fault():
    net = MemoryNet()
    links, came = meet(net, "ann", "bob")
    net.freeze("bob")
    links["ann"].send("beat/ann", b"1")
    links["bob"].send("beat/bob", b"1")
    assert came == {"ann": [], "bob": []}
    assert links["bob"].fault() is None
    net.thaw("bob")
    links["bob"].send("beat/bob", b"2")
    assert came["ann"] == [b"2"]


def test_a_broken_link_says_why_and_works_once_it_is_opened_anew():
    net = MemoryNet()
    links, came = meet(net, "ann", "bob")
    net.break_link("ann", "cable out", reopens=False)
    assert links["ann"].fault() == "cable out"
    links["ann"].send("beat/ann", b"1")
    links["bob"].send("beat/bob", b"1")
    links["ann"].close()
    with pytest.raises(SwarmUnreachable) as caught:
        links["ann"].open(inbox=lambda *_: None, answer=lambda _: (), pushed=True)
    assert caught.value.code == "E-LINK-01"
    net.let_in("ann")
    links["ann"].open(inbox=lambda _, message: came["ann"].append(message), answer=lambda _: (), pushed=True)
    assert links["ann"].fault() is None
    links["bob"].send("beat/bob", b"2")
    links["ann"].send("beat/ann", b"2")
    assert came == {"ann": [b"2"], "bob": [b"2"]}


def test_counts_bytes_by_kind_as_often_as_they_are_sent():
    links, _ = meet(MemoryNet(), "ann", "bob", "cid")
    links["ann"].send("roll/ann/0", bytes(100))
    links["ann"].send("beat/ann", bytes(10))
    links["bob"].fetch("card/ann", timeout_s=1)
    sent, received = links["ann"].traffic, links["bob"].traffic
    assert sent.sent_bytes == {"roll": 200, "beat": 20, "card": len("ann:card/ann")}
    assert received.received_bytes == {"roll": 100, "beat": 10, "card": len("ann:card/ann")}
    assert (sent.sent_messages["roll"], received.received_messages["roll"]) == (2, 1)


def test_faults_are_the_same_for_the_same_seed():
    def play(seed):
        net = MemoryNet(seed=seed)
        links, came = meet(net, "ann", "bob")
        net.faults = Faults(drop=0.2, duplicate=0.2, reorder=0.2)
        send_all(links["ann"], 100)
        return came["bob"]

    assert play(1) == play(1) != play(2)
