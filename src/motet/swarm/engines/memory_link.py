"""Links between nodes of one process, with the faults of a network on demand. Messages are delivered as they are sent.

net = MemoryNet(seed=7)
ann, bob = net.link("ann"), net.link("bob")
net.faults = Faults(drop=0.3, duplicate=0.1, reorder=0.2)
net.partition(["ann"], ["bob"])
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from motet.errors import SwarmUnreachable
from motet.swarm.engines.links import Answer, Inbox, Neighbour

_MOST_OVERTAKING: Final = 8
_Delivery = tuple["MemoryLink", str, bytes]


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to messages under way.

    Attributes:
        drop: probability that a message is lost; of a fetch: that the question is lost, and each of its answers.
        duplicate: probability that it is delivered twice.
        reorder: probability that it is held back until up to eight later ones have overtaken it.
        delay_s: longest delay; each message draws its own. 0 delivers within `send`.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_s: float = 0.0


@dataclass(slots=True)
class Traffic:
    """What one link has carried: bytes and messages by kind, which is the first part of the topic."""

    sent_bytes: Counter[str] = field(default_factory=Counter)
    sent_messages: Counter[str] = field(default_factory=Counter)
    received_bytes: Counter[str] = field(default_factory=Counter)
    received_messages: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _HeldBack:
    overtaken_by: int
    topic: str
    message: bytes


class MemoryNet:
    """What links of one process are connected to. Safe to use from several threads.

    Args:
        seed: of the faults.
        clock: in seconds, for delays.
    """

    def __init__(self, *, seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.faults = Faults()
        self._random = random.Random(seed)
        self._clock = clock
        self._changed = threading.Condition()
        self._links: dict[str, MemoryLink] = {}
        self._side: dict[str, int] = {}
        self._frozen: set[str] = set()
        self._closed_doors: set[str] = set()
        self._under_way: list[tuple[float, int, _Delivery]] = []
        self._num_delayed = 0
        self._courier: threading.Thread | None = None
        self._is_closed = False

    def link(self, name: str) -> MemoryLink:
        """A link for a node of this name; it takes part once it is opened."""
        return MemoryLink(self, name)

    def partition(self, *sides: Iterable[str]) -> None:
        """Cut the net: only nodes of one side reach each other; nodes that are not named form one more side."""
        with self._changed:
            self._side = {name: number for number, side in enumerate(sides) for name in side}

    def heal(self) -> None:
        """Everybody reaches everybody again; what was sent meanwhile is lost."""
        self.partition()

    def freeze(self, name: str) -> None:
        """Nothing comes from or reaches this node any more, although it does not know."""
        with self._changed:
            self._frozen.add(name)

    def thaw(self, name: str) -> None:
        """Undo `freeze`."""
        with self._changed:
            self._frozen.discard(name)

    def break_link(self, name: str, why: str, *, reopens: bool = True) -> None:
        """Give the node's link a fault until it is opened anew, which fails while `reopens` is False."""
        with self._changed:
            link = self._links.pop(name, None)
            if not reopens:
                self._closed_doors.add(name)
        if link is not None:
            link.fail(why)

    def let_in(self, name: str) -> None:
        """The node's link can be opened again."""
        with self._changed:
            self._closed_doors.discard(name)

    def close(self) -> None:
        """End the thread that carries delayed messages, if there is one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            courier = self._courier
        if courier is not None:
            courier.join()

    def attach(self, link: MemoryLink) -> None:
        """For links: take part.

        Raises:
            SwarmUnreachable: the node is not let in (E-LINK-01).
        """
        with self._changed:
            if link.name in self._closed_doors:
                raise SwarmUnreachable(f"memory/{link.name}: nobody answers; try again later", code="E-LINK-01")
            self._links[link.name] = link

    def detach(self, link: MemoryLink) -> None:
        """For links: take part no more."""
        with self._changed:
            if self._links.get(link.name) is link:
                del self._links[link.name]

    def others(self, link: MemoryLink) -> list[str]:
        """For links: names of those that it reaches, sorted."""
        with self._changed:
            if self._links.get(link.name) is not link:
                return []
            return sorted(name for name in self._links if name != link.name and self._reaches(link.name, name))

    def carry(self, sender: MemoryLink, topic: str, message: bytes) -> None:
        """For links: deliver to all who listen to the topic, so far as the faults let it."""
        kind = topic.split("/", 1)[0]
        with self._changed:
            if self._links.get(sender.name) is not sender:
                return
            now: list[_Delivery] = []
            for name, receiver in self._links.items():
                if receiver is not sender and receiver.listens_to(kind):
                    _count(sender.traffic.sent_bytes, sender.traffic.sent_messages, kind, message)
                    if self._reaches(sender.name, name):
                        now += self._pass_on(receiver, topic, message)
        _deliver(now)

    def ask(self, asking: MemoryLink, topic: str) -> list[bytes]:
        """For links: what the node that the topic names has under it, so far as the faults let it through."""
        kind, _, rest = topic.partition("/")
        name = rest.split("/", 1)[0]
        with self._changed:
            asked = self._links.get(name)
            open_here = self._links.get(asking.name) is asking
            if asked is None or asked is asking or not open_here or not self._reaches(asking.name, name):
                return []
            if self._is_unlucky(self.faults.drop):
                return []
        answers = asked.answer_to(topic)
        with self._changed:
            arrived = [answer for answer in answers if not self._is_unlucky(self.faults.drop)]
            for message in answers:
                _count(asked.traffic.sent_bytes, asked.traffic.sent_messages, kind, message)
            for message in arrived:
                _count(asking.traffic.received_bytes, asking.traffic.received_messages, kind, message)
        return arrived

    def _reaches(self, one: str, other: str) -> bool:
        return self._side.get(one, -1) == self._side.get(other, -1) and not {one, other} & self._frozen

    def _is_unlucky(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    def _pass_on(self, receiver: MemoryLink, topic: str, message: bytes) -> list[_Delivery]:
        """Deliveries that are due now: perhaps of this message, and of those that it was the last to overtake."""
        due = receiver.overtake()
        if self._is_unlucky(self.faults.drop):
            return due
        for _ in range(1 + self._is_unlucky(self.faults.duplicate)):
            if self._is_unlucky(self.faults.reorder):
                receiver.held_back.append(_HeldBack(self._random.randint(1, _MOST_OVERTAKING), topic, message))
            elif self.faults.delay_s > 0:
                self._delay((receiver, topic, message))
            else:
                due.insert(0, (receiver, topic, message))
        return due

    def _delay(self, delivery: _Delivery) -> None:
        due_s = self._clock() + self._random.random() * self.faults.delay_s
        heapq.heappush(self._under_way, (due_s, self._num_delayed, delivery))
        self._num_delayed += 1
        if self._courier is None and not self._is_closed:
            self._courier = threading.Thread(target=self._carry_delayed, name="memory-net", daemon=True)
            self._courier.start()
        self._changed.notify_all()

    def _carry_delayed(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                if not self._under_way:
                    self._changed.wait()
                    continue
                wait_s = self._under_way[0][0] - self._clock()
                if wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                delivery = heapq.heappop(self._under_way)[2]
            _deliver([delivery])


class MemoryLink:
    """One node's link to a `MemoryNet`; implements `Link`. Made by `MemoryNet.link`.

    Attributes:
        name: of the node.
        traffic: what it has carried since it was made.
        held_back: messages to it that wait to be overtaken.
    """

    def __init__(self, net: MemoryNet, name: str) -> None:
        self.name = name
        self.traffic = Traffic()
        self.held_back: list[_HeldBack] = []
        self._net = net
        self._inbox: Inbox | None = None
        self._answer: Answer | None = None
        self._pushed = False
        self._fault: str | None = None

    def open(self, *, inbox: Inbox, answer: Answer | None, pushed: bool) -> None:
        """Take part.

        Raises:
            SwarmUnreachable: the net does not let this node in (E-LINK-01).
        """
        self._inbox, self._answer, self._pushed, self._fault = inbox, answer, pushed, None
        self._net.attach(self)

    def send(self, topic: str, message: bytes) -> None:
        """Deliver to all who listen to the topic."""
        self._net.carry(self, topic, message)

    def fetch(self, topic: str, *, timeout_s: float) -> list[bytes]:  # noqa: ARG002 - the answer is there at once
        """Messages of the node that the topic names; nothing from one that cannot be reached."""
        return self._net.ask(self, topic)

    def neighbours(self) -> list[Neighbour]:
        """The other nodes that can be reached."""
        return [Neighbour(f"memory/{name}") for name in self._net.others(self)]

    def fault(self) -> str | None:
        """What `MemoryNet.break_link` said; None while all is well."""
        return self._fault

    def dropped(self) -> dict[str, int]:
        """Nothing: what is lost is lost in the net."""
        return {}

    def close(self) -> None:
        """Take part no more. Harmless when repeated."""
        self._net.detach(self)
        self._inbox = self._answer = None
        self.held_back.clear()

    def fail(self, why: str) -> None:
        """For the net: have a fault."""
        self._fault = why

    def listens_to(self, kind: str) -> bool:
        """For the net: whether messages of this kind are sent to it unasked."""
        return kind != "roll" or self._pushed

    def overtake(self) -> list[_Delivery]:
        """For the net: one more message comes; those that have waited long enough."""
        if not self.held_back:
            return []
        for held in self.held_back:
            held.overtaken_by -= 1
        due = [held for held in self.held_back if held.overtaken_by <= 0]
        self.held_back = [held for held in self.held_back if held.overtaken_by > 0]
        return [(self, held.topic, held.message) for held in due]

    def take_in(self, topic: str, message: bytes) -> None:
        """For the net: a message has arrived."""
        inbox = self._inbox
        if inbox is not None and self._fault is None:
            _count(self.traffic.received_bytes, self.traffic.received_messages, topic.split("/", 1)[0], message)
            inbox(topic, message)

    def answer_to(self, topic: str) -> list[bytes]:
        """For the net: own messages under a topic."""
        answer = self._answer
        return list(answer(topic)) if answer is not None else []


def _deliver(deliveries: Iterable[_Delivery]) -> None:
    for receiver, topic, message in deliveries:
        receiver.take_in(topic, message)


def _count(num_bytes: Counter[str], num_messages: Counter[str], kind: str, message: bytes) -> None:
    num_bytes[kind] += len(message)
    num_messages[kind] += 1
