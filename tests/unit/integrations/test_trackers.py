"""Rows of the journal in trackers: TensorBoard for real, failures softly, a missing package at once."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from motet.errors import EnvironmentFault
from motet.integrations import make_trackers, trackers
from motet.journal import RunDir, read_jsonl

CONFIG = {"run": {"seed": 3}, "node": [{"name": "ann", "model": "tiny:small", "freeze": ("x.*",)}]}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "sums", seed=3)


def row(round: int, node: str, **metrics: object) -> dict[str, object]:
    return {"round": round, "node": node, **metrics}


class Noting:
    """A tracker that keeps what it is told, and fails where it is told to."""

    def __init__(self, fails_in: str = "") -> None:
        self.fails_in = fails_in
        self.told: list[tuple[str, object]] = []

    def _note(self, what: str, value: object = None) -> None:
        self.told.append((what, value))
        if what == self.fails_in:
            raise ConnectionError("no route\nto host")

    def start(self) -> None:
        self._note("start")

    def store_init_configuration(self, values: dict[str, object]) -> None:
        self._note("config", values)

    def log(self, values: dict[str, object], step: int | None = None) -> None:
        self._note("log", (step, values))

    def finish(self) -> None:
        self._note("finish")


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> dict[str, Noting]:
    """Trackers by name, instead of accelerate's."""
    made: dict[str, Noting] = {"tensorboard": Noting(), "wandb": Noting()}
    monkeypatch.setattr(trackers, "_make", lambda name, *_: made[name])
    monkeypatch.setattr(trackers, "find_spec", lambda name: name)
    return made


def test_rounds_are_sent_whole_and_in_order(noting: dict[str, Noting], run_dir: RunDir) -> None:
    with make_trackers(["tensorboard"], run_dir.path, "sums", CONFIG) as sent:
        sent.started(nodes=["ann", "bob"], first_round=0, num_rounds=3)
        sent.round_done(row(-1, "ann", a=0.5))
        sent.round_done(row(0, "ann", a=1, none=None, text="x", nan=float("nan")))
        sent.round_done(row(-1, "bob", a=0.25))
        sent.round_done(row(0, "bob", b=2.5))
        sent.round_done(row(1, "bob", b=3.5))
    config = {"run.seed": 3, "node.ann.name": "ann", "node.ann.model": "tiny:small", "node.ann.freeze": "('x.*',)"}
    assert noting["tensorboard"].told == [
        ("start", None),
        ("config", config),
        ("log", (0, {"ann/a": 0.5, "bob/a": 0.25})),
        ("log", (1, {"ann/a": 1, "bob/b": 2.5})),
        ("log", (2, {"bob/b": 3.5})),
        ("finish", None),
    ]
    assert read_jsonl(run_dir.events) == []


def test_a_run_that_goes_on_does_not_repeat_its_settings(noting: dict[str, Noting], run_dir: RunDir) -> None:
    with make_trackers(["tensorboard"], run_dir.path, "sums", CONFIG) as sent:
        sent.started(nodes=["ann"], first_round=2, num_rounds=3)
    assert [what for what, _ in noting["tensorboard"].told] == ["start", "finish"]


@pytest.mark.parametrize("fails_in", ["start", "config", "log", "finish"])
def test_a_tracker_that_fails_costs_one_line_and_nothing_else(
    fails_in: str, noting: dict[str, Noting], run_dir: RunDir
) -> None:
    noting["tensorboard"].fails_in = fails_in
    with make_trackers(["tensorboard", "wandb"], run_dir.path, "sums", CONFIG) as sent:
        sent.started(nodes=["ann"], first_round=0, num_rounds=3)
        for round in range(3):
            sent.round_done(row(round, "ann", a=round))
    (event,) = read_jsonl(run_dir.events)
    assert event["kind"] == "warning"
    assert event["text"] == "tracker tensorboard failed and gets no more: ConnectionError: no route to host"
    assert [value for what, value in noting["wandb"].told if what == "log"] == [
        (round + 1, {"ann/a": round}) for round in range(3)
    ]
    failed = [what for what, _ in noting["tensorboard"].told]
    assert failed.count(fails_in) == 1


@pytest.mark.parametrize(
    ("name", "missing", "command"),
    [
        ("tensorboard", "tensorboard", "pip install 'motet[trackers]'"),
        ("wandb", "wandb", "pip install 'motet[trackers]' wandb"),
        ("mlflow", "accelerate", "pip install 'motet[trackers]' mlflow"),
        ("trackio", "trackio", "pip install 'motet[trackers]' trackio"),
    ],
)
def test_a_missing_package_is_told_before_anything_starts(
    name: str, missing: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda package: None if package == missing else package)
    with pytest.raises(EnvironmentFault) as error:
        make_trackers([name], tmp_path / "none", "sums", CONFIG)
    assert error.value.code == "E-TRACK-01"
    assert str(error.value) == f'run.trackers: "{name}" needs the package {missing}; install it with: {command}'
    assert not (tmp_path / "none").exists()


def needs(*packages: str) -> pytest.MarkDecorator:
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


def play(name: str, run_dir: RunDir, *, first: int, last: int) -> None:
    with make_trackers([name], run_dir.path, "sums", CONFIG) as sent:
        sent.started(nodes=["ann", "bob"], first_round=first, num_rounds=last)
        for round in range(first or -1, last):
            for node in ("ann", "bob"):
                sent.round_done(row(round, node, **{"accuracy/test": 0.5 + round / 8}))
    assert read_jsonl(run_dir.events) == []


@needs("accelerate", "tensorboard")
def test_tensorboard_reads_back_every_series_with_a_resumed_part(run_dir: RunDir) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    play("tensorboard", run_dir, first=0, last=2)
    play("tensorboard", run_dir, first=2, last=4)
    read = EventAccumulator(str(run_dir.path / "tensorboard"))
    read.Reload()
    assert set(read.Tags()["scalars"]) == {"ann/accuracy/test", "bob/accuracy/test"}
    for node in ("ann", "bob"):
        points = [(event.step, event.value) for event in read.Scalars(f"{node}/accuracy/test")]
        assert points == [(round + 1, pytest.approx(0.5 + round / 8)) for round in range(-1, 4)]


@pytest.mark.slow
@needs("accelerate", "wandb")
def test_wandb_stays_offline_and_continues_its_run(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", str(run_dir.path / "none"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    play("wandb", run_dir, first=0, last=2)
    ids = json.loads(run_dir.trackers.read_text())
    play("wandb", run_dir, first=2, last=3)
    assert json.loads(run_dir.trackers.read_text()) == ids
    folders = list((run_dir.path / "wandb").glob(f"offline-run-*-{ids['wandb']}"))
    assert folders


@pytest.mark.slow
@needs("accelerate", "mlflow")
def test_mlflow_continues_its_run(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    play("mlflow", run_dir, first=0, last=2)
    play("mlflow", run_dir, first=2, last=3)
    client = mlflow.MlflowClient(f"sqlite:///{run_dir.path}/mlflow.db")
    run_id = json.loads(run_dir.trackers.read_text())["mlflow"]
    history = client.get_metric_history(run_id, "ann/accuracy/test")
    assert [(point.step, point.value) for point in history] == [(round + 1, 0.5 + round / 8) for round in range(-1, 3)]


@pytest.mark.slow
@needs("accelerate", "trackio")
def test_trackio_takes_every_round(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_PROJECT", "motet-test")
    play("trackio", run_dir, first=0, last=2)
