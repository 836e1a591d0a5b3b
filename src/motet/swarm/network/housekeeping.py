"""What a node does at intervals: its heartbeat, a look at the link, and at who has fallen silent."""

from __future__ import annotations

from typing import Final

from motet.errors import MotetError
from motet.swarm.engines.links import Link
from motet.swarm.identity.envelope import Kind
from motet.swarm.network.inbox import Arrivals
from motet.swarm.network.knowledge import Knowledge
from motet.swarm.network.membership import UNDECIDED, Beat, encode_beat
from motet.swarm.network.options import Clock, NetworkOptions
from motet.swarm.network.publishing import Publisher, Sealer

_LONGEST_TICK_S: Final = 0.25
_FIRST_PAUSE_S: Final = 0.5
_LAST_PAUSE_S: Final = 30.0
_BEATS_PER_LIST: Final = 8
_HASTE: Final = 0.2


class Housekeeper:
    """Heartbeats and the supervision of a link. One thread at a time may call `tick`.

    Args:
        sealer: signs heartbeats.
        known: what they say.
        publisher: has the rounds that they announce, and answers.
        arrivals: takes what comes.
        link: to supervise.
        options: times.
        clock: time.
    """

    def __init__(
        self,
        sealer: Sealer,
        known: Knowledge,
        publisher: Publisher,
        arrivals: Arrivals,
        link: Link,
        options: NetworkOptions,
        clock: Clock,
    ) -> None:
        self._identity = sealer.identity
        self._known = known
        self._sealer = sealer
        self._publisher = publisher
        self._arrivals = arrivals
        self._link = link
        self._options = options
        self._clock = clock
        self._next_beat_s = float("-inf")
        self._last_beat_s = float("-inf")
        self._last_tick_s: float | None = None
        self._retry_s = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self._num_beats = 0
        self.num_bytes_out = 0
        self.link_fault: str | None = None
        """Why the link is down; None while it works."""

    def open_link(self) -> None:
        """Open the link.

        Raises:
            MotetError: what the link has to say.
        """
        self._link.open(inbox=self._arrivals.put, answer=self._publisher.answer, pushed=self._options.is_pushed)

    def hasten(self, *, at_once: bool = False) -> None:
        """Bring the next heartbeat forward; unless `at_once`, not so much that newcomers could make this node shout."""
        now_s = self._clock.monotonic_s()
        soonest_s = now_s if at_once else self._last_beat_s + _HASTE * self._known.membership.interval_s(now_s)
        self._next_beat_s = min(self._next_beat_s, max(now_s, soonest_s))

    def tick(self) -> float:
        """Do what is due; returns after how many seconds to call it again."""
        now_s = self._clock.monotonic_s()
        self._look_at_own_pulse(now_s)
        self._look_at_link(now_s)
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + self._known.membership.interval_s(now_s)
            self._last_beat_s = now_s
            self.beat()
        with self._known.changed:
            silent = self._known.membership.fall_silent(now_s)
            if silent:
                self._known.changed.notify_all()
        for peer in silent:
            self._known.log.tell("silent", peer.name, f"no heartbeat for {now_s - peer.heard_s:.0f} s")
        return min(max(self._next_beat_s - self._clock.monotonic_s(), 0.0), _LONGEST_TICK_S)

    def beat(self, *, is_last: bool = False) -> None:
        """Send a heartbeat; if another process has the name, which must not be taken for ended, only the last one.

        That one tells the other process of this one, and those who have heard this one that it was not to be.
        """
        if self._known.is_double and not is_last:
            return
        known, held = self._known, self._publisher.held()
        with known.changed:
            with_list = self._num_beats % _BEATS_PER_LIST == 0
            self._num_beats += 1
            body = Beat(
                credential=self._identity.credential,
                digest=self._identity.digest,
                round=self._publisher.round,
                from_round=UNDECIDED if known.from_round is None else known.from_round,
                held=held,
                leaving=is_last,
                clock_ms=int(self._clock.unix_s() * 1000),
                revocations=known.roster.revocations if with_list else None,
                refuses=known.refused_marks(),
            )
        message = self._sealer.seal(Kind.BEAT, encode_beat(body))
        self._publisher.keep_beat(message)
        if self.link_fault is None:
            self.num_bytes_out += len(message)
            self._link.send(f"beat/{self._identity.name}", message)

    def _look_at_own_pulse(self, now_s: float) -> None:
        """If this process stood still, nobody else is silent because of that."""
        if self._last_tick_s is not None:
            gap_s = now_s - self._last_tick_s
            if gap_s > max(self._options.fresh_s / 2, 2 * _LONGEST_TICK_S):
                with self._known.changed:
                    self._known.membership.forgive(gap_s)
        self._last_tick_s = now_s

    def _look_at_link(self, now_s: float) -> None:
        if self.link_fault is None:
            self.link_fault = self._link.fault()
            if self.link_fault is None:
                return
            self._known.log.tell("link_down", "", f"the link does not work: {self.link_fault}; opening it anew")
            self._link.close()
            self._retry_s = now_s
        if now_s < self._retry_s:
            return
        try:
            self.open_link()
        except MotetError as error:
            self.link_fault = str(error)
            self._retry_s = self._clock.monotonic_s() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)
            return
        self.link_fault = None
        self._pause_s = _FIRST_PAUSE_S
        self._known.log.tell("link_up", "", "the link works again")
        self.hasten(at_once=True)
