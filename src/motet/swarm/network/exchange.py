"""The exchange of nodes on different machines: trust, membership, repair and limits, over any `Link`.

    arrivals -> reception -> membership, shelf -> collect          publish -> publisher -> link
                    ^                  |
                    +---- fetcher <- wants                         housekeeper: heartbeats, supervision of the link

Everything that comes is doubted first; what is refused is counted by peer and reason. Threads of its own do the
work, or `step` does it by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from motet.errors import RunFailed, SwarmRefused
from motet.swarm.engines.links import Link
from motet.swarm.exchange import Event, Parcel
from motet.swarm.identity.credentials import Credential, RevocationList, Roster
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network.fetching import Fetcher
from motet.swarm.network.housekeeping import Housekeeper
from motet.swarm.network.inbox import Arrivals
from motet.swarm.network.knowledge import Knowledge
from motet.swarm.network.options import Clock, Identity, NetworkOptions
from motet.swarm.network.overview import describe
from motet.swarm.network.publishing import Publisher, Sealer
from motet.swarm.network.reception import Reception
from motet.swarm.network.status import SwarmStatus
from motet.swarm.network.waiting import Waiting

_FLUSH_S: Final = 2.0
_FETCHERS_OF_PUSH: Final = 2
_FETCHERS_OF_PULL: Final = 4
_PLANS_BY_HAND: Final = 3
_PATIENCE_S: Final = 0.5
_STOP_POLL_S: Final = 0.1


class NetworkExchange:
    """One node's end of a swarm over a network; implements `Exchange`.

    Args:
        name: of the node.
        key: with which it signs.
        credential: by which others believe that name and key belong together.
        roster: whom it believes.
        run_id: of the run, 16 bytes.
        card: what must agree between nodes of the run, by what it is; nodes of another card are refused.
        link: to the others. Opened and closed here.
        options: limits and times.
        threads: False: nothing happens except within calls of this object, of which `step` is one.
        clock: time; deadlines go by the system's own.
    """

    def __init__(
        self,
        name: str,
        *,
        key: NodeKey,
        credential: Credential,
        roster: Roster,
        run_id: bytes,
        card: Mapping[str, str],
        link: Link,
        options: NetworkOptions,
        threads: bool = True,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or Clock()
        self._identity = Identity(name, key, credential, run_id, card, boot=int(clock.unix_s() * 1000))
        self._options = options
        self._link = link
        self._clock = clock
        self._is_threaded = threads
        self._known = Knowledge(name, self._identity.digest, roster, options, clock)
        sealer = Sealer(self._identity)
        self._publisher = Publisher(sealer, options)
        self._arrivals = Arrivals(self._known.refusals, max_message_bytes=options.max_message_bytes)
        self._reception = Reception(
            sealer, self._known, options, clock, on_newcomer=self._hasten, on_other_run=self._want_card
        )
        self._fetcher = Fetcher(link, self._reception, self._known, options, clock)
        self._housekeeper = Housekeeper(sealer, self._known, self._publisher, self._arrivals, link, options, clock)
        self._waiting = Waiting(self._known, self._fetcher, options, clock, drive=None if threads else self._drive)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._workers: list[threading.Thread] = []
        self._broken: str | None = None
        self._by_hand = threading.RLock()
        self._bytes_out = 0
        self._is_open = False

    @property
    def name(self) -> str:
        """The name under which this node publishes."""
        return self._identity.name

    def open(self, *, listen_s: float = 0.0) -> None:
        """Connect, listen for a while to whether this node is there already, and say hello.

        Args:
            listen_s: for how long; a second and a bit hears every live process once. The later of two processes that
                speaks would make others believe that the earlier one has ended.

        Raises:
            SwarmUnreachable: nobody answers where somebody must (E-LINK-01).
            SwarmRefused: another process with this node's key is there (E-SWARM-12).
            UsageError: addresses or certificates that cannot be used.
            EnvironmentFault: the engine is not installed.
        """
        self._housekeeper.open_link()
        self._is_open = True
        if self._is_threaded:
            self._start("receiving", self._receive)
            with self._known.changed:
                self._known.changed.wait_for(lambda: self._known.is_double, listen_s)
        if self._known.is_double:
            try:
                self._check_own()
            finally:
                self.close()
        self._housekeeper.tick()
        if self._is_threaded:
            num_fetchers = _FETCHERS_OF_PUSH if self._options.is_pushed else _FETCHERS_OF_PULL
            self._start("housekeeping", self._keep_house)
            self._start("sending", self._send)
            for _ in range(num_fetchers):
                self._start("fetching", self._fetch)

    def gather(self, names: Iterable[str], *, deadline_s: float, stop: Callable[[], bool] = lambda: False) -> list[str]:
        """Wait until all of these nodes are live, the deadline is over, or `stop` says so; returns who is missing.

        Raises:
            SwarmRefused: the swarm that is here does not take this node, or is another run's.
        """
        ends_s = _end_of(deadline_s)
        wanted = set(names) - {self.name}
        while True:
            self._check_own()
            missing = sorted(wanted - set(self.peers()))
            if not missing or stop() or time.monotonic() >= ends_s:
                return missing
            with self._known.changed:
                self._waiting.pause(min(ends_s - time.monotonic(), _STOP_POLL_S))

    def begin(self, round: int) -> None:
        """Take part from this round on: others in lockstep wait for this node's groups of it and of later ones."""
        with self._known.changed:
            self._known.advance(round)
            self._known.from_round = round
        self._hasten(at_once=True)
        self._drive()

    def swarm_round(self) -> int | None:
        """The round that the swarm has reached; None if nobody has published, or too few are there to say.

        A minority cannot move it. One peer alone is believed so far as a message of it was verified.
        """
        self._drive()
        with self._known.changed:
            return self._known.swarm_round()

    def peers(self) -> list[str]:
        """Names of the other live nodes of this run, sorted."""
        self._drive()
        with self._known.changed:
            return [peer.name for peer in self._known.live()] if not self._known.is_closed else []

    def revoke(self, revocations: RevocationList) -> bool:
        """Take in a list of revoked invitations; heartbeats carry it on. True if it is genuine and news."""
        return self._reception.revoke(revocations)

    def roster(self) -> dict[str, Any]:
        """Whose key is whose, as plain data for a file (`Roster.from_dict`)."""
        with self._known.changed:
            return self._known.roster.to_dict()

    def is_member(self, name: str) -> bool:
        """True if somebody has shown to be this node of the run."""
        with self._known.changed:
            return self._known.roster.is_member(name)

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        """Sign the groups of a round, keep them for those who ask, and have them sent.

        Raises:
            RuntimeError: this exchange is closed, or the round was published before.
            SwarmRefused: another process with this node's key was there first (E-SWARM-12).
        """
        if self._known.is_closed:
            raise RuntimeError(f"node {self.name!r} has left the exchange and cannot publish")
        self._drive()
        self._check_own()
        is_next = round == self._publisher.round + 1
        self._publisher.publish(round, [bytes(payload) for payload in payloads])
        with self._known.changed:
            self._known.membership.has_published = True
            self._known.advance(round)
        if not (self._options.is_pushed and is_next):
            self._hasten(at_once=True)  # nobody sees otherwise what there is to fetch, or that rounds were skipped
        self._drive()

    def waiting_for(self, round: int) -> list[str]:
        """Live peers whose groups have not all come, sorted; at free pace those that most of the swarm waits for."""
        self._drive()
        with self._known.changed:
            return self._known.missing(round) if not self._known.is_closed else []

    def collect(self, round: int, *, deadline_s: float, max_lag: int | None = None) -> list[Parcel]:
        """Parcels of the others, sorted by peer, round and order of publishing; see `Exchange.collect`.

        Raises:
            SwarmRefused: another process with this node's key was there first (E-SWARM-12).
        """
        known, ends_s = self._known, _end_of(deadline_s)
        with known.changed:
            known.set_pace(max_lag)
            known.advance(round)
        self._drive()
        self._check_own()
        self._waiting.wait_for_others(round, ends_s)
        with known.changed:
            if known.is_closed:
                return []
            oldest, newest = (round, round) if max_lag is None else (round - max_lag, None)
            begun = known.from_round or 0
            return known.shelf.take(oldest, newest, is_late=lambda old: old >= begun)

    def num_late(self) -> dict[str, int]:
        """Parcels per peer that were discarded as too old since the last call."""
        with self._known.changed:
            return self._known.shelf.drain_late()

    def num_refused(self) -> dict[str, dict[str, int]]:
        """Messages that were refused, per peer and reason, since the last call; "?" stands for all strangers."""
        return self._known.refusals.drain()

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        return self._known.log.drain()

    def status(self) -> SwarmStatus:
        """How the swarm looks from here."""
        self._drive()
        house = self._housekeeper
        neighbours = self._link.neighbours() if house.link_fault is None and not self._known.is_closed else []
        return describe(
            self._identity,
            self._known,
            self._publisher,
            now_s=self._clock.monotonic_s(),
            waits=self._waiting.since,
            link=(house.link_fault, neighbours),
            link_dropped=self._link.dropped(),
            num_bytes=(self._arrivals.num_bytes_in + self._fetcher.num_bytes_in, self._bytes_out + house.num_bytes_out),
        )

    def close(self) -> None:
        """Leave: send what is queued, say goodbye, end all threads. Harmless when repeated."""
        with self._known.changed:
            if self._known.is_closed:
                return
            self._known.is_closed = True
            self._known.changed.notify_all()
        if not self._is_open:
            return
        if self._is_threaded:
            self._publisher.flush(timeout_s=_FLUSH_S)
        else:
            self._send_queued()
        self._stop.set()
        self._wake.set()
        self._arrivals.close()
        self._fetcher.close()
        self._publisher.close()
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join()
        if self._housekeeper.link_fault is None:
            self._housekeeper.beat(is_last=True)
        self._link.close()

    def step(self) -> bool:
        """Do by hand what the threads do otherwise: everything that is due. True if anything came or went."""
        with self._by_hand:
            self._housekeeper.tick()
            is_busy = self._send_queued()
            while (arrived := self._arrivals.take(timeout_s=0)) is not None:
                self._reception.take(*arrived)
                is_busy = True
            self._housekeeper.tick()
            for _ in range(_PLANS_BY_HAND):
                self._fetcher.plan()
                while (fetch := self._fetcher.next(timeout_s=0)) is not None:
                    self._fetcher.ask(fetch)
                    is_busy = True
            return is_busy

    def _drive(self) -> None:
        if not self._is_threaded and self._is_open and not self._known.is_closed:
            self.step()

    def _check_own(self) -> None:
        if self._known.is_closed:
            return
        if self._known.is_double:
            raise SwarmRefused(
                f"node {self.name}: another process uses this node's name and key, and began earlier; stop it, or give "
                "this one a name and a key of its own",
                code="E-SWARM-12",
            )
        if self._known.is_refused_by_all(self._identity.key.public):
            raise SwarmRefused(
                f"node {self.name}: every live peer refuses it: the name belongs to another key, or its invitation was "
                "used by another machine, taken back, or has ended; bring the key back that it had before, take "
                "another name, or ask the owner of the swarm for an invitation",
                code="E-SWARM-14",
            )
        other = self._known.other_swarm()
        if other is not None:
            raise SwarmRefused(
                f"node {self.name}: the swarm that is here is another run's; {other[0]} differs in {other[1]}; use the "
                "same run file and versions, or another run.name",
                code="E-SWARM-15",
            )
        if self._broken is not None:
            raise RunFailed(f"node {self.name}: {self._broken} of the exchange has ended", code="E-SWARM-13")

    def _want_card(self, peer: str) -> None:
        self._fetcher.want_card(peer)

    def _hasten(self, *, at_once: bool = False) -> None:
        self._housekeeper.hasten(at_once=at_once)
        self._wake.set()

    def _send_queued(self) -> bool:
        is_busy = False
        while self._send_one(timeout_s=0.0):
            is_busy = True
        return is_busy

    def _send_one(self, *, timeout_s: float) -> bool:
        queued = self._publisher.next(timeout_s=timeout_s)
        if queued is None:
            return False
        self._link.send(*queued)
        self._bytes_out += len(queued[1])
        self._publisher.sent()
        return True

    def _start(self, role: str, loop: Callable[[], None]) -> None:
        worker = threading.Thread(target=self._work, args=(role, loop), name=f"motet {self.name} {role}", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _work(self, role: str, loop: Callable[[], None]) -> None:
        """A thread: it says so if it ends before it should."""
        try:
            while not self._stop.is_set():
                loop()
        finally:
            if not self._stop.is_set():
                self._broken = f"the {role} thread"

    def _keep_house(self) -> None:
        wait_s = self._housekeeper.tick()
        self._fetcher.plan()
        self._wake.wait(wait_s)
        self._wake.clear()

    def _receive(self) -> None:
        arrived = self._arrivals.take(timeout_s=_PATIENCE_S)
        if arrived is not None:
            self._reception.take(*arrived)

    def _send(self) -> None:
        self._send_one(timeout_s=_PATIENCE_S)

    def _fetch(self) -> None:
        fetch = self._fetcher.next(timeout_s=_PATIENCE_S)
        if fetch is not None:
            self._fetcher.ask(fetch)
            self._fetcher.plan()


def _end_of(deadline_s: float) -> float:
    return time.monotonic() + min(max(deadline_s, 0.0), threading.TIMEOUT_MAX / 4)
