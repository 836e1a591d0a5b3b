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


def test_every_node_of_a_finished_run(finished: Finished, tmp_path: Path) -> None:
    place, _ = finished()
    results, ended = measured(place, tmp_path / "out.json", "runs/r", "--num-prompts", "5")
    assert [(result["model"], result["split"]) for result in results] == [("small", "test"), ("large", "test")]
    for result in results:
        assert set(result) == {"model", "split", "value", "se", "num_prompts", "cut_share"}
        assert result["num_prompts"] == 5
        assert 0 <= result["value"] <= 1
    title, *lines = ended.stdout.splitlines()
    assert title.split() == ["model", "split", "%", "right", "prompts", "cut"]
    shown = [f"{100 * result['value']:.1f} +- {100 * result['se']:.1f}" for result in results]
    assert [value in line for value, line in zip(shown, lines, strict=True)] == [True, True]


def test_one_node_at_one_checkpoint_greedily_on_a_chosen_split(finished: Finished, tmp_path: Path) -> None:
    place, _ = finished()
    arguments = ["--node", "large", "--split", "train", "--greedy", "--num-prompts", "6"]
    at_3, _ = measured(place, tmp_path / "a.json", "runs/r/checkpoints/round_3", *arguments)
    again, _ = measured(place, tmp_path / "b.json", "runs/r/checkpoints/round_3/", *arguments, "--seed", "9")
    assert [(result["model"], result["split"], result["num_prompts"]) for result in at_3] == [("large", "train", 6)]
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


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tiny:smal"], "E-MODEL-01", 'did you mean "tiny:small"?'),
        (["results"], "E-MODEL-02", "the folder has no config.json"),
        (["runs"], "E-RUN-02", "holds runs but is none itself; did you mean runs/r?"),
        (["runs/r/checkpoints/round_2"], "E-RUN-05", "runs/r/checkpoints/round_2: no checkpoint there"),
        (["runs/r", "--node", "lagre"], "E-CLI-02", "--node lagre: runs/r has no such node; it has small, large"),
        (["runs/r", "--task", "sums.jsonl"], "E-CLI-02", "--task: a run has its own task"),
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
