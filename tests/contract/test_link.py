"""What every link must do. Another one passes by one line in `network_hub.LINKS`.

A link may lose, double and reorder what it carries, so these tests send until something has come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from network_hub import LINKS, MakeLink, wait_for

from motet.swarm.engines.links import Link, Neighbour

FETCH_S = 5.0
MEMORY = {"memory"}


@dataclass
class Node:
    """An open link, what has come to it, and what it has for those who ask."""

    link: Link
    came: list[tuple[str, bytes]] = field(default_factory=list)
    has: dict[str, Sequence[bytes]] = field(default_factory=dict)

    def open(self, *, pushed: bool = True, answers: bool = True) -> Node:
        self.link.open(
            inbox=lambda topic, message: self.came.append((topic, message)),
            answer=(lambda topic: self.has.get(topic, ())) if answers else None,
            pushed=pushed,
        )
        return self

    def under(self, topic: str) -> list[bytes]:
        return [message for where, message in list(self.came) if where == topic]


@pytest.fixture(
    params=[
        pytest.param(factory, id=name, marks=() if name in MEMORY else pytest.mark.network)
        for name, factory in LINKS.items()
    ]
)
def make(request: pytest.FixtureRequest) -> Iterator[MakeLink]:
    with request.param() as make_link:
        yield make_link


@pytest.fixture
def node(make: MakeLink) -> Iterator[Callable[..., Node]]:
    """Builds nodes; closes their links."""
    with ExitStack() as stack:

        def build(name: str, **options: bool) -> Node:
            link = make(name)
            stack.callback(link.close)
            return Node(link).open(**options)

        yield build


def send_until(sender: Node, topic: str, message: bytes, *receivers: Node) -> None:
    """Send again and again until it has come to all."""

    def has_come() -> bool:
        sender.link.send(topic, message)
        time.sleep(0.01)
        return all(message in receiver.under(topic) for receiver in receivers)

    wait_for(has_come, topic)


def fetch_until(asking: Node, topic: str, expected: set[bytes]) -> None:
    """Ask again and again until everything has come."""
    wait_for(lambda: expected <= set(asking.link.fetch(topic, timeout_s=FETCH_S)), topic)


class TestLink:
    def test_what_is_sent_comes_to_all_others_unaltered(self, node):
        ann, bob, cid = node("ann"), node("bob"), node("cid")
        send_until(ann, "beat/ann", b"\x00hello\xff", bob, cid)
        send_until(bob, "roll/bob/17", b"groups", ann, cid)
        assert {where for where, _ in bob.came} <= {"beat/ann"}
        assert set(ann.came) == {("roll/bob/17", b"groups")}

    def test_a_node_does_not_get_what_it_sends_itself(self, node):
        ann, bob = node("ann"), node("bob")
        send_until(ann, "beat/ann", b"one", bob)
        send_until(bob, "beat/bob", b"two", ann)
        assert ann.under("beat/ann") == []
        assert bob.under("beat/bob") == []

    def test_large_messages_come_whole(self, node):
        ann, bob = node("ann"), node("bob")
        message = bytes(range(256)) * 3900
        send_until(ann, "roll/ann/0", message, bob)
        assert set(bob.under("roll/ann/0")) == {message}

    def test_who_does_not_want_rounds_pushed_gets_heartbeats_only(self, node):
        ann, bob, cid = node("ann"), node("bob", pushed=False), node("cid")
        send_until(ann, "roll/ann/0", b"groups", cid)
        send_until(ann, "beat/ann", b"beat", bob, cid)
        assert bob.under("roll/ann/0") == []

    def test_rounds_can_be_fetched_by_those_to_whom_they_were_not_pushed(self, node):
        ann, bob = node("ann"), node("bob", pushed=False)
        ann.has["roll/ann/3"] = [b"one", b"two"]
        for message in ann.has["roll/ann/3"]:
            ann.link.send("roll/ann/3", message)
        fetch_until(bob, "roll/ann/3", {b"one", b"two"})

    def test_who_joins_later_can_fetch_what_was_sent_before(self, node):
        ann = node("ann")
        ann.has["roll/ann/0"] = [b"early"]
        ann.link.send("roll/ann/0", b"early")
        bob = node("bob")
        fetch_until(bob, "roll/ann/0", {b"early"})

    def test_who_only_listens_hears_heartbeats_and_answers_nobody(self, node):
        ann, bob, ear = node("ann"), node("bob"), node("ear", pushed=False, answers=False)
        ear.has["card/ear"] = [b"a card"]
        send_until(ann, "beat/ann", b"one", bob, ear)
        send_until(bob, "beat/bob", b"two", ann, ear)
        assert bob.link.fetch("card/ear", timeout_s=0.5) == []
        assert {where for where, _ in ear.came} == {"beat/ann", "beat/bob"}

    def test_cards_can_be_fetched(self, node):
        ann, bob = node("ann"), node("bob")
        ann.has["card/ann"] = [b"the card"]
        fetch_until(bob, "card/ann", {b"the card"})
        assert bob.under("card/ann") == []

    def test_a_fetch_of_what_nobody_has_ends_in_time_with_nothing(self, node):
        ann, bob = node("ann"), node("bob")
        send_until(ann, "beat/ann", b"here", bob)
        for topic in ("roll/ann/5", "roll/nobody/0", "card/nobody"):
            start_s = time.monotonic()
            assert bob.link.fetch(topic, timeout_s=0.5) == []
            assert time.monotonic() - start_s < 10

    def test_fetches_of_several_threads_do_not_mix(self, node):
        ann, bob = node("ann"), node("bob")
        for round in range(8):
            ann.has[f"roll/ann/{round}"] = [b"%d" % round]
            ann.link.send(f"roll/ann/{round}", b"%d" % round)
        fetch_until(bob, "roll/ann/7", {b"7"})
        wrong: list[object] = []

        def ask(round: int) -> None:
            for _ in range(5):
                came = bob.link.fetch(f"roll/ann/{round}", timeout_s=FETCH_S)
                wrong.extend(one for one in came if one != b"%d" % round)

        threads = [threading.Thread(target=ask, args=(round,)) for round in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []

    def test_nobody_is_hurt_by_one_that_has_left(self, node):
        ann, bob, cid = node("ann"), node("bob"), node("cid")
        send_until(ann, "beat/ann", b"1", bob, cid)
        bob.link.close()
        bob.link.close()
        num_before = len(bob.came)
        send_until(ann, "beat/ann", b"2", cid)
        assert len(bob.came) == num_before
        assert cid.link.fetch("card/bob", timeout_s=0.5) == []

    def test_a_closed_link_sends_and_fetches_nothing_and_does_not_raise(self, node):
        ann, bob = node("ann"), node("bob")
        send_until(ann, "beat/ann", b"1", bob)
        ann.link.close()
        ann.link.send("beat/ann", b"ghost")
        assert ann.link.fetch("card/bob", timeout_s=0.5) == []
        assert ann.link.neighbours() == []
        assert b"ghost" not in bob.under("beat/ann")

    def test_a_link_can_be_opened_again(self, node):
        ann, bob = node("ann"), node("bob")
        for number in range(3):
            ann.link.close()
            ann.open()
            send_until(ann, "beat/ann", b"%d" % number, bob)
            send_until(bob, "beat/bob", b"%d" % number, ann)
        assert ann.link.fault() is None

    def test_says_who_is_connected_and_that_all_is_well(self, node):
        ann, bob = node("ann"), node("bob")
        send_until(ann, "beat/ann", b"1", bob)
        for one in (ann, bob):
            wait_for(one.link.neighbours)
            assert all(isinstance(neighbour, Neighbour) and neighbour.address for neighbour in one.link.neighbours())
            assert one.link.fault() is None

    def test_sending_does_not_wait(self, node):
        ann, bob = node("ann"), node("bob")
        send_until(ann, "beat/ann", b"1", bob)
        start_s = time.monotonic()
        for number in range(100):
            ann.link.send(f"roll/ann/{number}", bytes(50_000))
        assert time.monotonic() - start_s < 10
        send_until(ann, "beat/ann", b"2", bob)
