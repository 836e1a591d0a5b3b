"""Reading run directories, whole, interrupted and odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.errors import RunFailed, UsageError
from motet.journal import JsonLinesWriter, RunDir
from motet.reports import read_run
from motet.reports.estimates import Estimate

WriteRun = Callable[..., Path]


def test_a_finished_run(write_run: WriteRun) -> None:
    run = read_run(write_run("f_tis", seed=3, rounds=20))
    assert (run.name, run.method, run.seed, run.rounds_done, run.rounds_planned) == ("sums", "f_tis", 3, 20, 20)
    assert run.is_finished
    assert run.seconds == 70.2
    assert [node.name for node in run.nodes] == ["small", "large"]
    small = run.nodes[0]
    assert (small.model, small.num_parameters) == ("tiny:small", 75_000)
    assert small.accuracy["test"].start == Estimate(0.30, 0.01, "prompts", 1024)
    assert small.accuracy["test"].end == Estimate(0.43, 0.01, "prompts", 1024)
    assert small.completions_generated == 20 * 128
    assert small.bytes_per_token == 6.1
    assert small.ledger[0].peer == "large"
    assert small.ledger[0].rejected == {"duplicate": 2, "bad_logp": 1}
    assert run.settings["node.large.model"] == "tiny:large"
    assert run.settings["method.kl_limit_nats"] == "50.0"
    assert run.provenance["python"]
    assert [event.kind for event in run.events] == ["started", "peer_left"]


def test_an_interrupted_run_has_the_numbers_of_its_last_evaluation(write_run: WriteRun) -> None:
    run = read_run(write_run("f_tis", is_finished=False))
    assert not run.is_finished
    small = run.nodes[0]
    assert small.accuracy["test"].start == Estimate(pytest.approx(0.30), 0.015)
    assert small.accuracy["test"].end == Estimate(pytest.approx(0.43), 0.015)
    assert small.completions_generated is None
    assert small.tokens_sent == 20 * 1500
    assert small.bytes_per_token == pytest.approx(small.bytes_sent / small.tokens_sent)
    assert small.ledger == ()


def test_one_evaluation_before_training_is_no_end(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=5)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        metrics.write({"round": -1, "node": "a", "accuracy/test": 0.25, "accuracy/test/se": 0.02})
        metrics.write({"round": 0, "node": "a", "reward/mean": 0.5})
    run = read_run(run_dir.path)
    assert run.nodes[0].accuracy["test"].start == Estimate(0.25, 0.02)
    assert run.nodes[0].accuracy["test"].end is None
    assert (run.name, run.method, run.seed, run.rounds_done) == ("run", "unknown", 5, 1)


def test_one_evaluation_after_training_is_no_start(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        metrics.write({"round": 4, "node": "a", "accuracy/test": 0.25})
    accuracy = read_run(run_dir.path).nodes[0].accuracy["test"]
    assert accuracy.start is None
    assert accuracy.end == Estimate(0.25, None)


def test_values_that_are_no_numbers_leave_gaps(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        for round, value in enumerate([0.5, float("nan"), None, "0.5", True, [1.0], 10**400, 0.75]):
            metrics.write({"round": round, "node": "a", "reward/mean": value})
    with run_dir.metrics.open("a") as file:
        file.write(
            '{"round": 8, "node": "a", "reward/mean": NaN}\n{"round": 9, "node": "a", "reward/mean": -Infinity}\n'
        )
    series = read_run(run_dir.path).nodes[0].series["reward/mean"]
    assert series.rounds == (0, 7)
    assert series.values == (0.5, 0.75)


def test_a_repeated_round_counts_once_with_its_last_row(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        for round, value in [(0, 1.0), (1, 2.0), (1, 3.0)]:
            metrics.write({"round": round, "node": "a", "reward/mean": value})
    assert read_run(run_dir.path).nodes[0].series["reward/mean"].values == (1.0, 3.0)


@pytest.mark.parametrize(
    "summary", [{"nodes": []}, {"nodes": {"small": 3}}, {"nodes": {"small": {"accuracy": {"test": None}, "ledger": 1}}}]
)
def test_a_summary_of_another_shape_falls_back_to_the_metrics(write_run: WriteRun, summary: object) -> None:
    path = write_run("f_tis")
    (path / "summary.json").write_text(json.dumps(summary))
    assert read_run(path).nodes[0].accuracy["test"].end == Estimate(pytest.approx(0.43), 0.015)


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_run(tmp_path)
    assert caught.value.code == "E-RUN-02"


def test_a_run_without_metrics(tmp_path: Path) -> None:
    RunDir.create(tmp_path / "run", seed=0)
    with pytest.raises(UsageError, match="nothing to report yet") as caught:
        read_run(tmp_path / "run")
    assert caught.value.code == "E-REPORT-01"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text"),
    [("config.toml", "[run"), ("config.toml", "\ud800"), ("summary.json", "{"), ("summary.json", "[" * 100_000)],
)
def test_a_damaged_file_is_named(write_run: WriteRun, file: str, text: str) -> None:
    path = write_run("f_tis")
    (path / file).write_bytes(text.encode("utf-8", errors="surrogatepass"))
    with pytest.raises(UsageError, match=file) as caught:
        read_run(path)
    assert caught.value.code == "E-REPORT-02"


def test_a_damaged_journal_is_the_journals_error(write_run: WriteRun) -> None:
    path = write_run("f_tis")
    (path / "metrics.jsonl").write_text("no json\n")
    with pytest.raises(RunFailed, match=r"metrics\.jsonl:1") as caught:
        read_run(path)
    assert caught.value.code == "E-JOURNAL-01"
