"""How a swarm that is only heard is shown: a table for a terminal of 80 columns, and lines of key=value for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from motet.cli.progress import bar
from motet.cli.strangers import pairs, plain
from motet.cli.watch_heard import HeardNow, PeerHeard, SwarmHeard
from motet.cli.watch_view import BAR_WIDTH, MAX_ROWS, NAME_WIDTH, TROUBLE, WORTH_SAYING_S, age, make_table, some

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ONLY_IN_DIRECTORIES: Final = (
    "Heartbeats tell neither rewards and accuracy nor what was accepted and rejected: `motet watch RUN` does, on a "
    "machine where a node runs."
)

_CLOCK_WORTH_SAYING_S: Final = 30.0
_SHOWN_ADDRESSES: Final = 2


def table_of(now: HeardNow) -> RenderableType:
    """The whole view."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(plain(where(now)), no_wrap=True, overflow="ellipsis")]
    for swarm in now.swarms:
        parts += [Text(_head(swarm), no_wrap=True, overflow="ellipsis"), _nodes(swarm.nodes[:MAX_ROWS])]
        if len(swarm.nodes) > MAX_ROWS:
            parts.append(Text(f"and {len(swarm.nodes) - MAX_ROWS} more nodes"))
    parts += [Text(line, style=style) for line, style in _remarks(now)]
    parts += [
        Text(plain(f"{event['time'][11:19]} {event['kind']} {event['node']} ({event['run']})"), style="dim")
        for event in now.events
    ]
    return Group(*parts, Text(ONLY_IN_DIRECTORIES, style="dim"))


def where(now: HeardNow) -> str:
    """Where is listened, and whether that works."""
    if now.link_fault is not None:
        return f"no connection: {now.link_fault}; trying again"
    ends = some(now.connected_to or now.addresses, _SHOWN_ADDRESSES)
    heard = any(swarm.nodes for swarm in now.swarms)
    return f"listening at {ends}" if heard else f"connected to {ends}, nobody heard yet"


def lines_of(now: HeardNow, before: HeardNow | None) -> Iterator[str]:
    """What has changed since the last look, one line each."""
    if before is None or where(now) != where(before):
        state = "connected" if now.link_fault is None else "disconnected"
        heard = None if now.link_fault or any(swarm.nodes for swarm in now.swarms) else "nobody"
        ends = ",".join(now.connected_to or now.addresses)
        yield pairs({"state": state, "address": ends, "why": now.link_fault, "heard": heard})
    known = {} if before is None else {(swarm.run_id, one.name): one for swarm in before.swarms for one in swarm.nodes}
    for swarm in now.swarms:
        for node in swarm.nodes:
            facts = _facts(node, swarm.rounds)
            old = known.get((swarm.run_id, node.name))
            if old is None or _facts(old, swarm.rounds) != facts:
                yield pairs({"run": swarm.run, "node": node.name, **facts})
    if now.refused != ({} if before is None else before.refused):
        yield pairs({"refused": ",".join(f"{reason}:{count}" for reason, count in now.refused.items())})
    for other in now.other_runs:
        if before is None or other not in before.other_runs:
            yield pairs({"other_run": other})
    for swarm in now.swarms:
        if swarm.finished and not (before is not None and before.finished):
            yield pairs({"run": swarm.run, "state": "finished"})


def still_there(now: HeardNow) -> Iterator[str]:
    """Said now and then, whether or not anything has changed."""
    since = {"listening_s": round(now.listening_s)}
    if not now.swarms or now.link_fault is not None:
        state = "connected" if now.link_fault is None else "disconnected"
        yield pairs({"state": state, "heard": None if now.swarms else "nobody", **since})
    for swarm in now.swarms:
        counts = {state: sum(node.state == state for node in swarm.nodes) for state in ("live", "silent", "left")}
        yield pairs({"run": swarm.run, "round": _of(swarm.round, swarm.rounds), **counts, **since})


def _facts(node: PeerHeard, rounds: int) -> dict[str, object]:
    return {
        "state": node.state,
        "round": _of(node.round, rounds),
        "lag": node.lag or None,
        "held": node.held,
        "from_round": node.from_round,
        "key": node.key,
    }


def _of(round: int, rounds: int) -> str:
    return f"{round}/{rounds}" if rounds else str(round)


def _head(swarm: SwarmHeard) -> str:
    name = plain(swarm.run, 40)
    name = f"run {name}" if swarm.run_id.startswith(name) else name
    if not swarm.rounds:
        return f"{name}  round {swarm.round}"
    ended = "  finished" if swarm.finished else ""
    return f"{name}  round {swarm.round}/{swarm.rounds}  {bar(swarm.round / swarm.rounds, BAR_WIDTH)}{ended}"


def _nodes(nodes: Sequence[PeerHeard]) -> Table:
    from rich.text import Text

    table = make_table("node", "now", "round", "lag", "held", "groups", "from", "key", "heard")
    for node in nodes:
        quiet = node.state == "silent" and node.heard_s >= WORTH_SAYING_S
        state = f"silent {age(node.heard_s)}" if quiet else node.state
        table.add_row(
            Text(plain(node.name, NAME_WIDTH)),
            Text(state, style=TROUBLE.get(node.state, "")),
            Text(str(node.round)),
            Text(str(node.lag)),
            Text(plain(node.held, 12) or "-"),
            Text("-" if node.groups is None else str(node.groups)),
            Text("-" if node.from_round is None else str(node.from_round)),
            Text(node.key),
            Text(age(node.heard_s)),
        )
    return table


def _remarks(now: HeardNow) -> Iterator[tuple[str, str]]:
    """Sentences under the tables, with their style."""
    for swarm in now.swarms:
        here = sorted((node for node in swarm.nodes if node.state == "live"), key=lambda node: node.card)
        cards = [some([node.name for node in group], 3) for _, group in groupby(here, key=lambda node: node.card)]
        if len(cards) > 1:
            apart = " | ".join(cards[:3])
            yield f"they differ in what must agree, and do not learn from one another: {apart}", "yellow"
        for node in here:
            if abs(node.clock_gap_s) >= _CLOCK_WORTH_SAYING_S:
                side = "ahead" if node.clock_gap_s > 0 else "behind"
                yield f"the clock of {plain(node.name)} is {age(abs(node.clock_gap_s))} {side} of this one", "yellow"
    if now.other_runs:
        yield f"other runs are heard as well: {some(now.other_runs, 5)}", ""
    if now.refused:
        reasons = ", ".join(f"{plain(reason, 30)} {count}" for reason, count in sorted(now.refused.items()))
        yield f"heartbeats that nobody here would believe: {reasons}", "yellow"
