"""What heartbeats tell of the swarms at an address: who is there, and how far. Nothing is sent, and nobody is asked."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median_low
from typing import Final

from motet.cli.heartbeats import Heartbeat, read_heartbeat, roster_of
from motet.config import RunFile
from motet.swarm.identity.credentials import Refusal, Roster
from motet.swarm.identity.keys import short
from motet.swarm.network.membership import Held, Membership, Peer

ID_DIGITS: Final = 8
"""So many digits of a run's id are shown, and are enough to choose it."""

_HEARTBEAT_S: Final = 1.0
_FRESH_S: Final = 5.0
_MAX_RUNS: Final = 32
_MAX_PEERS: Final = 1000
_SHOWN_EVENTS: Final = 5


@dataclass(slots=True)
class PeerHeard:
    """A node, by its own heartbeats.

    Attributes:
        name: under which it speaks.
        key: first digits of its public key.
        state: "live", "silent" or "left".
        heard_s: seconds since its last heartbeat.
        round: that it has published, counted from 1; 0 before the first.
        from_round: the first that it takes part in, counted from 1; None while it waits to begin.
        lag: rounds behind the median live node.
        held: rounds that others can still fetch from it, such as "9-12"; empty if there are none.
        groups: of the latest of these.
        clock_gap_s: by how much its clock is ahead of this machine's.
        card: first digits of what must agree between nodes.
    """

    name: str
    key: str
    state: str
    heard_s: float
    round: int
    from_round: int | None
    lag: int
    held: str
    groups: int | None
    clock_gap_s: float
    card: str


@dataclass(slots=True)
class SwarmHeard:
    """A run.

    Attributes:
        run: its name, where it is known; otherwise the first digits of its id.
        run_id: in hexadecimal.
        round: that the median live node has published, counted from 1; 0 before.
        rounds: of the run file; 0 if there is none.
        nodes: that were heard, by name.
        finished: all have done the last round and left.
    """

    run: str
    run_id: str
    round: int
    rounds: int
    nodes: list[PeerHeard]
    finished: bool


@dataclass(slots=True)
class HeardNow:
    """Everything at a moment.

    Attributes:
        addresses: where is listened.
        connected_to: relays, servers and nodes at the other end.
        link_fault: why there is no connection; None while there is one.
        listening_s: for how long.
        swarms: that were heard.
        other_runs: first digits of the ids of those that were heard and not asked for.
        refused: heartbeats that a node here would not believe, by reason.
        events: the latest, oldest first.
    """

    addresses: list[str]
    connected_to: list[str]
    link_fault: str | None
    listening_s: float
    swarms: list[SwarmHeard]
    other_runs: list[str]
    refused: dict[str, int]
    events: list[dict[str, str]] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """True once there is nothing more to come."""
        return bool(self.swarms) and all(swarm.finished for swarm in self.swarms)


class _Run:
    """Who of one run was heard."""

    def __init__(self, roster: Roster | None) -> None:
        self.roster = roster
        self.membership = Membership(digest=b"", heartbeat_s=_HEARTBEAT_S, fresh_s=_FRESH_S)
        self.clock_gaps_s: dict[str, float] = {}
        self.states: dict[str, str] = {}


