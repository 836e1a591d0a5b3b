"""`motet eval` as a user meets it: of a run, a checkpoint, a model, and of what is none of these."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Ended, Place

pytestmark = pytest.mark.slow
Finished = Callable[[], tuple["Place", "Ended"]]


def measured(place: Place, out: Path, *arguments: str) -> tuple[list[dict[str, Any]], Ended]:
    ended = place.motet("eval", *arguments, "--json", out)
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    return json.loads(out.read_text(encoding="utf-8")), ended


KEYS = {
    *("model", "task", "split", "measure", "temperature", "num_completions"),
    *("value", "se", "num_prompts", "low", "high", "interval"),
    *("pass_at", "reward", "outcomes", "cut_share"),
}


def test_every_node_of_a_finished_run(finished: Finished, tmp_path: Path) -> None:
    place, _ = finished()
    results, ended = measured(place, tmp_path / "out.json", "runs/r", "--num-prompts", "5")
    assert [(result["model"], result["split"]) for result in results] == [("small", "test"), ("large", "test")]
    for result in results:
        assert set(result) == KEYS
        assert (result["num_prompts"], result["measure"], result["interval"]) == (5, "sampled", "wilson")
        assert 0 <= result["low"] <= result["value"] <= result["high"] <= 1
        assert sum(result["outcomes"].values()) == pytest.approx(1)
    title, *lines = ended.stdout.splitlines()[:3]
    assert title.split() == ["model", "prompts", "measure", "%", "right", "95", "%", "n", "wrong", "format", "cut"]
    shown = [f"{100 * result['value']:.1f}" for result in results]
    assert [line.split()[3] for line in lines] == shown
    assert all(len(line) <= 80 for line in ended.stdout.splitlines())


def test_one_node_at_one_checkpoint_greedily_on_a_chosen_split(finished: Finished, tmp_path: Path) -> None:
    place, _ = finished()
    arguments = ["--node", "large", "--split", "train", "--greedy", "--num-prompts", "6"]
    at_3, _ = measured(place, tmp_path / "a.json", "runs/r/checkpoints/round_3", *arguments)
    again, _ = measured(place, tmp_path / "b.json", "runs/r/checkpoints/round_3/", *arguments, "--seed", "9")
    assert [(result["model"], result["split"], result["num_prompts"]) for result in at_3] == [("large", "train", 6)]
    assert at_3[0]["measure"] == "greedy"
    assert again == at_3  # greedy: nothing is drawn


def test_a_tiny_model_and_its_folder_on_the_built_in_task(place: Place, tmp_path: Path) -> None:
    from motet.models import tiny_path

    results, _ = measured(place, tmp_path / "new/out.json", "tiny:small", "--num-prompts", "64")
    by_split = {result["split"]: result for result in results}
    assert set(by_split) == {"test", "ood"}
    assert 0.1 < by_split["test"]["value"] < 0.9  # pre-trained to be right in about a third
    assert by_split["ood"]["num_prompts"] == 64
    folder = str(tiny_path("tiny:small"))
    of_folder, _ = measured(place, tmp_path / "b.json", folder, "--num-prompts", "64", "--task", "running_sums")
    assert of_folder == [{**result, "model": folder} for result in results]


def test_greedy_and_pass_at_k_on_several_tasks_with_every_completion_kept(place: Place, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    arguments = ["--task", "running_sums", "--task", "sums.jsonl", "--split", "test", "--num-prompts", "8"]
    ways = ["--greedy", "--samples", "4", "--k", "2", "--k", "4", "--max-new-tokens", "12", "--save", kept]
    results, ended = measured(place, tmp_path / "out.json", "tiny:small", *arguments, *ways, "--show-failures", "1")
    assert [(result["task"], result["measure"], result["num_completions"]) for result in results] == [
        (task, *way) for task in ("running_sums", "sums") for way in (("greedy", 1), ("sampled", 4))
    ]
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 2 * (8 + 32)
    for result in results:
        own = [row for row in rows if (row["task"], row["temperature"]) == (result["task"], result["temperature"])]
        solved = [row["outcome"] == "solved" for row in own]
        assert len(own) == 8 * result["num_completions"]
        assert result["value"] == pytest.approx(sum(solved) / len(own))
        assert result["outcomes"]["solved"] == result["value"]
        assert result["cut_share"] == sum(row["is_cut"] for row in own) / len(own)
    sampled = results[1]
    assert list(sampled["pass_at"]) == ["1", "2", "4"]
    values = [sampled["pass_at"][k]["value"] for k in ("1", "2", "4")]
    assert values == sorted(values)
    groups = [rows[start : start + 4] for start in range(8, 40, 4)]
    assert values[2] == sum(any(row["outcome"] == "solved" for row in group) for group in groups) / 8
    assert "--- tiny:small, running_sums test/" in ended.stdout
    assert "expected   " in ended.stdout
    again, _ = measured(place, tmp_path / "again.json", "tiny:small", *arguments, *ways)
    assert again == results
    assert len(kept.read_text(encoding="utf-8").splitlines()) == len(rows), "an earlier file is replaced"


def test_another_task_for_a_run_and_changed_settings(finished: Finished, tmp_path: Path) -> None:
    place, _ = finished()
    arguments = ["runs/r", "--node", "small", "--task", "running_sums", "--split", "test", "--num-prompts", "4"]
    results, _ = measured(place, tmp_path / "a.json", *arguments, "--set", "task.terms=[3]", "--temperature", "0.5")
    assert [(result["task"], result["temperature"]) for result in results] == [("running_sums", 0.5)]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tiny:smal"], "E-MODEL-01", 'did you mean "tiny:small"?'),
        (["results"], "E-MODEL-02", "the folder has no config.json"),
        (["runs"], "E-RUN-02", "holds runs but is none itself; did you mean runs/r?"),
        (
            ["runs/r/checkpoints/round_2"],
            "E-RUN-05",
            "runs/r/checkpoints/round_2: no checkpoint there; the run has round_3, round_4",
        ),
        (["runs/r", "--node", "lagre"], "E-CLI-02", "--node lagre: runs/r has no such node; it has small, large"),
        (["runs/r", "--best"], "E-RUN-05", "no best checkpoint; run.keep_best = true keeps one"),
        (["tiny:small", "--best"], "E-CLI-02", "--best: tiny:small is not the directory of a run"),
        (["tiny:small", "--k", "4", "--samples", "2"], "E-CLI-02", "--k 4: needs --samples 4 or more"),
        (["tiny:small", "--temperature", "0"], "E-CLI-02", "a number above 0 (--greedy is 0)"),
        (["tiny:small", "--set", "task.trems=[3]"], "E-CONFIG-03", "task.trems"),
        (["tiny:small", "--set", "trems=[3]"], "E-CONFIG-04", "write it as section.key=value"),
        (["tiny:small", "--node", "small"], "E-CLI-02", "--node: tiny:small is not the directory of a run"),
        (["tiny:small", "--task", "sum.jsonl"], "E-TASK-02", "did you mean sums.jsonl?"),
        (["runs/r", "--split", "ood"], "E-CLI-02", "--split ood: task 'sums' has no such prompts"),
        (["runs/r", "--split", "tset"], "E-CLI-02", "invalid choice: 'tset'"),
        (["runs/r", "--num-prompts", "0"], "E-CLI-02", "got 0; allowed: a whole number from 1 up"),
        (["runs/r", "--json", "runs"], "E-CLI-02", "argument --json: runs is a folder"),
        ([], "E-CLI-02", "TARGET"),
    ],
)
def test_a_wrong_target_costs_one_line(finished: Finished, arguments: list[str], code: str, says: str) -> None:
    place, _ = finished()
    refused = place.motet("eval", *arguments)
    assert refused.code == 2
    assert refused.stdout == ""
    assert says in refused.error
    assert refused.error.endswith(f"[{code}]")
