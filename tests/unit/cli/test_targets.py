"""From what stands on the command line to settings and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.cli.targets import RunTarget, find_run, nodes_of, settings_of, settings_of_model
from motet.config import RunFile, dump_run_file
from motet.errors import UsageError
from motet.journal import RunDir


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir.create(tmp_path / "runs/r", seed=0)
    node = [{"name": "ann", "model": "tiny:small"}, {"name": "bob", "model": "tiny:large"}]
    run = RunFile.model_validate({"run": {"name": "r"}, "task": {"terms": (4,)}, "node": node})
    run_dir.config.write_text(dump_run_file(run), encoding="utf-8")
    for round in (2, 4, 10):
        run_dir.checkpoint(round).mkdir()
    return run_dir


def test_a_run_and_its_checkpoint_are_found(run_dir: RunDir, tmp_path: Path) -> None:
    assert find_run(str(run_dir.path)) == RunTarget(run_dir, None)
    assert find_run(f"{run_dir.checkpoint(4)}/") == RunTarget(run_dir, run_dir.checkpoint(4))
    assert find_run("tiny:small") is None
    assert find_run(str(run_dir.checkpoints_dir)) is None
    with pytest.raises(UsageError, match="did you mean"):
        find_run(str(tmp_path / "runs"))


def test_which_checkpoint(run_dir: RunDir) -> None:
    target = RunTarget(run_dir, None)
    assert target.folder() == run_dir.checkpoint(10)
    assert target.folder(name="round_4") == target.folder(name="4") == run_dir.checkpoint(4)
    assert RunTarget(run_dir, run_dir.checkpoint(2)).folder() == run_dir.checkpoint(2)
    with pytest.raises(UsageError, match=r"round_5: no checkpoint there; the run has round_2, round_4, round_10"):
        target.folder(name="5")
    with pytest.raises(UsageError, match=r"no best checkpoint; run\.keep_best"):
        target.folder(best=True)
    run_dir.note_best(4, accuracy=0.5)
    assert target.folder(best=True) == run_dir.checkpoint(4)
    for both in ({"name": "4", "best": True}, {"best": True}):
        with pytest.raises(UsageError, match="one checkpoint at a time"):
            RunTarget(run_dir, run_dir.checkpoint(2)).folder(**both)


def test_a_run_without_checkpoints(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "r", seed=0)
    with pytest.raises(UsageError, match="the run has none") as error:
        RunTarget(run_dir, None).folder()
    assert error.value.code == "E-RUN-05"


def test_a_run_has_its_own_task_and_settings(run_dir: RunDir) -> None:
    (own,) = settings_of(run_dir, tasks=[], overrides=[])
    assert (own.task.terms, [node.name for node in own.node]) == ((4,), ["ann", "bob"])
    overrides = ["task.terms=[5]", "rollout.temperature=0.5", "node.bob.device=cpu"]
    (changed,) = settings_of(run_dir, tasks=[], overrides=overrides)
    assert (changed.task.terms, changed.rollout.temperature, changed.node[1].device) == ((5,), 0.5, "cpu")


def test_several_tasks_for_a_run(run_dir: RunDir) -> None:
    own, other = settings_of(run_dir, tasks=["running_sums", "gym:chain_sum"], overrides=[])
    assert own.task.terms == (4,)
    assert (other.task.name, other.task.terms) == ("gym:chain_sum", (3, 4, 5, 6))


def test_arguments_of_a_task() -> None:
    (run,) = settings_of_model(
        "tiny:small",
        tasks=["gym:chain_sum"],
        overrides=["task.arguments.min_terms=2", "task.arguments.max_terms=3"],
        max_new_tokens={},
        otherwise=99,
    )
    assert run.task.arguments == {"min_terms": 2, "max_terms": 3}
    assert run.rollout.max_new_tokens == 99
    assert [(node.name, node.model) for node in run.node] == [("model", "tiny:small")]


@pytest.mark.parametrize(
    ("override", "code", "says"),
    [
        ("task.trems=[3]", "E-CONFIG-03", "task.trems"),
        ("task.terms=[1]", "E-CONFIG-03", "task.terms"),
        ("task", "E-CONFIG-04", "write it as section.key=value"),
        ("node.ann.device=cpu", "E-CONFIG-04", 'no node "ann"'),
    ],
)
def test_wrong_overrides(override: str, code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        settings_of_model("m", tasks=["running_sums"], overrides=[override], max_new_tokens={}, otherwise=9)
    assert error.value.code == code


def test_nodes(run_dir: RunDir) -> None:
    (run,) = settings_of(run_dir, tasks=[], overrides=[])
    assert [node.name for node in nodes_of(run, None, path=run_dir.path)] == ["ann", "bob"]
    assert [node.name for node in nodes_of(run, "bob", path=run_dir.path)] == ["bob"]
    with pytest.raises(UsageError, match="no such node; it has ann, bob"):
        nodes_of(run, "eve", path=run_dir.path)
