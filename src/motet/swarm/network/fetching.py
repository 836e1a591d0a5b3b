"""Asking peers for what they have announced, and for the cards of those that are of another run."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from motet.swarm.engines.links import Link
from motet.swarm.network.inbox import Topic, roll_topic
from motet.swarm.network.knowledge import Knowledge
from motet.swarm.network.options import Clock, NetworkOptions
from motet.swarm.network.reception import Fetched, Reception
from motet.swarm.network.repair import Fetch

_CARD_RETRY_S: Final = 5.0
_MAX_CARD_TRIES: Final = 5


class Fetcher:
    """Questions that wait to be asked. Safe to use from several threads.

    Args:
        link: which is asked.
        reception: opens the answers.
        known: says what is wanted.
        options: limits.
        clock: time.
    """

    def __init__(
        self, link: Link, reception: Reception, known: Knowledge, options: NetworkOptions, clock: Clock
    ) -> None:
        self._link = link
        self._reception = reception
        self._known = known
        self._options = options
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[Fetch] = deque()
        self._cards: dict[str, tuple[float, int]] = {}
        self._is_closed = False
        self.num_bytes_in = 0

    def plan(self) -> bool:
        """Queue what is wanted now; True if that is anything."""
        now_s = self._clock.monotonic_s()
        with self._known.changed:
            fetches = self._known.wants.next(self._known.live(), self._known.shelf, now_s)
        with self._changed:
            for name, (due_s, tries) in list(self._cards.items()):
                if tries >= _MAX_CARD_TRIES:
                    del self._cards[name]
                elif now_s >= due_s:
                    self._cards[name] = (now_s + _CARD_RETRY_S, tries + 1)
                    self._queue.append(Fetch(name, -1))
            self._queue.extend(fetches)
            self._changed.notify(len(self._queue))
            return bool(self._queue)

    def want_card(self, peer: str) -> None:
        """Ask for a peer's card with the next plan."""
        with self._changed:
            self._cards[peer] = (float("-inf"), 0)

    def next(self, *, timeout_s: float) -> Fetch | None:
        """The next question; None if there is none in time, or after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed, timeout_s)
            return self._queue.popleft() if self._queue and not self._is_closed else None

    def ask(self, fetch: Fetch) -> None:
        """Ask, open what comes, and say what became of it."""
        if fetch.round >= 0:
            topic, text = Topic("roll", fetch.peer, fetch.round), roll_topic(fetch.peer, fetch.round)
        else:
            topic, text = Topic("card", fetch.peer), f"card/{fetch.peer}"
        came = Fetched(fetch.max_groups)
        num_bytes = 0
        for message in self._link.fetch(text, timeout_s=self._options.fetch_timeout_s):
            num_bytes += len(message)
            is_enough = came.max_groups is not None and came.num_groups >= came.max_groups
            if is_enough or num_bytes > self._options.max_bytes_per_round:
                break
            self._reception.take(topic, message, fetched=came)
        known = self._known
        with known.changed:
            self.num_bytes_in += num_bytes
            if fetch.round >= 0:
                known.num_repaired += came.num_messages if self._options.is_pushed else 0
                known.wants.done(
                    fetch,
                    num_messages=came.num_messages,
                    num_groups=came.num_groups,
                    is_complete=known.shelf.has_all(fetch.peer, fetch.round),
                    now_s=self._clock.monotonic_s(),
                )
            known.changed.notify_all()
        if fetch.round < 0 and came.num_messages:
            with self._changed:
                self._cards.pop(fetch.peer, None)

    def close(self) -> None:
        """Wake whoever waits in `next`."""
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify_all()
