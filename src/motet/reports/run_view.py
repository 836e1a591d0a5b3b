"""A run directory, read: settings, metrics as series, events and summary, with whatever is missing left out."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from motet.errors import UsageError
from motet.journal import RunDir, read_jsonl
from motet.reports.estimates import Estimate

SPLITS = ("test", "ood")


@dataclass(frozen=True, slots=True)
class Series:
    """A metric of one node over rounds; rounds without a finite value are left out. Round -1 is before training."""

    rounds: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Held-out accuracy before the first round and at the last evaluation; None where it was not measured."""

    start: Estimate | None
    end: Estimate | None


@dataclass(frozen=True, slots=True)
class PeerRow:
    """What a node had from one peer: groups up to the gate, completions after it."""

    peer: str
    received: int
    accepted: int
    rejected: Mapping[str, int]
    late: int
    kept: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a run. Numbers that only a finished run has are None in an interrupted one."""

    name: str
    model: str
    num_parameters: int | None
    series: Mapping[str, Series]
    accuracy: Mapping[str, BeforeAfter]
    completions_generated: float | None
    tokens_sent: float | None
    bytes_sent: float | None
    bytes_per_token: float | None
    ledger: tuple[PeerRow, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the journal's events."""

    kind: str
    round: int | None
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole run.

    Attributes:
        path: its directory.
        name: as in the run file.
        method: name of the method, such as "f_tis".
        seed: seed of the run.
        rounds_done: rounds with metrics.
        rounds_planned: rounds of the run file; None without one.
        is_finished: False if the run left no summary.
        seconds: wall time of a finished run.
        nodes: in the order of the run file.
        settings: dotted key -> value as text, such as "method.cap" -> "2.0" and "node.small.model" -> "tiny:small".
        provenance: versions, platform and start as text.
        events: in order.
    """

    path: Path
    name: str
    method: str
    seed: int
    rounds_done: int
    rounds_planned: int | None
    is_finished: bool
    seconds: float | None
    nodes: tuple[NodeView, ...]
    settings: Mapping[str, str]
    provenance: Mapping[str, str]
    events: tuple[Event, ...]

    def node(self, name: str) -> NodeView | None:
        """The node of this name, if it took part."""
        return next((node for node in self.nodes if node.name == name), None)


def read_run(path: Path) -> RunView:
    """Reads a run directory, finished or not.

    Raises:
        UsageError: E-RUN-02, not a run directory; E-REPORT-01, a run without a row of metrics; E-REPORT-02, a file
            of it that cannot be parsed.
        RunFailed: E-JOURNAL-01, a damaged line of the journal.
    """
    run_dir = RunDir.open(path)
    rows = [row for row in read_jsonl(run_dir.metrics) if isinstance(row.get("round"), int)]
    if not rows:
        raise UsageError(
            f"{path}: nothing to report yet, the run has written no metrics; wait for its first round",
            code="E-REPORT-01",
        )
    config = _toml(run_dir.config)
    info = _json(run_dir.info)
    summary = _json(run_dir.summary)
    run_table = _table(config.get("run"))
    planned = _number(run_table.get("rounds"))
    return RunView(
        path=path,
        name=_text(run_table.get("name")) or _text(summary.get("run")) or path.name,
        method=_text(_table(config.get("method")).get("name")) or _text(summary.get("method")) or "unknown",
        seed=int(_first_number(run_table.get("seed"), summary.get("seed"), info.get("seed")) or 0),
        rounds_done=max(int(row["round"]) for row in rows) + 1,
        rounds_planned=None if planned is None else int(planned),
        is_finished=bool(summary),
        seconds=_number(summary.get("seconds")),
        nodes=_nodes(rows, config, _table(summary.get("nodes"))),
        settings=_flattened(config),
        provenance={key: _shown(value) for key, value in info.items() if not isinstance(value, dict | list)},
        events=tuple(_event(row) for row in read_jsonl(run_dir.events)),
    )


def _nodes(
    rows: Iterable[Mapping[str, object]], config: Mapping[str, object], summary: Mapping[str, object]
) -> tuple[NodeView, ...]:
    models = {_text(table.get("name")): _text(table.get("model")) for table in _tables(config.get("node"))}
    by_node: dict[str, list[Mapping[str, object]]] = {name: [] for name in models}
    for row in rows:
        by_node.setdefault(_text(row.get("node")), []).append(row)
    return tuple(
        _node(name, models.get(name, ""), own_rows, _table(summary.get(name)))
        for name, own_rows in by_node.items()
        if own_rows
    )


def _node(name: str, model: str, rows: Iterable[Mapping[str, object]], summary: Mapping[str, object]) -> NodeView:
    series = _series(rows)
    parameters = _number(summary.get("parameters"))
    bytes_sent = _first_number(summary.get("bytes_sent"), _total(series, "wire/bytes_sent"))
    tokens_sent = _first_number(summary.get("tokens_sent"), _total(series, "wire/tokens_sent"))
    measured = _number(summary.get("bytes_per_token"))
    if measured is None and bytes_sent and tokens_sent:
        measured = bytes_sent / tokens_sent
    return NodeView(
        name=name,
        model=model or _text(summary.get("model")),
        num_parameters=None if parameters is None else int(parameters),
        series=series,
        accuracy=_accuracy(series, _table(summary.get("accuracy"))),
        completions_generated=_number(summary.get("completions_generated")),
        tokens_sent=tokens_sent,
        bytes_sent=bytes_sent,
        bytes_per_token=measured,
        ledger=tuple(_peer(peer, _table(row)) for peer, row in _table(summary.get("ledger")).items()),
    )


def _series(rows: Iterable[Mapping[str, object]]) -> dict[str, Series]:
    """A resumed run may repeat a round: its last row counts."""
    points: dict[str, dict[int, float]] = {}
    for row in rows:
        round = _count(row.get("round"))
        for name, value in row.items():
            number = _number(value)
            if name != "round" and number is not None:
                points.setdefault(name, {})[round] = number
    return {
        name: Series(tuple(sorted(by_round)), tuple(by_round[round] for round in sorted(by_round)))
        for name, by_round in points.items()
    }


def _accuracy(series: Mapping[str, Series], summary: Mapping[str, object]) -> dict[str, BeforeAfter]:
    """From the summary, and where that is silent from the metrics' first and last evaluation."""
    found = {}
    for split in dict.fromkeys([*SPLITS, *summary]):
        reported = _table(summary.get(split))
        start = _estimate(_table(reported.get("start"))) or _evaluated(series, split, before_training=True)
        end = _estimate(_table(reported.get("end"))) or _evaluated(series, split, before_training=False)
        if start is not None or end is not None:
            found[split] = BeforeAfter(start, end)
    return found


