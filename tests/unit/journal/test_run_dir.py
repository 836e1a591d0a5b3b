from __future__ import annotations

import json
import platform
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from motet.errors import UsageError
from motet.journal import JOURNAL_VERSION, RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "runs" / "sums", seed=7)


def code_of(error: pytest.ExceptionInfo[UsageError]) -> str:
    return error.value.code


def test_the_layout_is_what_other_tools_rely_on(run: RunDir) -> None:
    paths = {
        "config.toml": run.config,
        "run.json": run.info,
        "metrics.jsonl": run.metrics,
        "events.jsonl": run.events,
        "summary.json": run.summary,
        "report.html": run.report_html,
        "report.png": run.report_png,
        "completions/kim.jsonl": run.completions("kim"),
        "archive/kim.motet": run.archive("kim"),
        "checkpoints/round_25": run.checkpoint(25),
    }
    assert {str(path.relative_to(run.path)) for path in paths.values()} == set(paths)
    assert [str(path.relative_to(run.path)) for path in paths.values()] == list(paths)


def test_run_json_says_what_ran_where(run: RunDir) -> None:
    info = json.loads(run.info.read_text())
    assert info["journal_version"] == JOURNAL_VERSION
    assert info["seed"] == 7
    assert info["python"] == platform.python_version()
    assert set(info) >= {"motet", "torch", "transformers", "numpy", "platform", "num_cpus"}
    assert datetime.fromisoformat(info["started_at"]).utcoffset() == timedelta(0)


def test_create_then_open(run: RunDir) -> None:
    assert RunDir.open(run.path) == run
    assert run.checkpoints_dir.is_dir()


def test_create_takes_an_empty_folder(tmp_path: Path) -> None:
    assert RunDir.create(tmp_path, seed=0).info.is_file()


def test_create_refuses_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not the directory of a run") as error:
        RunDir.create(tmp_path, seed=0)
    assert code_of(error) == "E-RUN-01"
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_create_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "sums").touch()
    with pytest.raises(UsageError) as error:
        RunDir.create(tmp_path / "sums", seed=0)
    assert code_of(error) == "E-RUN-01"


def test_create_refuses_an_existing_run(run: RunDir) -> None:
    before = run.info.read_bytes()
    with pytest.raises(UsageError, match="holds a run already") as error:
        RunDir.create(run.path, seed=8)
    assert code_of(error) == "E-RUN-03"
    assert run.info.read_bytes() == before


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        RunDir.open(path)
    assert code_of(error) == "E-RUN-02"
    assert "\n" not in str(error.value)
    return str(error.value)


def test_open_says_why_not(run: RunDir, tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")
    assert "not the directory of a run" in refusal(run.checkpoints_dir)
    assert "a file" in refusal(run.info)


def test_open_names_the_runs_inside(run: RunDir) -> None:
    assert f"did you mean {run.path}?" in refusal(run.path.parent)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"journal_version": "new"}', "[" * 100_000], ids=[f"case{number}" for number in range(5)]
)
def test_open_refuses_a_damaged_run_json(run: RunDir, text: str) -> None:
    run.info.write_text(text)
    assert "damaged" in refusal(run.path)


def test_open_refuses_a_newer_run(run: RunDir) -> None:
    run.info.write_text(json.dumps({"journal_version": JOURNAL_VERSION + 1}))
    assert "update motet" in refusal(run.path)


def test_no_checkpoint_yet(run: RunDir, tmp_path: Path) -> None:
    assert run.latest_checkpoint() is None
    assert RunDir(tmp_path / "nowhere").latest_checkpoint() is None


def test_the_latest_checkpoint_is_the_highest_complete_one(run: RunDir) -> None:
    for round in (9, 100, 25):
        with run.writing_checkpoint(round) as folder:
            (folder / "kim").mkdir()
            (folder / "kim" / "weights").write_text(str(round))
    for name in (".round_200.partial", "round_300.partial", "round_0400", "round_x", "notes"):
        (run.checkpoints_dir / name).mkdir()
    (run.checkpoints_dir / "round_500").touch()
    assert run.checkpoint_rounds() == [9, 25, 100]
    latest = run.latest_checkpoint()
    assert latest == run.checkpoint(100)
    assert (latest / "kim" / "weights").read_text() == "100"


def test_a_checkpoint_does_not_exist_until_it_is_complete(run: RunDir) -> None:
    with run.writing_checkpoint(3) as folder:
        (folder / "weights").write_text("x")
        assert folder.name == ".round_3.partial"
        assert run.latest_checkpoint() is None
    assert run.latest_checkpoint() == run.checkpoint(3)
    assert [entry.name for entry in run.checkpoints_dir.iterdir()] == ["round_3"]


def test_a_checkpoint_that_fails_leaves_the_former_one(run: RunDir) -> None:
    with run.writing_checkpoint(3) as folder:
        (folder / "weights").write_text("first")

    def fail() -> None:
        with run.writing_checkpoint(3) as folder:
            (folder / "weights").write_text("sec")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (run.checkpoint(3) / "weights").read_text() == "first"
    assert [entry.name for entry in run.checkpoints_dir.iterdir()] == ["round_3"]


def test_a_checkpoint_replaces_one_of_the_same_round_and_leftovers(run: RunDir) -> None:
    leftover = run.checkpoints_dir / ".round_3.partial"
    leftover.mkdir()
    (leftover / "old").touch()
    for text in ("first", "second"):
        with run.writing_checkpoint(3) as folder:
            (folder / text).touch()
    assert [entry.name for entry in run.checkpoint(3).iterdir()] == ["second"]
    assert [entry.name for entry in run.checkpoints_dir.iterdir()] == ["round_3"]


def with_checkpoints(run: RunDir, *rounds: int) -> RunDir:
    for round in rounds:
        run.checkpoint(round).mkdir()
    return run


def test_pruning_spares_the_latest_and_the_best(run: RunDir) -> None:
    with_checkpoints(run, 1, 2, 3, 10).prune_checkpoints(keep=2, best=1)
    assert run.checkpoint_rounds() == [1, 3, 10]
    run.prune_checkpoints(keep=1, best=10)
    assert run.checkpoint_rounds() == [10]


def test_the_best_is_the_one_noted_last(run: RunDir) -> None:
    assert run.best_checkpoint() is None
    with_checkpoints(run, 1, 2)
    run.note_best(1, accuracy=0.5)
    run.note_best(2, accuracy=0.6)
    assert run.best_checkpoint() == run.checkpoint(2)
    assert json.loads(run.best.read_text()) == {"round": 2, "accuracy": 0.6}


def test_a_best_that_is_gone_is_none(run: RunDir) -> None:
    run.note_best(7, accuracy=0.5)
    assert run.best_checkpoint() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"round": "x"}'])
def test_a_damaged_note_of_the_best(run: RunDir, text: str) -> None:
    run.best.write_text(text)
    with pytest.raises(UsageError, match="damaged") as error:
        run.best_checkpoint()
    assert code_of(error) == "E-RUN-02"
