"""`motet choose` as a user meets it: a run that is worse, one that is the same, and what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended, Place

SUMS = """
run = { name = "NAME", rounds = 1, checkpoint_every = 1 }
task = { name = "running_sums", terms = [3, 4], ood_terms = [5] }
rollout = { prompts_per_round = 4, group_size = 4, max_new_tokens = 24 }
learner = { learning_rate = RATE }
evaluation = { every = 0, num_prompts = 4, final_num_prompts = 4 }
node = [{ name = "large", model = "tiny:large" }, { name = "small", model = "tiny:small" }]
"""


@pytest.fixture(scope="module")
def runs(place_in: Callable[[Path], Place], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One run that learns next to nothing, and one that is ruined by its learning rate."""
    place = place_in(tmp_path_factory.mktemp("choose"))
    for name, rate in (("calm", "1e-8"), ("ruined", "0.3")):
        (place.path / "run.toml").write_text(SUMS.replace("NAME", name).replace("RATE", rate), encoding="utf-8")
        ended: Ended = place.motet("swarm", "run.toml")
        assert ended.code == 0, ended.stderr
    return place


@pytest.mark.slow
def test_a_better_run_takes_the_place_of_the_reference(runs: Place) -> None:
    ended = runs.motet(
        "choose", "runs/ruined", "runs/calm", "--node", "large", "--num-prompts", "200", "--json", "choice.json"
    )
    assert ended.code == 0, ended.stderr
    assert (
        ended.stdout.splitlines()[-1]
        == "take runs/calm (node large): it did better, and is with 95 % confidence nowhere worse by 2 points"
    )
    assert "no worse" in ended.stdout
    reference, other = json.loads((runs.path / "choice.json").read_text(encoding="utf-8"))
    assert (reference["taken"], other["taken"], other["no_worse"]) == (False, True, True)
    assert set(other["difference"]) == {"test", "ood"}
    assert other["difference"]["test"]["value"] == pytest.approx(
        other["accuracy"]["test"]["value"] - reference["accuracy"]["test"]["value"]
    )
    assert other["accuracy"]["test"]["num_prompts"] == 200


@pytest.mark.slow
def test_a_worse_run_does_not(runs: Place) -> None:
    ended = runs.motet("choose", "runs/calm", "runs/ruined", "--node", "small", "--num-prompts", "100", "--greedy")
    assert ended.code == 0, ended.stderr
    assert "may be worse" in ended.stdout
    last = ended.stdout.splitlines()[-1]
    assert last == "take runs/calm (node small): no other did better and is shown to be no worse"


@pytest.mark.slow
def test_mistakes(runs: Place) -> None:
    for arguments, says in (
        (["runs/calm", "runs/ruined"], "--node: runs/calm has several nodes; name one of large, small"),
        (["runs/calm", "runs/ruined", "--node", "big"], "--node big: runs/calm has no such node; it has large, small"),
        (["runs/calm", "runs/none", "--node", "small"], "runs/none"),
        (
            ["runs/calm", "runs/ruined", "--node", "small", "--margin", "-1"],
            "got -1; allowed: points of accuracy above 0",
        ),
    ):
        ended = runs.motet("choose", *arguments)
        assert ended.code == 2
        assert says in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_runs_of_different_tasks_are_refused(runs: Place) -> None:
    text = SUMS.replace("NAME", "other").replace("RATE", "1e-4").replace("[3, 4]", "[3]")
    (runs.path / "run.toml").write_text(text, encoding="utf-8")
    assert runs.motet("swarm", "run.toml").code == 0
    ended = runs.motet("choose", "runs/calm", "runs/other", "--node", "small")
    assert ended.code == 2
    assert "runs/other: its task is not that of runs/calm" in ended.error
