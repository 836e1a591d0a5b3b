"""What a person sees while a swarm runs: a live table on a terminal, one line a round in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from motet.cli.console import can_redraw, make_console
from motet.journal import RunDir, read_jsonl

if TYPE_CHECKING:
    from rich.console import RenderableType

    from motet.simulation import Event

_DOING: Final[Mapping[str, str]] = {"generate": "generating", "wait": "collecting", "learn": "training"}
_BAR_WIDTH = 24
_STATE_WIDTH = 22
_WORTH_SAYING_S = 2.0


def bar(share: float, width: int = _BAR_WIDTH) -> str:
    """A bar of blocks, `share` of it filled.

    >>> bar(0.5, 4)
    '##--'
    """
    filled = round(max(0.0, min(1.0, share)) * width)
    return "#" * filled + "-" * (width - filled)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(125)
    '2:05'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


@dataclass(slots=True)
class _NodeView:
    state: str = "starting"
    since: float = 0.0
    rounds_done: int = 0
    start: float | None = None
    held_out: float | None = None
    se: float = 0.0
    own_reward: float | None = None
    dropped: float | None = None
    idle: float | None = None


class _Progress:
    """What both displays remember. Implements `motet.simulation.Observer`."""

    def __init__(self, run_dir: RunDir) -> None:
        self._dir = run_dir
        self._name = run_dir.path.name
        self._views: dict[str, _NodeView] = {}
        self._first_round = self._rounds_done = self._num_rounds = 0
        self._entered = time.monotonic()
        self._before = "loading PyTorch and the models"
        self._began_rounds: float | None = None
        self._ended_round = 0.0

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """See `Observer`."""
        self._views = {node: _NodeView(since=time.monotonic(), rounds_done=first_round) for node in nodes}
        self._first_round = self._rounds_done = first_round
        self._num_rounds = num_rounds
        for row in read_jsonl(self._dir.metrics):  # of a resumed run
            self._remember(row)

    def phase(self, node: str, phase: str, *, round: int, waiting_for: Sequence[str]) -> None:
        """See `Observer`."""
        del round
        if self._began_rounds is None:
            self._began_rounds = self._ended_round = time.monotonic()
        peers = waiting_for[0] if len(waiting_for) == 1 else f"{len(waiting_for)} peers"
        self._enter(node, f"waiting for {peers}" if waiting_for else _DOING[phase])

    def evaluating(self, node: str, *, round: int) -> None:
        """See `Observer`."""
        del round
        self._enter(node, "being examined")

    def round_done(self, row: Mapping[str, object]) -> None:
        """See `Observer`."""
        self._remember(row)
        self._enter(str(row["node"]), "done")
        if (rounds_done := min(view.rounds_done for view in self._views.values())) > self._rounds_done:
            self._rounds_done, self._ended_round = rounds_done, time.monotonic()

    def _remember(self, row: Mapping[str, object]) -> None:
        view = self._views[str(row["node"])]
        accuracy, se = row.get("accuracy/test"), row.get("accuracy/test/se")
        if isinstance(accuracy, float) and isinstance(se, float):
            view.held_out, view.se = accuracy, se
            view.start = accuracy if view.start is None else view.start
        reward, dropped = row.get("reward/own_mean"), row.get("filter/dropped_share")
        view.own_reward = reward if isinstance(reward, float) else view.own_reward
        view.dropped = dropped if isinstance(dropped, float) else view.dropped
        idle = row.get("time/idle_share")
        view.idle = idle if isinstance(idle, float) else view.idle
        view.rounds_done = rounds_done_in(row)

    def _enter(self, node: str, state: str) -> None:
        view = self._views[node]
        view.state, view.since = state, time.monotonic()

    def _seconds_left(self) -> float | None:
        """From the rounds that this process has done; None before there are two."""
        done = self._rounds_done - self._first_round
        if self._began_rounds is None or done < 2:
            return None
        a_round = (self._ended_round - self._began_rounds) / done
        return max(0.0, a_round * (self._num_rounds - self._rounds_done) - (time.monotonic() - self._ended_round))


class LiveProgress(_Progress):
    """A table that is redrawn four times a second; a context manager."""

    def __init__(self, run_dir: RunDir) -> None:
        super().__init__(run_dir)
        from rich.live import Live

        self._live = Live(
            console=make_console(stderr=True), get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the table away."""
        self._live.stop()

    def happened(self, node: str, event: Event) -> None:
        """See `Observer`. The line stays above the table."""
        from rich.text import Text

        if event.kind == "waiting" and not self._views:
            self._before, self._entered = _told(event), time.monotonic()
        self._live.console.print(Text(f"node {node}: {_told(event)}"))

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = time.monotonic()
        if not self._views:
            return Text(f"{self._name}  {self._before}, {now - self._entered:.0f} s")
        left = self._seconds_left()
        share = self._rounds_done / self._num_rounds
        eta = f"  about {clock(left)} left" if left is not None else ""
        head = f"{self._name}  {self._rounds_done}/{self._num_rounds} rounds  {bar(share)}{eta}"
        table = Table(box=None, pad_edge=False)
        table.add_column("node", overflow="ellipsis")  # where there is little room, long names give way
        table.add_column("now", no_wrap=True, width=_STATE_WIDTH)
        for title in ("held-out", "since start", "own reward", "dropped", "idle"):
            table.add_column(title, no_wrap=True, justify="right")
        for node, view in self._views.items():
            seconds = now - view.since
            table.add_row(
                node,
                view.state + (f" {seconds:.0f} s" if seconds >= _WORTH_SAYING_S else ""),
                "-" if view.held_out is None else f"{100 * view.held_out:.0f} %",
                _gain(view),
                "-" if view.own_reward is None else f"{view.own_reward:.2f}",
                "-" if view.dropped is None else f"{100 * view.dropped:.0f} %",
                "-" if view.idle is None else f"{100 * view.idle:.0f} %",
            )
        return Group(Text(head, no_wrap=True, overflow="ellipsis"), table)


