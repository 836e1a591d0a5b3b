"""What several run directories of one run say together, at one moment: plain data for the table, lines and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motet.cli.watch_files import Learned, WatchedRun, number, table
from motet.journal.peers import PeerStatus, SwarmStatus

STALE_S = 6.0
"""A status is rewritten every second; one that is older than this is of a process that hangs or has gone."""

STRANGERS = "?"
"""Name under which a status counts what nobody known has sent."""

_ENDED = ("stopped", "finished")
_QUIET_ROUNDS = 5.0
_QUIET_S = 120.0
_SHOWN_EVENTS = 5


@dataclass(slots=True)
class NodeNow:
    """One node.

    Attributes:
        name: of the node.
        is_here: True if its own directory is being watched; otherwise peers tell of it.
        state: "loading", "joining", "generating", "training", "waiting", "examining", "running", "live", "silent",
            "left", "refused", "quarantined", "unheard", "stopped", "finished", "starting".
        since_s: seconds for which it has been so, where that is known.
        waiting_for: peers that it waits for.
        round: that it is in, or has done, counted from 1; 0 before the first.
        lag: rounds behind the swarm.
        held_out: held-out accuracy.
        gain: what has been added to that since the start; None before a second examination.
        gain_se: standard error of the gain, as of two independent examinations.
        own_reward: mean reward of its completions in the last round.
        used_share: share of its completions that others learned from, of those that others let in.
        accepted: groups of its that others let in; None if nobody tells.
        rejected: groups of its that the gates of others rejected, by reason.
        refused: messages of its that the exchange refused, by reason.
        late: groups of its that came too late.
        quarantined_until: round at which its quarantine ends, counted from 1.
        bytes_per_token: what its completions took on the wire.
        tokens_per_s: completion tokens that it sampled in the last round, by the length of that round.
        heard_s: seconds since anybody watched here heard from it.
    """

    name: str
    is_here: bool = False
    state: str = "starting"
    since_s: float | None = None
    waiting_for: list[str] = field(default_factory=list)
    round: int = 0
    lag: int = 0
    held_out: float | None = None
    gain: float | None = None
    gain_se: float | None = None
    own_reward: float | None = None
    used_share: float | None = None
    accepted: int | None = None
    rejected: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    late: int = 0
    quarantined_until: int | None = None
    bytes_per_token: float | None = None
    tokens_per_s: float | None = None
    heard_s: float | None = None


@dataclass(slots=True)
class Wait:
    """A node that does not go on yet: for whom, for how long already, and for how long still."""

    node: str
    peers: list[str]
    since_s: float | None
    left_s: float | None


@dataclass(slots=True)
class RunNow:
    """A run.

    Attributes:
        run: its name.
        round: that the swarm has reached, counted from 1.
        rounds: of the run file; 0 if it is not known.
        eta_s: seconds until the end, if it goes on like this.
        finished: True once every directory has its summary.
        seen_by: nodes whose directories are being watched, in a run over the network; empty otherwise.
        nodes: all of them.
        waits: who is held back, and by whom.
        alone: nodes that hear no other.
        link_faults: by node.
        strangers: messages of nobody known that were refused, by reason.
        rejected_here: groups that the gates here rejected, by reason, where nobody tells whose they were.
        events: the latest, oldest first.
        left_out: directories of the run that are not shown, as nothing goes on in them any more.
    """

    run: str
    round: int
    rounds: int
    eta_s: float | None
    finished: bool
    seen_by: list[str]
    nodes: list[NodeNow]
    waits: list[Wait]
    alone: list[str]
    link_faults: dict[str, str]
    strangers: dict[str, int]
    rejected_here: dict[str, int]
    events: list[dict[str, str]]
    left_out: list[str]


def look(runs: Sequence[WatchedRun], *, now_s: float, left_out: Sequence[str] = ()) -> RunNow:
    """Put together what the directories of one run say.

    Args:
        runs: at least one; all of the same run.
        now_s: unix time.
        left_out: names of directories of the run that are not among these.
    """
    statuses: dict[str, SwarmStatus] = {}
    for run in runs:
        statuses |= {name: status for name, status in run.statuses.items() if _is_newer(status, statuses.get(name))}
    fresh = {name: status for name, status in statuses.items() if _is_fresh(status, now_s)}
    names = dict.fromkeys(name for run in runs for name in run.node_names)
    names |= dict.fromkeys(peer.name for status in statuses.values() for peer in status.peers if peer.name != STRANGERS)
    nodes = {name: _node(name, runs, statuses, now_s=now_s) for name in names}
    _count_groups(nodes, runs, statuses)
    told = [status.swarm_round + 1 for status in fresh.values() if status.swarm_round is not None]
    reached = max(told) if told else max((node.round for node in nodes.values()), default=0)
    for node in nodes.values():
        node.lag = max(0, reached - node.round) if node.round else 0
    rounds = max(run.num_rounds for run in runs)
    finished = all(run.summary for run in runs)
    is_told = any(node.rejected for node in nodes.values())
    return RunNow(
        run=runs[0].name,
        round=min(reached, rounds) if rounds else reached,
        rounds=rounds,
        eta_s=None if finished else _eta_s(runs, rounds, now_s=now_s),
        finished=finished,
        seen_by=list(statuses),
        nodes=list(nodes.values()),
        waits=[_wait(status, now_s) for status in fresh.values() if status.waiting_for],
        alone=[name for name, status in fresh.items() if status.alone and status.phase not in _ENDED],
        link_faults={name: status.link_fault for name, status in fresh.items() if status.link_fault},
        strangers=_strangers(statuses.values()),
        rejected_here={} if is_told else _rejected_here(runs),
        events=_events(runs),
        left_out=list(left_out),
    )


def _is_newer(status: SwarmStatus, known: SwarmStatus | None) -> bool:
    return known is None or status.at_s > known.at_s


def _is_fresh(status: SwarmStatus, now_s: float) -> bool:
    return now_s - status.at_s <= STALE_S


def _node(name: str, runs: Sequence[WatchedRun], statuses: Mapping[str, SwarmStatus], *, now_s: float) -> NodeNow:
    node = NodeNow(name)
    told = [(status, peer) for status in statuses.values() for peer in status.peers if peer.name == name]
    status = statuses.get(name)
    if told:
        _as_peers_tell(node, told, now_s=now_s)
    for run in runs:
        if name in run.learned:
            _as_its_rows_tell(node, run.learned[name])
            if status is None:
                _as_its_files_tell(node, run, now_s=now_s)
    if status is not None:
        _as_it_tells(node, status, now_s=now_s)
    elif not told and not any(name in run.learned for run in runs):
        node.state = "unheard" if statuses else "starting"
    quarantine = [peer.quarantined_until for _, peer in told if peer.quarantined_until is not None]
    if quarantine:
        node.state, node.quarantined_until = "quarantined", max(quarantine) + 1
    return node


def _as_peers_tell(node: NodeNow, told: Sequence[tuple[SwarmStatus, PeerStatus]], *, now_s: float) -> None:
    """By the one that heard from it last."""
    heard = [
        (now_s - status.at_s + peer.heard_s, peer)
        for status, peer in told
        if peer.heard_s is not None and status.node != node.name
    ]
    if heard:
        seconds, peer = min(heard, key=lambda pair: pair[0])
        node.heard_s = max(0.0, seconds)
    else:
        peer = told[0][1]
    node.state = peer.state
    node.since_s = node.heard_s if peer.state == "silent" else None
    node.round = max(peer.round for _, peer in told) + 1


def _as_its_rows_tell(node: NodeNow, learned: Learned) -> None:
    node.is_here = True
    node.round = max(node.round, learned.rounds_done)
    node.held_out, node.own_reward = learned.held_out, learned.own_reward
    if learned.num_exams > 1 and learned.held_out is not None and learned.start is not None:
        node.gain = learned.held_out - learned.start
        node.gain_se = None if learned.se is None else learned.se * 2**0.5
    node.bytes_per_token = learned.bytes_sent / learned.tokens_sent if learned.tokens_sent else None
    node.tokens_per_s = learned.tokens_per_s


def _as_its_files_tell(node: NodeNow, run: WatchedRun, *, now_s: float) -> None:
    """Of a run without a network, or of a node that keeps no status."""
    last = run.events[-1].get("kind") if run.events else None
    quiet_s = max(0.0, now_s - run.changed_s)
    if run.summary:
        node.state = "finished"
    elif last in _ENDED:
        node.state, node.since_s = "stopped", quiet_s
    else:
        long = max(_QUIET_S, _QUIET_ROUNDS * (run.seconds_a_round() or 0.0))
        node.state, node.since_s = ("silent" if quiet_s > long else "running"), quiet_s


def _as_it_tells(node: NodeNow, status: SwarmStatus, *, now_s: float) -> None:
    node.is_here = True
    in_round = status.round if status.phase in _ENDED else status.round + 1
    node.round = max(node.round, in_round)
    node.heard_s = max(0.0, now_s - status.at_s)
    if status.phase in _ENDED or _is_fresh(status, now_s):
        node.state = status.phase
        node.since_s = None if status.phase_since_s is None else max(0.0, now_s - status.phase_since_s)
        node.waiting_for = [] if status.phase in _ENDED else list(status.waiting_for)
    else:
        node.state, node.since_s = "silent", node.heard_s


def _count_groups(
    nodes: Mapping[str, NodeNow], runs: Sequence[WatchedRun], statuses: Mapping[str, SwarmStatus]
) -> None:
    """What others took of each node's, from their statuses, or from the ledgers of a finished run."""
    kept: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for peer in (peer for status in statuses.values() for peer in status.peers if peer.name != STRANGERS):
        node = nodes[peer.name]
        node.accepted = (node.accepted or 0) + peer.accepted
        node.rejected = _sum(node.rejected, peer.rejected)
        node.refused = _sum(node.refused, peer.refused)
        node.late += peer.late
        kept[peer.name] += peer.kept
        dropped[peer.name] += sum(peer.dropped.values())
    for name, row in () if statuses else _ledger_rows(runs):
        if name not in nodes:
            continue
        node = nodes[name]
        node.accepted = (node.accepted or 0) + int(number(row.get("accepted")) or 0)
        node.rejected = _sum(node.rejected, _counts(row.get("rejected")))
        node.late += int(number(row.get("late")) or 0)
        kept[name] += int(number(row.get("kept")) or 0)
        dropped[name] += sum(_counts(row.get("dropped")).values())
    for name, node in nodes.items():
        if kept[name] + dropped[name]:
            node.used_share = kept[name] / (kept[name] + dropped[name])
    _share_of_two(nodes, runs)


