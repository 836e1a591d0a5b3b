"""What a person sees while a swarm runs: a live table on a terminal, one line a round in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from motet.cli.console import make_console
from motet.node import Phase

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_WIDTH = 24


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
    start: float | None = None
    held_out: float | None = None
    se: float = 0.0
    own_reward: float | None = None
    dropped: float | None = None
    kept_from_peers: float | None = None


class _Progress:
    """What both displays remember. Implements `motet.simulation.Observer`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._views: dict[str, _NodeView] = {}
        self._first_round = self._round = self._num_rounds = 0
        self._began = time.monotonic()

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """See `Observer`."""
        self._views = {node: _NodeView(since=time.monotonic()) for node in nodes}
        self._first_round = self._round = first_round
        self._num_rounds = num_rounds
        self._began = time.monotonic()

    def phase(self, node: str, phase: Phase, *, round: int, waiting_for: Sequence[str]) -> None:
        """See `Observer`."""
        self._round = round
        words = {Phase.GENERATE: "generating", Phase.WAIT: "collecting", Phase.LEARN: "training"}
        self._enter(node, f"waiting for {', '.join(waiting_for)}" if waiting_for else words[phase])

    def evaluating(self, node: str, *, round: int) -> None:
        """See `Observer`."""
        self._enter(node, "examined" if round >= 0 else "examined before training")

    def round_done(self, row: Mapping[str, object]) -> None:
        """See `Observer`."""
        view = self._views[str(row["node"])]
        view.state, view.since = "done", time.monotonic()
        accuracy, se = row.get("accuracy/test"), row.get("accuracy/test/se")
        if isinstance(accuracy, float) and isinstance(se, float):
            view.held_out, view.se = accuracy, se
            view.start = accuracy if view.start is None else view.start
        reward, dropped = row.get("reward/own_mean"), row.get("filter/dropped_share")
        view.own_reward = reward if isinstance(reward, float) else view.own_reward
        view.dropped = dropped if isinstance(dropped, float) else view.dropped

    def _enter(self, node: str, state: str) -> None:
        view = self._views[node]
        view.state, view.since = state, time.monotonic()

    def _seconds_left(self) -> float | None:
        done = self._round - self._first_round
        if done < 2:
            return None
        return (time.monotonic() - self._began) / done * (self._num_rounds - self._round)


class LiveProgress(_Progress):
    """A table that is redrawn four times a second; a context manager."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
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

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = time.monotonic()
        left = self._seconds_left()
        share = self._round / self._num_rounds if self._num_rounds else 0.0
        eta = f"   about {clock(left)} left" if left is not None else ""
        head = f"{self._name}  round {self._round}/{self._num_rounds}  {bar(share)}{eta}"
        table = Table(box=None, pad_edge=False)
        for title in ("node", "now", "held-out", "since start", "own reward", "peers' dropped"):
            table.add_column(title, no_wrap=True)
        for node, view in self._views.items():
            table.add_row(
                node,
                f"{view.state} {now - view.since:.0f} s",
                "-" if view.held_out is None else f"{100 * view.held_out:.0f} %",
                _gain(view),
                "-" if view.own_reward is None else f"{view.own_reward:.2f}",
                "-" if view.dropped is None else f"{100 * view.dropped:.0f} %",
            )
        return Group(Text(head), table)


class LineProgress(_Progress):
    """One `key=value` line for each round and node, on stderr; a context manager."""

    def __enter__(self) -> Self:
        """Nothing to prepare."""
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
        }
        numbers = " ".join(f"{key}={value:.3g}" for key, value in shown.items() if isinstance(value, (int, float)))
        self._say(f"run={self._name} round={row['round']}/{self._num_rounds} node={row['node']} {numbers}")

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def make_progress(name: str) -> LiveProgress | LineProgress:
    """A live table where stderr is a terminal, lines where it is not."""
    return LiveProgress(name) if make_console(stderr=True).is_terminal else LineProgress(name)


def _gain(view: _NodeView) -> str:
    if view.held_out is None or view.start is None:
        return "-"
    return f"{100 * (view.held_out - view.start):+.0f} +-{100 * view.se * 2**0.5:.0f}"
