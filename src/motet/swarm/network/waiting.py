"""How long a node waits for others: no longer than until there is nothing to wait for, and never past a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from motet.swarm.network.fetching import Fetcher
from motet.swarm.network.knowledge import MOST_OVERDUE, Knowledge
from motet.swarm.network.options import Clock, NetworkOptions

_PATIENCE_S: Final = 0.5
_TINY_S: Final = 0.002


class Waiting:
    """Waits of a node in its rounds. One thread at a time may call `wait_for_others`.

    Args:
        known: says who is missing.
        fetcher: told to plan when it is time to fetch.
        options: whether rounds are pushed.
        clock: time; deadlines go by the system's own.
        drive: does by hand what is due; None if threads do it.
    """

    def __init__(
        self,
        known: Knowledge,
        fetcher: Fetcher,
        options: NetworkOptions,
        clock: Clock,
        *,
        drive: Callable[[], object] | None,
    ) -> None:
        self._known = known
        self._fetcher = fetcher
        self._options = options
        self._clock = clock
        self._drive = drive
        self.since: tuple[int, float] | None = None
        """For which round, and since when on the system's clock; None while it does not wait."""

    def wait_for_others(self, round: int, ends_s: float) -> None:
        """Until nobody is missing, or there is nothing to add to what was drawn, or the deadline is over."""
        known, begins_s, is_open = self._known, time.monotonic(), self._known.is_free
        half_s = begins_s + (ends_s - begins_s) / 2
        self.since = (round, begins_s)
        while True:
            if self._drive is not None:
                self._drive()
            with known.changed:
                missing, now_s = known.missing(round), time.monotonic()
                opens = not is_open and (now_s >= half_s or not (missing or self._options.is_pushed))
                if opens:
                    is_open = True
                    known.wants.open_draw(round, self._clock.monotonic_s())
                elif known.is_closed or self._is_served(missing) or now_s >= ends_s:
                    break
                else:
                    self.pause((ends_s if is_open else min(half_s, ends_s)) - now_s)
            if is_open:
                self._fetcher.plan()
        self.since = None
        had_time = ends_s - begins_s >= self._options.heartbeat_s  # a look without a wait proves nothing
        self._give_up(round, is_over=had_time and time.monotonic() >= ends_s)

    def pause(self, longest_s: float) -> None:
        """Wait for news, holding the lock; no longer than until a live peer would fall silent."""
        silence_s = self._known.membership.next_silence_s(self._clock.monotonic_s())
        patience_s = min(_PATIENCE_S, silence_s + _TINY_S) if self._drive is None else _TINY_S
        if longest_s > 0:
            self._known.changed.wait(min(longest_s, patience_s))

    def _is_served(self, missing: Sequence[str]) -> bool:
        """True if waiting longer would bring nothing."""
        if self._options.is_pushed:
            return not missing
        if self._known.is_free:
            known, now_s = self._known, self._clock.monotonic_s()
            return not missing and known.wants.is_idle(known.live(), known.shelf, now_s)
        return self._known.wants.is_settled(self._known.live(), self._known.shelf, all_have_announced=not missing)

    def _give_up(self, round: int, *, is_over: bool) -> None:
        with self._known.changed:
            given_up = self._known.end_wait(round, is_over=is_over)
        for name in given_up:
            self._known.log.tell(
                "overdue", name, f"has missed {MOST_OVERDUE} deadlines in a row; not waited for until it is in time"
            )