def _evaluated(series: Mapping[str, Series], split: str, *, before_training: bool) -> Estimate | None:
    values = series.get(f"accuracy/{split}")
    errors = series.get(f"accuracy/{split}/se")
    if values is None or (values.rounds[0] >= 0 if before_training else values.rounds[-1] < 0):
        return None
    position = 0 if before_training else -1
    by_round = dict(zip(errors.rounds, errors.values, strict=True)) if errors else {}
    return Estimate(values.values[position], by_round.get(values.rounds[position]))


def _estimate(table: Mapping[str, object]) -> Estimate | None:
    value, n = _number(table.get("value")), _number(table.get("n"))
    return None if value is None else Estimate(value, _number(table.get("se")), n=None if n is None else int(n))


def _total(series: Mapping[str, Series], name: str) -> float | None:
    return math.fsum(series[name].values) if name in series else None


def _peer(peer: str, row: Mapping[str, object]) -> PeerRow:
    return PeerRow(
        peer=peer,
        received=_count(row.get("received")),
        accepted=_count(row.get("accepted")),
        rejected={reason: _count(number) for reason, number in _table(row.get("rejected")).items()},
        late=_count(row.get("late")),
        kept=_count(row.get("kept")),
        dropped={reason: _count(number) for reason, number in _table(row.get("dropped")).items()},
    )


def _event(row: Mapping[str, object]) -> Event:
    round = _number(row.get("round"))
    return Event(
        kind=_text(row.get("kind")),
        round=None if round is None else int(round),
        node=_text(row.get("node")),
        text=_text(row.get("text")),
    )


def _flattened(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Dotted keys; tables in a list are told apart by their name.

    >>> _flattened({"method": {"cap": 2.0}, "node": [{"name": "small", "model": "tiny:small"}]})
    {'method.cap': '2.0', 'node.small.name': 'small', 'node.small.model': 'tiny:small'}
    """
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for position, item in enumerate(value):
                flat |= _flattened(item, f"{prefix}{key}.{item.get('name', position)}.")
        else:
            flat[f"{prefix}{key}"] = _shown(value)
    return flat


def _toml(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error


def _json(path: Path) -> Mapping[str, object]:
    try:
        return _table(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> UsageError:
    return UsageError(f"{path}: damaged, it cannot be parsed; restore it from a copy", code="E-REPORT-02")


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[Mapping[str, object]]:
    return [_table(item) for item in value] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _number(value: object) -> float | None:
    """A finite number; anything else, and a boolean, is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or value != value:
        return None
    return float(value)


def _first_number(*values: object) -> float | None:
    return next((number for value in values if (number := _number(value)) is not None), None)


def _count(value: object) -> int:
    return int(_number(value) or 0)