def _share_of_two(nodes: Mapping[str, NodeNow], runs: Sequence[WatchedRun]) -> None:
    """Of two nodes, what one dropped is the other's."""
    learned = {name: learned for run in runs for name, learned in run.learned.items()}
    if len(nodes) != 2 or len(learned) != 2:
        return
    for name, other in zip(nodes, reversed(list(nodes)), strict=True):
        share = learned[other].dropped_share if other in learned else None
        if nodes[name].used_share is None and share is not None:
            nodes[name].used_share = 1 - share


def _strangers(statuses: Iterable[SwarmStatus]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for status in statuses:
        total.update(status.refused)
        for peer in status.peers:
            total.update(peer.refused if peer.name == STRANGERS else {})
    return dict(total)


def _ledger_rows(runs: Sequence[WatchedRun]) -> list[tuple[str, Mapping[str, Any]]]:
    summaries = [table(node) for run in runs for node in table(run.summary.get("nodes")).values()]
    return [(peer, table(row)) for node in summaries for peer, row in table(node.get("ledger")).items()]


def _counts(value: object) -> dict[str, int]:
    return {reason: int(number(count) or 0) for reason, count in table(value).items()}


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(first) + Counter(second))


def _rejected_here(runs: Sequence[WatchedRun]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for run in runs:
        for learned in run.learned.values():
            total += learned.rejected
    return dict(total)


def _wait(status: SwarmStatus, now_s: float) -> Wait:
    return Wait(
        status.node,
        list(status.waiting_for),
        None if status.phase_since_s is None else max(0.0, now_s - status.phase_since_s),
        None if status.waiting_until_s is None else max(0.0, status.waiting_until_s - now_s),
    )


def _eta_s(runs: Sequence[WatchedRun], rounds: int, *, now_s: float) -> float | None:
    """By the slowest directory."""
    left = []
    for run in runs:
        a_round = run.seconds_a_round()
        if a_round is not None and rounds and not run.summary:
            left.append(max(0.0, a_round * (rounds - run.rounds_done) - max(0.0, now_s - run.changed_s)))
    return max(left, default=None)


def _events(runs: Sequence[WatchedRun]) -> list[dict[str, str]]:
    found = []
    for run in runs:
        here = next(iter(run.statuses), "") if len(runs) > 1 else ""
        for row in run.events:
            event = {key: str(row[key]) for key in ("time", "kind", "round", "node", "peer", "text") if key in row}
            found.append({**event, "seen_by": here} if here else event)
    found.sort(key=lambda event: event.get("time", ""))
    return found[-_SHOWN_EVENTS:]
