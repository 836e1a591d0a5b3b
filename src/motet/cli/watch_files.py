"""Run directories, followed while others write them: whatever is missing, torn or damaged is left out.

Only what was appended since the last look is read, so that a long run costs no more to watch than a short one.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from motet.journal import RunDir
from motet.journal.peers import SwarmStatus, read_statuses

_KEPT_EVENTS = 50
_MAX_READ = 64_000_000
_REJECTED = "admission/rejected/"


class Tail:
    """A file of JSON lines that grows, or is replaced by a shorter one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_id = 0
        self._offset = 0

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether everything read before has to be forgotten, and the whole lines that are new.

        Lines that are no JSON objects are passed over. A line that is still being written waits for the next call.
        """
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                anew = bool(self._offset) and (status.st_ino != self._file_id or status.st_size < self._offset)
                self._file_id = status.st_ino
                self._offset = 0 if anew else self._offset
                file.seek(self._offset)
                data = file.read(_MAX_READ)
        except OSError:
            return False, []
        whole, _, _ = data.rpartition(b"\n")
        self._offset += len(whole) + 1 if b"\n" in data else 0
        return anew, [row for line in whole.split(b"\n") if (row := _object(line)) is not None]


@dataclass(slots=True)
class Learned:
    """What a node's own rows of the metrics say so far.

    Attributes:
        rounds_done: rounds with a row.
        start: held-out accuracy before training.
        num_exams: examinations so far.
        held_out: at the latest of them.
        se: standard error of that.
        own_reward: mean reward of its own completions in the last round.
        dropped_share: share of others' completions that its filter dropped in the last round.
        tokens_sent: completion tokens published so far.
        bytes_sent: bytes published so far.
        tokens_per_s: of its own completions in the last round, by the length of that round.
        rejected: groups that its gate rejected so far, by reason.
        late: groups that came too late so far.
    """

    rounds_done: int = 0
    num_exams: int = 0
    start: float | None = None
    held_out: float | None = None
    se: float | None = None
    own_reward: float | None = None
    dropped_share: float | None = None
    tokens_sent: float = 0.0
    bytes_sent: float = 0.0
    tokens_per_s: float | None = None
    rejected: Counter[str] = field(default_factory=Counter)
    late: int = 0

    def add(self, row: Mapping[str, object]) -> None:
        """Take in one more row."""
        self.rounds_done = max(self.rounds_done, int(number(row.get("round")) or 0) + 1)
        accuracy = number(row.get("accuracy/test"))
        if accuracy is not None:
            self.num_exams += 1
            self.held_out, self.se = accuracy, number(row.get("accuracy/test/se"))
            self.start = accuracy if self.start is None else self.start
        self.own_reward = _latest(row.get("reward/own_mean"), self.own_reward)
        self.dropped_share = _latest(row.get("filter/dropped_share"), self.dropped_share)
        tokens = number(row.get("wire/tokens_sent"))
        if tokens is not None:
            self.tokens_sent += tokens
            self.bytes_sent += number(row.get("wire/bytes_sent")) or 0.0
            seconds = sum(number(row.get(f"time/{phase}_s")) or 0.0 for phase in _PHASES)
            self.tokens_per_s = _tokens_sampled(row, tokens) / seconds if seconds > 0 else None
        self.late += int(number(row.get("admission/late")) or 0)
        for name, value in row.items():
            if name.startswith(_REJECTED):
                self.rejected[name.removeprefix(_REJECTED)] += int(number(value) or 0)


def _tokens_sampled(row: Mapping[str, object], tokens_sent: float) -> float:
    """Also of a round of which nothing was published, as nobody was there."""
    length, sampled, lost = (
        number(row.get(name)) for name in ("completion/length_mean", "own/completions", "own/unscored")
    )
    return tokens_sent if length is None or sampled is None else max(tokens_sent, length * (sampled - (lost or 0.0)))


_PHASES = ("generate", "publish", "wait", "admit", "learn", "evaluate")


class WatchedRun:
    """One run directory.

    Attributes:
        run_dir: the directory.
        config: its settings as plain tables; empty until they can be read.
        learned: per node with a row of metrics.
        events: the latest ones, oldest first.
        statuses: per node that keeps one.
        summary: of a finished run; empty before.
        changed_s: unix time of the last row or event; 0 before.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self.config: Mapping[str, Any] = {}
        self.learned: dict[str, Learned] = {}
        self.events: deque[Mapping[str, Any]] = deque(maxlen=_KEPT_EVENTS)
        self.statuses: dict[str, SwarmStatus] = {}
        self.summary: Mapping[str, Any] = {}
        self.changed_s = 0.0
        self._begun: tuple[float, int] | None = None
        self._metrics = Tail(run_dir.metrics)
        self._events = Tail(run_dir.events)

    def refresh(self) -> None:
        """Look again."""
        self.read_config()
        self._read_metrics()
        self._read_events()
        self.statuses = read_statuses(self.run_dir)
        self.summary = _json(self.run_dir.summary)
        self.changed_s = max(_changed(self.run_dir.metrics), _changed(self.run_dir.events))

    def read_config(self) -> None:
        """Read the settings, once they are there."""
        if not self.config:
            self.config = _toml(self.run_dir.config)

    @property
    def name(self) -> str:
        """Name of the run, as in its run file."""
        return _text(table(self.config.get("run")).get("name")) or self.run_dir.path.name

    @property
    def num_rounds(self) -> int:
        """Rounds of the run file; 0 if it is not known."""
        planned = number(table(self.config.get("run")).get("rounds"))
        return int(planned or max((status.num_rounds for status in self.statuses.values()), default=0))

    @property
    def node_names(self) -> list[str]:
        """The nodes of the run file, then others that left rows or a status here."""
        nodes = self.config.get("node")
        named = [_text(table(node).get("name")) for node in nodes] if isinstance(nodes, list) else []
        return [name for name in dict.fromkeys([*named, *self.learned, *self.statuses]) if name]

    @property
    def rounds_done(self) -> int:
        """Rounds that all of the nodes with rows here have done."""
        return min((learned.rounds_done for learned in self.learned.values()), default=0)

    def seconds_a_round(self) -> float | None:
        """Since the run was started or resumed; None before two rounds."""
        if self._begun is None:
            return None
        since, first_round = self._begun
        done = self.rounds_done - first_round
        return max(0.0, _changed(self.run_dir.metrics) - since) / done if done >= 2 else None

    def _read_metrics(self) -> None:
        anew, rows = self._metrics.read()
        if anew:
            self.learned = {}
        for row in rows:
            name = _text(row.get("node"))
            if name and number(row.get("round")) is not None:
                self.learned.setdefault(name, Learned()).add(row)

    def _read_events(self) -> None:
        anew, rows = self._events.read()
        if anew:
            self.events.clear()
        for row in rows:
            self.events.append(row)
            if row.get("kind") in ("started", "resumed"):
                since = unix_time(row.get("time"))
                self._begun = None if since is None else (since, int(number(row.get("round")) or 0))


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def table(value: object) -> Mapping[str, Any]:
    """A table, or an empty one."""
    return value if isinstance(value, dict) else {}


def unix_time(value: object) -> float | None:
    """Unix time of an ISO date; None if it is none.

    >>> unix_time("2026-11-30T12:00:00+00:00")
    1796040000.0
    """
    try:
        return datetime.fromisoformat(_text(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _latest(value: object, before: float | None) -> float | None:
    found = number(value)
    return before if found is None else found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        return _object(path.read_bytes()) or {}
    except OSError:
        return {}


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
