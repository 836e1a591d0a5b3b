"""A run's metrics in TensorBoard, trackio, wandb or mlflow, through the tracker classes of accelerate.

What is sent are the rows of the journal, which stays complete without any of this: a tracker that fails is given up
with one line in the run's events, and the run goes on. Nobody is ever asked for an account.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, cast

from motet.errors import EnvironmentFault
from motet.journal import JsonLinesWriter, RunDir, write_json

_PACKAGES: Final[Mapping[str, str]] = {
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
"""Name in a run file -> module that must be installed."""

_LONGEST_WARNING = 300


class _Tracker(Protocol):
    """What is used of accelerate's trackers."""

    def start(self) -> None: ...

    def store_init_configuration(self, values: dict[str, Any]) -> None: ...

    def log(self, values: dict[str, Any], step: int | None = None) -> None: ...

    def finish(self) -> None: ...


class Trackers:
    """Sends every round to trackers when all nodes have done it. Implements `motet.simulation.Observer`.

    Each node has its series, "<node>/<metric>". The step is the number of rounds done, so the examination before
    training is step 0. Rounds are sent in order, whoever is faster: wandb drops what comes late. Close it at the end.

    Args:
        names: of the trackers.
        run_dir: the run's directory; need not exist before `started`.
        run_name: under which name the run appears.
        config: the settings, as nested tables.
    """

    def __init__(self, names: Sequence[str], run_dir: RunDir, run_name: str, config: Mapping[str, object]) -> None:
        self._names = names
        self._dir = run_dir
        self._run_name = run_name
        self._config = config
        self._open: dict[str, _Tracker] = {}
        self._num_nodes = 0
        self._waiting: dict[int, dict[str, float]] = {}
        self._rows: Counter[int] = Counter()

    def started(self, *, nodes: Sequence[str], first_round: int, num_rounds: int) -> None:
        """Open the trackers; a run that goes on continues what it had begun there."""
        del num_rounds
        self._num_nodes = len(nodes)
        ids = self._read_ids() if first_round else {}
        for name in self._names:
            with self._failing_softly(name):
                tracker = _make(name, self._dir, self._run_name, ids.get(name))
                tracker.start()
                self._open[name] = tracker
                if not first_round:
                    tracker.store_init_configuration(_flat(self._config))
        new_ids = {name: found for name, tracker in self._open.items() if (found := _id_of(name, tracker)) is not None}
        if new_ids:
            write_json(self._dir.trackers, {**ids, **new_ids})

    def phase(self, node: str, phase: str, *, round: int, waiting_for: Sequence[str]) -> None:
        """Nothing is sent."""

    def evaluating(self, node: str, *, round: int) -> None:
        """Nothing is sent."""

    def happened(self, node: str, event: object) -> None:
        """Nothing is sent."""

    def round_done(self, row: Mapping[str, object]) -> None:
        """Keep the numbers of a row, and send those of its round if it is the last one."""
        node, round = str(row["node"]), cast(int, row["round"])
        values = self._waiting.setdefault(round, {})
        for name, value in row.items():
            if name != "round" and isinstance(value, int | float) and math.isfinite(value):
                values[f"{node}/{name}"] = value
        self._rows[round] += 1
        if self._rows[round] == self._num_nodes:
            self._send(round)

    def close(self) -> None:
        """Send what has no full round, and finish; calling it twice is harmless."""
        for round in sorted(self._waiting):
            self._send(round)
        for name in list(self._open):
            with self._failing_softly(name):
                self._open.pop(name).finish()

    def __enter__(self) -> Trackers:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close them."""
        self.close()

    def _send(self, round: int) -> None:
        values = self._waiting.pop(round)
        for name in list(self._open):
            with self._failing_softly(name):
                self._open[name].log(values, step=round + 1)

    @contextmanager
    def _failing_softly(self, name: str) -> Iterator[None]:
        """Whatever a tracker raises costs that tracker, and a line in the events."""
        try:
            with _hushed():
                yield
        except Exception as error:  # noqa: BLE001 - packages of others, over networks of others: anything may come
            failed = self._open.pop(name, None)
            if failed is not None:
                with suppress(Exception):
                    failed.finish()
            words = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_WARNING]
            with JsonLinesWriter(self._dir.events) as events:
                now = datetime.now(UTC).isoformat(timespec="seconds")
                text = f"tracker {name} failed and gets no more: {words}"
                events.write({"time": now, "kind": "warning", "text": text})

    def _read_ids(self) -> dict[str, str]:
        try:
            found = json.loads(self._dir.trackers.read_bytes())
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def make_trackers(names: Sequence[str], run_dir: Path, run_name: str, config: Mapping[str, object]) -> Trackers:
    """Trackers for a run, opened when it begins.

    Args:
        names: of run.trackers: "tensorboard", "trackio", "wandb", "mlflow".
        run_dir: the run's directory, made or not.
        run_name: name of the run.
        config: the settings, as nested tables.

    Raises:
        EnvironmentFault: E-TRACK-01, a package is missing.
    """
    for name in names:
        for package in ("accelerate", _PACKAGES[name]):
            if find_spec(package) is None:
                raise EnvironmentFault(
                    f'run.trackers: "{name}" needs the package {package}; install it with: '
                    f"pip install 'motet[trackers]'{'' if name == 'tensorboard' else ' ' + _PACKAGES[name]}",
                    code="E-TRACK-01",
                )
    return Trackers(names, RunDir(run_dir), run_name, config)


def _make(name: str, run_dir: RunDir, run_name: str, known_id: str | None) -> _Tracker:
    from accelerate import PartialState, tracking

    PartialState(cpu=True)  # accelerate's logging wants to know which of how many processes this is: the only one
    folder = str(run_dir.path.resolve())
    made: Any
    if name == "tensorboard":
        made = tracking.TensorBoardTracker("tensorboard", logging_dir=folder)  # <run>/tensorboard
    elif name == "wandb":
        if "WANDB_MODE" not in os.environ and not _is_known_to_wandb():
            os.environ["WANDB_MODE"] = "offline"
        os.environ.setdefault("WANDB_SILENT", "true")
        project = os.environ.get("WANDB_PROJECT", "motet")
        made = tracking.WandBTracker(project, name=run_name, dir=folder, id=known_id, resume="allow")
    elif name == "trackio":
        made = tracking.TrackioTracker(os.environ.get("TRACKIO_PROJECT", "motet"), name=run_name, resume="allow")
    else:
        os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        made = tracking.MLflowTracker(experiment_name="motet", run_name=run_name, run_id=known_id)
    return cast(_Tracker, made)


def _is_known_to_wandb() -> bool:
    """True if the user has logged in, by variable or in ~/.netrc; never asks."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return "wandb" in netrc.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _id_of(name: str, tracker: _Tracker) -> str | None:
    """Under which id the tracker would find this run again."""
    inner = getattr(tracker, "tracker", None)
    if name == "wandb":
        return str(inner.id) if inner is not None else None
    return str(inner.info.run_id) if name == "mlflow" and inner is not None else None


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and values that every tracker takes.

    >>> _flat({"run": {"seed": 3}, "node": [{"name": "a", "freeze": ["x"]}]})
    {'run.seed': 3, 'node.a.name': 'a', 'node.a.freeze': "['x']"}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                flat |= _flat(item, f"{prefix}{key}.{item.get('name', number)}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return flat


@contextmanager
def _hushed() -> Iterator[None]:
    """Without the notices of other packages, which would run into our display."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            with redirect_stdout(io.StringIO()):
                yield
        finally:
            logging.disable(before)
