from __future__ import annotations

import json
from pathlib import Path

from motet.reports import compare, read_run
from motet.reports.html import render_page
from motet.reports.samples import MAX_PROMPTS, before_and_after


def make_run(path: Path, texts: list[dict[str, object]]) -> Path:
    (path / "completions").mkdir(parents=True)
    (path / "run.json").write_text('{"journal_version": 1}')
    (path / "config.toml").write_text('[run]\nname = "r"\n[[node]]\nname = "a"\nmodel = "tiny:small"\n')
    (path / "metrics.jsonl").write_text('{"round": -1, "node": "a", "accuracy/test": 0.5, "accuracy/test/se": 0.1}\n')
    (path / "completions" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    return path


def text_row(round: int, index: int, completion: str, reward: float | None) -> dict[str, object]:
    return {
        "round": round,
        "split": "test",
        "prompt_id": f"test/{index}",
        "prompt": f"{index}+1=",
        "completion": completion,
        "reward": reward,
    }


def test_the_first_and_the_last_answers_stand_beside_each_other(tmp_path: Path) -> None:
    texts = [text_row(-1, 0, "old", 0.0), text_row(4, 0, "middle", 0.0), text_row(9, 0, "new", None)]
    (row,) = before_and_after(read_run(make_run(tmp_path / "r", texts)), "a")
    assert (row.prompt, row.before.text, row.before.reward) == ("0+1=", "old", 0.0)
    assert (row.after.text, row.after.reward) == ("new", None)


def test_one_evaluation_is_no_comparison(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "r", [text_row(-1, 0, "old", 0.0)]))
    assert before_and_after(run, "a") == ()
    assert "before and after" not in render_page(compare([run]))


def test_only_the_first_prompts_are_shown_and_long_texts_are_cut(tmp_path: Path) -> None:
    texts = [text_row(round, index, "x" * 1000, 1.0) for round in (-1, 9) for index in range(MAX_PROMPTS + 3)]
    rows = before_and_after(read_run(make_run(tmp_path / "r", texts)), "a")
    assert len(rows) == MAX_PROMPTS
    assert len(rows[0].after.text) < 300


def test_texts_of_strangers_stay_text(tmp_path: Path) -> None:
    texts = [text_row(-1, 0, "<script>alert(1)</script>", 0.0), text_row(9, 0, "<img src=x onerror=y>", 1.0)]
    page = render_page(compare([read_run(make_run(tmp_path / "r", texts))]))
    assert "before and after" in page
    assert "<script" not in page
    assert "<img src=x" not in page