class Audience:
    """Takes the heartbeats of runs. Safe to use from several threads.

    Args:
        run: the run file; only who is let in by its rules is believed. Without it each name is, under the key that it
            shows first.
        run_id: of the run file.
        wanted: whether a run's id was asked for, in hexadecimal; without a run file.
        names: of runs whose id is known.
        clock: in seconds; never goes back.
    """

    def __init__(
        self,
        run: RunFile | None = None,
        run_id: bytes = b"",
        *,
        wanted: Callable[[str], bool] = lambda _: True,
        names: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._num_rounds = 0 if run is None else run.run.rounds
        self._wanted = (lambda run_id_hex: run_id_hex == run_id.hex()) if run is not None else wanted
        self._names = names or {}
        self._clock = clock
        self._lock = threading.Lock()
        self._run_file = run
        self._runs: dict[bytes, _Run] = {}
        self._others: dict[str, None] = {}
        self._refused: Counter[str] = Counter()
        self._events: deque[dict[str, str]] = deque(maxlen=_SHOWN_EVENTS)
        self._changed = threading.Condition(self._lock)

    def hear(self, topic: str, message: bytes) -> None:
        """Take a message of a link. Never raises."""
        if not topic.startswith("beat/"):
            return
        heard, unix_s = read_heartbeat(message), time.time()
        with self._changed:
            reason = heard if isinstance(heard, str) else self._take(heard, unix_s)
            if reason:
                self._refused[reason] += 1
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Until anybody was heard, or the time is over."""
        with self._changed:
            return self._changed.wait_for(
                lambda: any(run.states or run.clock_gaps_s for run in self._runs.values()), timeout_s
            )

    def look(self) -> tuple[list[SwarmHeard], list[str], dict[str, int], list[dict[str, str]]]:
        """Runs, other runs, refusals and events, as they stand."""
        with self._lock:
            now_s = self._clock()
            swarms = [self._swarm(run_id, run, now_s) for run_id, run in sorted(self._runs.items())]
            return swarms, list(self._others), dict(self._refused), list(self._events)

    def _take(self, heard: Heartbeat, unix_s: float) -> str:
        """Take it in; the reason if it is not believed, or empty."""
        if not self._wanted(heard.run_id.hex()):
            if len(self._others) < _MAX_RUNS:
                self._others[heard.run_id.hex()[:ID_DIGITS]] = None
            return ""
        run = self._runs.get(heard.run_id)
        if run is None:
            if len(self._runs) >= _MAX_RUNS:
                return "too_many"
            roster = None if self._run_file is None else roster_of(self._run_file, heard.run_id)
            run = self._runs[heard.run_id] = _Run(roster)
        credential, known = heard.beat.credential, run.membership.peer(heard.peer)
        if known is None and len(run.clock_gaps_s) >= _MAX_PEERS:
            return "too_many"
        if run.roster is None:
            if known is not None and known.key != credential.node_key:
                return "wrong_key"
        else:
            if heard.beat.revocations is not None:
                run.roster.revoke(heard.beat.revocations)
            told = run.roster.admit(credential, now_s=unix_s)
            if isinstance(told, Refusal):
                return told.reason
        run.membership.hear(heard.peer, credential.node_key, heard.boot, heard.seq, heard.beat, now_s=self._clock())
        run.clock_gaps_s[heard.peer] = heard.beat.clock_ms / 1000 - unix_s
        return ""

    def _swarm(self, run_id: bytes, run: _Run, now_s: float) -> SwarmHeard:
        name = self._names.get(run_id.hex(), run_id.hex()[:ID_DIGITS])
        nodes = [self._node(run, peer, now_s) for peer in run.membership.all()]
        reached = median_low(
            [node.round for node in nodes if node.state == "live"] or [max((node.round for node in nodes), default=0)]
        )
        for node in nodes:
            node.lag = max(0, reached - node.round)
            self._note(run, name, node)
        return SwarmHeard(
            run=name,
            run_id=run_id.hex(),
            round=reached,
            rounds=self._num_rounds,
            nodes=nodes,
            finished=bool(self._num_rounds and nodes)
            and all(node.state == "left" and node.round >= self._num_rounds for node in nodes),
        )

    def _node(self, run: _Run, peer: Peer, now_s: float) -> PeerHeard:
        state = "left" if peer.has_left else "live" if run.membership.is_fresh(peer, now_s) else "silent"
        return PeerHeard(
            name=peer.name,
            key=short(peer.key),
            state=state,
            heard_s=max(0.0, now_s - peer.heard_s),
            round=peer.round + 1,
            from_round=None if peer.from_round < 0 else peer.from_round + 1,
            lag=0,
            held=_as_ranges(peer.held),
            groups=peer.held[max(peer.held)].num_groups if peer.held else None,
            clock_gap_s=run.clock_gaps_s[peer.name],
            card=peer.digest.hex()[:ID_DIGITS],
        )

    def _note(self, run: _Run, name: str, node: PeerHeard) -> None:
        """An event, if the node is not any more what it was at the last look."""
        before, run.states[node.name] = run.states.get(node.name), node.state
        if before == node.state:
            return
        kind = node.state if node.state != "live" else "heard" if before is None else "back"
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._events.append({"time": now, "run": name, "kind": kind, "node": node.name})


def _as_ranges(held: Mapping[int, Held]) -> str:
    """Rounds, counted from 1, as ranges.

    >>> _as_ranges({3: Held(3, 1, 8), 4: Held(4, 1, 8), 7: Held(7, 1, 8)})
    '4-5,8'
    """
    spans: list[list[int]] = []
    for round in sorted(held):
        if spans and round == spans[-1][1]:
            spans[-1][1] += 1
        else:
            spans.append([round, round + 1])
    return ",".join(str(last) if last == first + 1 else f"{first + 1}-{last}" for first, last in spans)
