"""Rows from the files of a run, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.config import Planned, RunFile, dump_run_file
from motet.errors import UsageError
from motet.study import read_rows, rows_from_json, rows_to_json
from motet.study.rows import dotted, has_begun, is_finished, is_outdated, other_settings, run_dir_of

Make = Callable[..., Any]


def planned(folder: Path, **run: Any) -> Planned:
    data = {
        "run": {"name": "seed_3", "dir": str(folder), "seed": 3, "rounds": 2} | run,
        "method": {"name": "f_tis"},
        "node": [{"name": "small", "model": "tiny:small"}],
    }
    return Planned("size", "f_tis", 3, RunFile.model_validate(data))


def examined(round: int, test: float, **others: float) -> dict[str, Any]:
    return {"round": round, "node": "small", "time/evaluate_s": 5.0, "accuracy/test": test, **others}


def write_run(run: Planned, *, splits: tuple[str, ...], metrics: list[dict[str, Any]], shares: bool = True) -> None:
    run_dir = run_dir_of(run)
    run_dir.path.mkdir(parents=True)
    run_dir.info.write_text("{}", encoding="utf-8")
    run_dir.config.write_text(dump_run_file(run.run), encoding="utf-8")
    run_dir.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in metrics), encoding="utf-8")
    ends = {end: {"value": value, "se": 0.01, "n": 512} for end, value in (("start", 0.25), ("end", 0.75))}
    account = {"kept": 20, "dropped": {"advantage": 60, "kl": 10, "influence": 10}}  # the last passed the filter
    facts = {
        "model": "tiny:small",
        "accuracy": dict.fromkeys(splits, ends),
        "completions_generated": 64,
        "optimizer_steps": 2,
        "tokens_sent": 100 if shares else 0,
        "bytes_per_token": 2.5 if shares else None,
        "ledger": {"large": account} if shares else {},
    }
    run_dir.summary.write_text(json.dumps({"seconds": 12.5, "nodes": {"small": facts}}), encoding="utf-8")


WORK = {"time/generate_s": 1.0, "time/publish_s": 0.25, "time/admit_s": 0.25, "time/learn_s": 0.5, "time/wait_s": 9.0}


def test_a_run_with_everything(tmp_path: Path) -> None:
    run = planned(tmp_path)
    metrics = [
        examined(-1, 0.25, **{"accuracy/ood": 0.1}),
        {"round": 0, "node": "small", **WORK},
        examined(1, 0.75, **WORK, **{"accuracy/ood": 0.2}),
    ]
    write_run(run, splits=("test", "ood", "test_greedy", "ood_greedy"), metrics=metrics)
    (row,) = read_rows(run, {"method.name": "f_tis"})
    assert (row.pair, row.arm, row.seed, row.node, row.method) == ("size", "f_tis", 3, "small", "f_tis")
    assert set(row.accuracy) == set(row.start) == {"test", "ood", "test_greedy", "ood_greedy"}
    assert (row.start["test"], row.accuracy["test"], row.num_prompts) == (0.25, 0.75, 512)
    assert row.curve.rounds == (0, 2)
    assert row.curve.seconds == (0.0, 4.0)  # two seconds of work a round; neither waiting nor examinations
    assert row.curve.test == (0.25, 0.75)
    assert row.curve.of("ood") == (0.1, 0.2)
    assert row.node_seconds == 4.0
    assert row.seconds == 12.5
    assert row.kept_share == pytest.approx(0.3)
    assert row.settings == {"method.name": "f_tis"}


def test_a_run_without_ood_greedy_or_peers(tmp_path: Path) -> None:
    run = planned(tmp_path)
    write_run(run, splits=("test",), metrics=[examined(-1, 0.25), examined(1, 0.75)], shares=False)
    (row,) = read_rows(run, {})
    assert set(row.accuracy) == {"test"}
    assert row.curve.ood == ()
    assert row.kept_share is None
    assert row.bytes_per_token is None


def test_finished_is_this_very_run(tmp_path: Path) -> None:
    run = planned(tmp_path)
    assert not is_finished(run)
    assert other_settings(run) == []
    write_run(run, splits=("test",), metrics=[examined(-1, 0.25), examined(1, 0.75)])
    assert is_finished(run)
    assert other_settings(run) == []
    longer = planned(tmp_path, rounds=3)
    assert not is_finished(longer)
    assert other_settings(longer) == ["run.rounds: 2 there, 3 here"]
    run_dir_of(run).summary.unlink()
    assert not is_finished(run)


def test_a_run_from_before_a_setting_existed_counts(tmp_path: Path) -> None:
    run = planned(tmp_path)
    write_run(run, splits=("test",), metrics=[examined(-1, 0.25), examined(1, 0.75)])
    config = run_dir_of(run).config
    text = config.read_text(encoding="utf-8")
    assert "also_greedy = false\n" in text
    config.write_text(text.replace("also_greedy = false\n", ""), encoding="utf-8")
    assert is_finished(run)


def test_a_damaged_config_is_not_finished(tmp_path: Path) -> None:
    run = planned(tmp_path)
    write_run(run, splits=("test",), metrics=[examined(-1, 0.25)])
    run_dir_of(run).config.write_text("[run", encoding="utf-8")
    assert not is_finished(run)


def test_json_there_and_back(tmp_path: Path, row: Make) -> None:
    rows = [row("f_tis", settings={"method.cap": 3.0}, bytes_per_token=2.9, kept_share=0.5), row(ood=None)]
    path = tmp_path / "study.json"
    path.write_bytes(rows_to_json("sums", rows))
    assert rows_from_json(path) == rows
    assert json.loads(path.read_text(encoding="utf-8"))["study"] == "sums"
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4  # one row a line


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1, "study": "s", "rows": [{"pair": "p"}]}', "{"])
def test_a_damaged_file_gets_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"study\.json: cannot be read as the results of a study") as caught:
        rows_from_json(path)
    assert caught.value.code == "E-STUDY-03"
    assert "\n" not in str(caught.value)


def test_another_version_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    with pytest.raises(UsageError, match="cannot be read"):
        rows_from_json(path)
    path.write_text('{"version": 2, "study": "s", "rows": []}', encoding="utf-8")
    with pytest.raises(UsageError, match="version 2; this motet reads version 1"):
        rows_from_json(path)


def test_dotted() -> None:
    assert dotted({"a": {"b": {"c": 1}}, "d": [1]}) == {"a.b.c": 1, "d": [1]}


def test_a_replay_is_finished_after_the_run_that_it_learns_from(tmp_path: Path) -> None:
    live = planned(tmp_path / "live")
    replay = dataclasses.replace(planned(tmp_path / "replay"), archive=run_dir_of(live).path)
    for run in (live, replay):
        write_run(run, splits=("test",), metrics=[])
    sources, ours = run_dir_of(live).summary, run_dir_of(replay).summary
    os.utime(sources, (1000, 1000))
    assert is_finished(replay)
    os.utime(ours, (999, 999))
    assert is_outdated(replay)
    assert not is_finished(replay)
    assert is_finished(live)


def test_a_run_has_begun_with_its_first_checkpoint(tmp_path: Path) -> None:
    run = planned(tmp_path)
    write_run(run, splits=("test",), metrics=[])
    assert has_begun(run)
    run_dir_of(run).summary.unlink()
    assert not has_begun(run)
    (run_dir_of(run).checkpoints_dir / "round_1").mkdir(parents=True)
    assert has_begun(run)
