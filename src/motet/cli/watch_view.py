"""How a run is shown while it goes on: a table for a terminal of 80 columns, and lines of key=value for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from motet.cli.progress import bar, clock
from motet.cli.strangers import pairs, plain
from motet.cli.watch_now import NodeNow, RunNow, Wait

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MAX_ROWS: Final = 24
"""Nodes in the table; of more, those that are watched here and those in trouble come first."""

NAME_WIDTH = 14
_STATE_WIDTH = 24
_TOP_REASONS = 3
BAR_WIDTH = 16
WORTH_SAYING_S = 2.0
_BUSY: Final = ("generating", "training", "examining", "waiting")
TROUBLE: Final[Mapping[str, str]] = {
    "silent": "red",
    "refused": "red",
    "quarantined": "red",
    "stopped": "yellow",
    "left": "yellow",
    "unheard": "yellow",
}


def table_of(now: RunNow) -> RenderableType:
    """The whole view of one run."""
    from rich.console import Group
    from rich.text import Text

    shown = _most_telling(now.nodes)
    parts: list[RenderableType] = [Text(head_line(now), no_wrap=True, overflow="ellipsis")]
    parts.append(_learning(shown))
    if any(node.accepted is not None or node.bytes_per_token is not None for node in shown):
        parts.append(_exchange(shown))
    if len(shown) < len(now.nodes):
        parts.append(Text(f"and {len(now.nodes) - len(shown)} more nodes"))
    parts += [Text(line, style=style) for line, style in _remarks(now)]
    parts += [Text(_event(event), no_wrap=True, overflow="ellipsis", style="dim") for event in now.events]
    return Group(*parts)


def head_line(now: RunNow) -> str:
    """Run, progress, what is left, and through whose eyes."""
    name = plain(now.run, 40)
    if not now.rounds:
        return f"{name}  nothing is known of it yet"
    eta = "  finished" if now.finished else "" if now.eta_s is None else f"  about {clock(now.eta_s)} left"
    seen = f"  seen by {some(now.seen_by, 3)}" if now.seen_by else ""
    return f"{name}  round {now.round}/{now.rounds}  {bar(now.round / now.rounds, BAR_WIDTH)}{eta}{seen}"


def state_of(node: NodeNow) -> str:
    """What a node does, in a few words."""
    if node.state == "waiting" and node.waiting_for:
        words = f"waits for {some(node.waiting_for, 1)}"
    elif node.quarantined_until is not None:
        words = f"quarantined to {node.quarantined_until}"
    else:
        words = node.state
    seconds = node.since_s
    return words if seconds is None or seconds < WORTH_SAYING_S else f"{words} {age(seconds)}"


def lines_of(now: RunNow, before: RunNow | None) -> Iterator[str]:
    """What has changed since the last look, one line each; generating, training and examining are one for this."""
    known = {node.name: _what_counts(node) for node in before.nodes} if before is not None else {}
    for node in now.nodes:
        if _what_counts(node) != known.get(node.name):
            yield pairs({"run": now.run, "node": node.name, **_facts(node, now.rounds)})
    waits = {wait.node: wait.peers for wait in _long(before.waits)} if before is not None else {}
    for wait in _long(now.waits):
        if wait.peers != waits.get(wait.node):
            yield pairs({"run": now.run, "node": wait.node, "waiting_for": ",".join(wait.peers), "left_s": wait.left_s})
    yield from _news_of_the_run(now, before)


def _news_of_the_run(now: RunNow, before: RunNow | None) -> Iterator[str]:
    alone, faults = (before.alone, before.link_faults) if before is not None else ([], {})
    for name in now.alone:
        if name not in alone:
            yield pairs({"run": now.run, "node": name, "alone": "yes"})
    for name, fault in now.link_faults.items():
        if fault != faults.get(name):
            yield pairs({"run": now.run, "node": name, "link": fault})
    for event in now.events:
        if before is None or event not in before.events:
            yield pairs({"run": now.run, "event": event.get("kind", ""), **event} | {"kind": None})
    if before is None and now.left_out:
        yield pairs({"run": now.run, "left_out": ",".join(now.left_out)})
    if now.finished and not (before is not None and before.finished):
        yield pairs({"run": now.run, "state": "finished"})


def _facts(node: NodeNow, rounds: int) -> dict[str, object]:
    return {
        "round": f"{node.round}/{rounds}" if rounds else node.round,
        "state": node.state,
        "lag": node.lag or None,
        "held_out": node.held_out,
        "gain": node.gain,
        "reward": node.own_reward,
        "used": node.used_share,
        "accepted": node.accepted,
        "rejected": _reasons(node.rejected),
        "refused": _reasons(node.refused),
        "late": node.late or None,
        "bytes_per_token": node.bytes_per_token,
        "tokens_per_s": node.tokens_per_s,
    }


def _what_counts(node: NodeNow) -> dict[str, object]:
    """What is worth a line when it changes."""
    slow = {key: value for key, value in _facts(node, 0).items() if key not in ("used", "accepted")}
    return slow | {"state": "busy" if node.state in _BUSY else node.state}


def _long(waits: Sequence[Wait]) -> list[Wait]:
    return [wait for wait in waits if wait.since_s is None or wait.since_s >= WORTH_SAYING_S]


def _most_telling(nodes: Sequence[NodeNow]) -> list[NodeNow]:
    """The nodes to show, in their order; where they are too many, trouble and what is watched here first."""
    if len(nodes) <= MAX_ROWS:
        return list(nodes)
    ranked = sorted(nodes, key=lambda node: (node.state not in TROUBLE, not node.is_here, -node.lag))
    chosen = {id(node) for node in ranked[:MAX_ROWS]}
    return [node for node in nodes if id(node) in chosen]


def _learning(nodes: Sequence[NodeNow]) -> Table:
    from rich.text import Text

    table = make_table("node", "now", "round", "lag", "held-out", "change", "reward", "used")
    for node in nodes:
        table.add_row(
            Text(plain(node.name, NAME_WIDTH)),
            Text(plain(state_of(node), _STATE_WIDTH), style=TROUBLE.get(node.state, "")),
            Text(str(node.round)),
            Text(str(node.lag)),
            Text(_percent(node.held_out)),
            Text(_gain(node)),
            Text("-" if node.own_reward is None else f"{node.own_reward:.2f}"),
            Text(_percent(node.used_share)),
        )
    return table


def _exchange(nodes: Sequence[NodeNow]) -> Table:
    from rich.text import Text

    table = make_table("groups of", "not taken", "accepted", "B/token", "token/s", "heard")
    for node in nodes:
        table.add_row(
            Text(plain(node.name, NAME_WIDTH)),
            Text(
                _not_taken(node),
                style="yellow" if node.rejected or node.refused else "",
                no_wrap=True,
                overflow="ellipsis",
            ),
            Text("-" if node.accepted is None else f"{node.accepted:,}"),
            Text("-" if node.bytes_per_token is None else f"{node.bytes_per_token:.1f}"),
            Text("-" if node.tokens_per_s is None else f"{node.tokens_per_s:,.0f}"),
            Text("-" if node.heard_s is None else age(node.heard_s)),
        )
    return table


def make_table(first: str, second: str, *numbers: str) -> Table:
    """A table without lines, whose second column gives way where there is little room."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    table.add_column(second)
    for title in numbers:
        table.add_column(title, no_wrap=True, justify="right")
    return table


