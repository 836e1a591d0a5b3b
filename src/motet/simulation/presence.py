"""A node's presence in a swarm over the network: how it enters, what is told of it, how it leaves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from motet.config import RunFile
from motet.errors import SwarmUnreachable, UsageError
from motet.journal import RunDir, write_json
from motet.journal.peers import PeerStatus, SwarmStatus, write_status
from motet.node import Node
from motet.swarm import Ledger, PeerAccount
from motet.swarm.identity.invites import read_revocations
from motet.swarm.identity.keyring import Keyring
from motet.swarm.network import NetworkExchange
from motet.swarm.network import status as swarm_status
from motet.swarm.network.status import STRANGERS

_EVERY_S = 1.0
_HEARING_S = 3.0
_LISTEN_S = 1.25
_LOOK_EVERY_S = 0.05
_PHASES = {"generate": "generating", "wait": "waiting", "learn": "training", "evaluate": "examining"}


class Presence:
    """Keeps `peers/<node>.json` of the run directory up to date, from `enter` to `close`.

    Args:
        run: the settings.
        name: of the node.
        run_dir: the run's directory.
        network: through which the node meets the others; not open yet.
        node: the node.
    """

    def __init__(self, run: RunFile, name: str, run_dir: RunDir, network: NetworkExchange, node: Node) -> None:
        self._run = run
        self._name = name
        self._dir = run_dir
        self._network = network
        self._node = node
        self._phase, self._since, self._round = "loading", time.time(), -1
        self._gathers: tuple[set[str], float] | None = None
        self._accounts: Mapping[str, PeerAccount] = {}
        self._quarantines: Mapping[str, int | None] = {}
        self._roster: dict[str, Any] = {}
        self._revocations = Keyring.of_run(run.run.name).revocations
        self._revoked_at: float | None = None
        self._ends = threading.Event()
        self._writer = threading.Thread(target=self._write_on, name=f"status of {name}", daemon=True)

    def enter(
        self,
        first_round: int,
        *,
        wait_for: Sequence[str],
        tell: Callable[[str], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open the network, and look who is there; `begin` takes part.

        At the beginning of a run that is to wait for the named nodes, no longer than the deadline of a round, unless
        the swarm has begun already; later it is a moment in which to hear how far the swarm is.

        Raises:
            SwarmUnreachable: nobody answers at the addresses of the swarm.
            SwarmRefused: the swarm does not take this node.
        """
        self._phase = "joining"
        self._writer.start()
        self._open(tell, should_stop)
        deadline_s = self._run.swarm.deadline_s if first_round == 0 and wait_for else _HEARING_S
        ends_s = time.monotonic() + deadline_s

        def has_heard() -> bool:
            return should_stop() or self._network.swarm_round() is not None

        if wait_for:
            self._gather(wait_for, deadline_s, tell, has_heard)
        while not wait_for and not has_heard() and time.monotonic() < ends_s:
            self._ends.wait(_LOOK_EVERY_S)

    def _gather(
        self, wait_for: Sequence[str], deadline_s: float, tell: Callable[[str], None] | None, stop: Callable[[], bool]
    ) -> None:
        """Wait for these nodes; whoever is missing after a moment is told."""
        self._phase, self._since = "waiting", time.time()
        self._gathers = set(wait_for), self._since + deadline_s
        moment_s = min(_HEARING_S, deadline_s)
        missing = self._network.gather(wait_for, deadline_s=moment_s, stop=stop)
        if missing and moment_s < deadline_s and not stop():
            if tell is not None:
                tell(f"waits for {', '.join(missing)}, {deadline_s:g} s at most")
            self._network.gather(missing, deadline_s=deadline_s - moment_s, stop=stop)
        self._gathers = None
        self._phase, self._since = "joining", time.time()

    def _open(self, tell: Callable[[str], None] | None, should_stop: Callable[[], bool]) -> None:
        """Open the network; others may start a little later than this node, so try for as long as a round may wait."""
        ends_s, told = time.monotonic() + self._run.swarm.deadline_s, False
        while True:
            try:
                return self._network.open(listen_s=_LISTEN_S)
            except SwarmUnreachable as error:
                if time.monotonic() >= ends_s or should_stop():
                    raise
                if tell is not None and not told:
                    tell(f"{error}; trying for {self._run.swarm.deadline_s:g} s")
                    told = True
                self._ends.wait(_LOOK_EVERY_S)

    @property
    def is_alone(self) -> bool:
        """True if nobody else of this run is heard, and not because somebody was faster and has done the last round."""
        return self._is_alone(self._network.status())

    def begin(self, round: int) -> None:
        """Take part from this round on."""
        self._network.begin(round)

    def phase(self, activity: str, round: int) -> None:
        """The node begins something; between its rounds its ledger can be read."""
        ledger = Ledger.from_dict(self._node.ledger.to_dict())
        self._accounts = {peer: ledger.account(peer) for peer in ledger.peers()}
        conduct = self._node.gate.conduct
        self._quarantines = {peer: conduct.quarantined_until(peer, round) for peer in self._accounts}
        self._phase, self._since, self._round = _PHASES[activity], time.time(), round

    def swarm_round(self) -> int | None:
        """The round that the swarm has reached; None if nobody is there to say."""
        return self._network.swarm_round()

    def leave(self) -> None:
        """The node has finished: nobody waits for it any more."""
        self._phase, self._since = "finished", time.time()
        self._network.close()

    def close(self) -> None:
        """Leave, if it has not, and stop telling."""
        if self._phase != "finished":
            self._phase, self._since = "stopped", time.time()
        self._network.close()
        self._ends.set()
        if self._writer.is_alive():
            self._writer.join()
        self._write()

    def _write_on(self) -> None:
        self._write()
        while not self._ends.wait(_EVERY_S):
            self._take_revocations()
            self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a full disk stops the run where it matters, not here
            write_status(self._dir, self._status())
            roster = self._network.roster()
            if roster != self._roster:
                self._dir.roster(self._name).parent.mkdir(exist_ok=True)
                write_json(self._dir.roster(self._name), roster)
                self._roster = roster

    def _take_revocations(self) -> None:
        """Pass on what `motet invite --revoke` has written on this machine since the last look."""
        with suppress(OSError, UsageError):  # that verb tells of a damaged file
            changed_at = self._revocations.stat().st_mtime
            if changed_at != self._revoked_at:
                revoked = read_revocations(self._revocations)
                if revoked is not None:
                    self._network.revoke(revoked)
                self._revoked_at = changed_at

    def _is_alone(self, seen: swarm_status.SwarmStatus) -> bool:
        last = self._run.run.rounds - 1
        return seen.is_alone and not any(peer.state == "left" and peer.round >= last for peer in seen.peers)

    def _waits(self, seen: swarm_status.SwarmStatus) -> tuple[list[str], float | None]:
        """For whom the node waits, to begin or in a round, and until when."""
        gathers = self._gathers
        if gathers is not None:
            live = {peer.name for peer in seen.peers if peer.state == "live"}
            missing, until_s = sorted(gathers[0] - live), gathers[1]
        else:
            missing = seen.waiting_for if self._phase == "waiting" else []
            until_s = self._since + self._run.swarm.deadline_s
        return missing, until_s if missing else None

    def _status(self) -> SwarmStatus:
        seen = self._network.status()
        missing, until_s = self._waits(seen)
        return SwarmStatus(
            at_s=time.time(),
            node=self._name,
            key=seen.key,
            pid=os.getpid(),
            boot=seen.boot,
            phase=self._phase,
            phase_since_s=self._since,
            round=self._round,
            num_rounds=self._run.run.rounds,
            swarm_round=seen.swarm_round,
            alone=self._gathers is None and self._is_alone(seen),
            waiting_for=missing,
            waiting_until_s=until_s,
            link=" ".join((self._run.swarm.transport, *self._run.swarm.listen, *self._run.swarm.connect)),
            link_fault=seen.link_fault,
            neighbours=len(seen.neighbours),
            bytes_in=seen.bytes_in,
            bytes_out=seen.bytes_out,
            dropped=sum(seen.dropped.values()),
            dropped_by=seen.dropped,
            repairs=seen.num_repaired,
            refused=next((peer.refused for peer in seen.peers if peer.name == STRANGERS), {}),
            peers=[self._peer(peer) for peer in seen.peers if peer.name != STRANGERS],
        )

    def _peer(self, peer: swarm_status.PeerStatus) -> PeerStatus:
        account = self._accounts.get(peer.name, PeerAccount())
        return PeerStatus(
            name=peer.name,
            key=peer.key,
            state=peer.state,
            heard_s=peer.heard_s,
            round=peer.round,
            lag=max(peer.lag, 0),
            quarantined_until=self._quarantines.get(peer.name),
            accepted=account.accepted,
            rejected=dict(account.rejected),
            late=account.late,
            kept=account.kept,
            dropped=dict(account.dropped),
            refused=peer.refused,
            bytes_in=peer.bytes_in,
        )
