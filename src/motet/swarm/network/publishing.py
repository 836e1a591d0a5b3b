"""What a node says: messages numbered and signed, its last rounds kept for those who ask, and a queue to the link."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from motet.swarm.identity.envelope import MAX_COUNT, Envelope, Kind, pack_payloads, seal
from motet.swarm.network.inbox import parse_topic, roll_topic
from motet.swarm.network.membership import Held
from motet.swarm.network.options import Identity, NetworkOptions

_OVERHEAD_BYTES: Final = 256
"""More than an envelope and the framing of its payloads' list take up."""
_FRAMING_BYTES: Final = 5
_MAX_BEATS_REMEMBERED: Final = 64
_MAX_QUEUED_MESSAGES: Final = 64
"""Of the largest size."""


class Sealer:
    """Signs messages of one process of a node; each gets the next number. Safe to use from several threads.

    Args:
        identity: of the node.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._lock = threading.Lock()
        self._seq = 0
        self._beats: OrderedDict[int, bytes] = OrderedDict()

    def seal(self, kind: Kind, body: bytes, *, round: int = -1, index: int = 0, count: int = 1) -> bytes:
        """The signed message."""
        with self._lock:
            seq = self._seq
            self._seq += 1
            if kind == Kind.BEAT:
                self._beats[seq] = body
                while len(self._beats) > _MAX_BEATS_REMEMBERED:
                    self._beats.popitem(last=False)
        own = self.identity
        return seal(Envelope(own.run_id, kind, own.name, own.boot, seq, round, index, count, body), own.key)

    def is_echo(self, envelope: Envelope) -> bool:
        """True if a heartbeat of this node's name, key and boot can be one that this process has sealed."""
        with self._lock:
            if envelope.seq in self._beats:
                return self._beats[envelope.seq] == envelope.body
            return envelope.seq < next(iter(self._beats), 0)


@dataclass(frozen=True, slots=True)
class _Kept:
    messages: tuple[bytes, ...]
    num_groups: int


class Publisher:
    """Own rounds, packed into messages. Safe to use from several threads.

    Args:
        sealer: signs.
        options: how large messages may be, and how many rounds are kept.
    """

    def __init__(self, sealer: Sealer, options: NetworkOptions) -> None:
        self._sealer = sealer
        self._name = sealer.identity.name
        self._max_body_bytes = options.max_message_bytes - _OVERHEAD_BYTES
        self._keep_rounds = options.keep_rounds
        self._max_queued_bytes = _MAX_QUEUED_MESSAGES * options.max_message_bytes
        self._card_message = sealer.seal(Kind.CARD, sealer.identity.encoded_card)
        self._latest_beat: bytes | None = None
        self._changed = threading.Condition()
        self._kept: dict[int, _Kept] = {}
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued_bytes = 0
        self._is_sending = False
        self._is_closed = False
        self._dropped: Counter[str] = Counter()

    @property
    def round(self) -> int:
        """The latest round that was published; -1 before."""
        with self._changed:
            return max(self._kept, default=-1)

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        """Sign a round, keep it and queue it for the link. What is too large for any message is left out and counted.

        When the queue is full, the oldest message in it is left out; who misses it asks for it.

        Raises:
            RuntimeError: the round was published before.
        """
        with self._changed:
            if round in self._kept:
                raise RuntimeError(f"round {round} was published before")
        fitting = [payload for payload in payloads if len(payload) + _FRAMING_BYTES <= self._max_body_bytes]
        batches = self._batches(fitting)
        messages = tuple(
            self._sealer.seal(Kind.ROLL, pack_payloads(batch), round=round, index=index, count=len(batches))
            for index, batch in enumerate(batches)
        )
        with self._changed:
            self._dropped["too_large"] += len(payloads) - len(fitting)
            self._kept[round] = _Kept(messages, len(fitting))
            while len(self._kept) > self._keep_rounds:
                del self._kept[next(iter(self._kept))]
            for message in messages:
                self._queue.append((roll_topic(self._name, round), message))
                self._queued_bytes += len(message)
            while self._queued_bytes > self._max_queued_bytes and len(self._queue) > 1:
                self._queued_bytes -= len(self._queue.popleft()[1])
                self._dropped["queue_full"] += 1
            self._changed.notify_all()

    def held(self) -> tuple[Held, ...]:
        """The rounds that can be asked for, by round."""
        with self._changed:
            return tuple(Held(round, len(k.messages), k.num_groups) for round, k in sorted(self._kept.items()))

    def keep_beat(self, message: bytes) -> None:
        """The heartbeat that is given to those who ask, from now on."""
        self._latest_beat = message

    def answer(self, topic_text: str) -> Sequence[bytes]:
        """Own messages under a topic; nothing for a topic of somebody else's. For threads of an engine."""
        topic = parse_topic(topic_text)
        if topic is None or topic.peer != self._name:
            return ()
        if topic.kind == "card":
            return (self._card_message,)
        if topic.kind == "beat":
            return () if self._latest_beat is None else (self._latest_beat,)
        with self._changed:
            kept = self._kept.get(topic.round)
        return () if kept is None else kept.messages

    def next(self, *, timeout_s: float) -> tuple[str, bytes] | None:
        """Topic and message to send; `sent` must follow. None if nothing comes in time, or after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed, timeout_s)
            if not self._queue:
                return None
            topic, message = self._queue.popleft()
            self._queued_bytes -= len(message)
            self._is_sending = True
            return topic, message

    def sent(self) -> None:
        """What `next` gave was handed to the link."""
        with self._changed:
            self._is_sending = False
            self._changed.notify_all()

    def dropped(self) -> dict[str, int]:
        """What was left out, by reason: groups that fit into no message, messages for which there was no room."""
        with self._changed:
            return dict(self._dropped)

    def flush(self, *, timeout_s: float) -> bool:
        """Wait until all was handed to the link; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._is_sending), timeout_s)

    def close(self) -> None:
        """Wake whoever waits in `next`; what is queued is thrown away."""
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()

    def _batches(self, payloads: Sequence[bytes]) -> list[list[bytes]]:
        """Payloads in order, as many to a message as fit; one empty message for none."""
        batches: list[list[bytes]] = [[]]
        num_bytes = 0
        for payload in payloads:
            size = len(payload) + _FRAMING_BYTES
            if batches[-1] and (num_bytes + size > self._max_body_bytes or len(batches[-1]) == MAX_COUNT):
                batches.append([])
                num_bytes = 0
            batches[-1].append(payload)
            num_bytes += size
        return batches