class LineProgress(_Progress):
    """One `key=value` line for each round and node, on stderr; a context manager."""

    def __enter__(self) -> Self:
        """Say at once that something is happening."""
        self._say(f"run={self._name} state=loading")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing to clear away."""

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """See `Observer`."""
        super().started(nodes=nodes, first_round=first_round, num_rounds=num_rounds)
        how = "resuming" if first_round else "starting"
        self._say(f"run={self._name} state={how} round={first_round}/{num_rounds} nodes={','.join(nodes)}")

    def happened(self, node: str, event: Event) -> None:
        """See `Observer`."""
        self._say(f"run={self._name} node={node} event={event.kind} {_told(event)}")

    def round_done(self, row: Mapping[str, object]) -> None:
        """See `Observer`."""
        super().round_done(row)
        shown = {
            "reward": row.get("reward/own_mean"),
            "held_out": row.get("accuracy/test"),
            "ood": row.get("accuracy/ood"),
            "kl": row.get("kl_gen_old/sum_p50"),
            "dropped": row.get("filter/dropped_share"),
            "rejected": row.get("admission/rejected") or None,
            "late": row.get("admission/late") or None,
            "unscored": row.get("own/unscored") or None,
            "idle": _worth_saying(row.get("time/idle_share")),
        }
        numbers = " ".join(f"{key}={value:.3g}" for key, value in shown.items() if isinstance(value, (int, float)))
        self._say(
            f"run={self._name} round={rounds_done_in(row)}/{self._num_rounds} node={row['node']} {numbers}".rstrip()
        )

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def rounds_done_in(row: Mapping[str, object]) -> int:
    """Rounds that are done once a row of the journal is written: the journal counts rounds from 0, people from 1.

    >>> rounds_done_in({"round": -1, "node": "small"})  # examined before training
    0
    """
    return int(str(row["round"])) + 1


def _told(event: Event) -> str:
    """What happened, with whom it is about."""
    if event.kind == "refused":
        return f"from {'nobody known' if event.peer == '?' else event.peer}: {event.text}"
    return f"{event.peer} {event.text}" if event.peer else event.text


def _worth_saying(share: object) -> float | None:
    """A share in whole percent; None if that is 0, as where all nodes have one process."""
    return (round(share, 2) or None) if isinstance(share, float) else None


def make_progress(run_dir: RunDir) -> LiveProgress | LineProgress:
    """A live table where stderr is a terminal, lines where it is not."""
    return LiveProgress(run_dir) if can_redraw() else LineProgress(run_dir)


def _gain(view: _NodeView) -> str:
    if view.held_out is None or view.start is None:
        return "-"
    return f"{100 * (view.held_out - view.start):+.0f} +-{100 * view.se * 2**0.5:.0f}"