def _not_taken(node: NodeNow) -> str:
    parts = [
        f"{word} {sum(counts.values()):,} ({_reasons(counts)})"
        for word, counts in (("rejected", node.rejected), ("refused", node.refused))
        if counts
    ]
    return "; ".join([*parts, *([f"late {node.late:,}"] if node.late else [])]) or "-"


def _reasons(counts: Mapping[str, int]) -> str:
    """The most frequent first.

    >>> _reasons({"stale": 1, "replay": 4, "oversized": 2, "malformed": 1})
    'replay:4,oversized:2,malformed:1,+1'
    """
    ranked = sorted((reason for reason, count in counts.items() if count), key=lambda reason: (-counts[reason], reason))
    top, others = ranked[:_TOP_REASONS], ranked[_TOP_REASONS:]
    words = [f"{plain(reason, 30)}:{counts[reason]}" for reason in top]
    return ",".join([*words, *([f"+{sum(counts[reason] for reason in others)}"] if others else [])])


def _remarks(now: RunNow) -> Iterator[tuple[str, str]]:
    """Sentences under the table, with their style."""
    for name, fault in now.link_faults.items():
        yield f"{plain(name)} has no connection: {plain(fault)}", "red"
    for name in now.alone:
        yield f"{plain(name)} is alone: it hears nobody else and learns from its own completions only", "yellow"
    for wait in now.waits:
        yield _held_back(wait), ""
    if now.left_out:
        yield f"not shown, as nothing goes on there any more (--all shows it): {some(now.left_out, 3)}", "dim"
    if now.strangers:
        yield f"refused from nobody known: {_reasons(now.strangers)}", "yellow"
    if now.rejected_here:
        yield f"rejected by the gate: {_reasons(now.rejected_here)}", "yellow"


def _held_back(wait: Wait) -> str:
    since = "" if wait.since_s is None else f", since {age(wait.since_s)}"
    left = "" if wait.left_s is None else f"; goes on without in {age(wait.left_s)}"
    return f"{plain(wait.node)} is held back by {some(wait.peers, 3)}{since}{left}"


def _event(event: Mapping[str, str]) -> str:
    """Time, kind, and in words: of a peer what the node says of it, of the node itself what it did."""
    peer, node, text = (event.get(key, "") for key in ("peer", "node", "text"))
    words = f"{peer} {text}" if peer else f"{node}: {text}" if node and text else f"{node}{text}"
    seen = event.get("seen_by") or (node if peer else "")
    line = f"{event.get('time', '')[11:19]} {event.get('kind', '?')} {words}".rstrip()
    return plain(f"{line} (seen by {seen})" if seen else line, 300)


def some(names: Sequence[str], most: int) -> str:
    """A few names, and how many more.

    >>> some(["ann", "bob", "kim"], 2)
    'ann, bob and 1 more'
    """
    shown = ", ".join(plain(name, 32) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def age(seconds: float) -> str:
    """A length of time in at most four characters or so.

    >>> age(8.4), age(400), age(90000)
    ('8 s', '7 min', '25 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.0f} h"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _gain(node: NodeNow) -> str:
    if node.gain is None:
        return "-"
    return f"{100 * node.gain:+.0f}" + ("" if node.gain_se is None else f" +-{100 * node.gain_se:.0f}")
