"""`motet swarm` as a user meets it: to the end, again, interrupted in every way, and with mistakes."""

from __future__ import annotations

import json
import os
import select
import signal
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from motet.journal import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Ended, Place, Running

pytestmark = pytest.mark.slow
NODES = ("small", "large")
QUICK = ["--set", "evaluation.final_num_prompts=2", "--set", "run.rounds=1"]


def rows(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def without_times(run_dir: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows(run_dir)]


def kinds(run_dir: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in (run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def check_same_end(place: Place, finished: Callable[[], tuple[Place, Ended]]) -> None:
    """The interrupted run has the numbers of the uninterrupted one, and nothing of it is left lying about."""
    whole, _ = finished()
    assert without_times(place.run_dir) == without_times(whole.run_dir)
    for name in NODES:
        weights = f"models/{name}/model.safetensors"
        assert (place.run_dir / weights).read_bytes() == (whole.run_dir / weights).read_bytes()
    assert [entry.name for entry in place.run_dir.parent.iterdir()] == ["r"]


# --- to the end ------------------------------------------------------------------------------------------------------


def test_a_swarm_to_its_end(finished: Callable[[], tuple[Place, Ended]]) -> None:
    _, ended = finished()
    assert ended.code == 0, ended.stderr
    title, *lines = ended.stdout.splitlines()
    assert title.split() == ["node", "model", "%", "right", "before", "after", "generated", "bytes/token"]
    assert [line.split()[:3] for line in lines[:2]] == [
        ["small", "tiny:small", "held-out"],
        ["large", "tiny:large", "held-out"],
    ]
    assert lines[2:] == ["models   runs/r/models", "report   motet report runs/r"]
    said = ended.stderr.splitlines()
    assert said[0] == "run=r state=loading"
    assert said[1] == "run=r state=starting round=0/4 nodes=small,large"
    assert [line.split()[1:3] for line in said[2:]] == [
        [f"round={n}/4", f"node={node}"] for n in range(5) for node in NODES
    ]


def test_the_results_as_json(finished: Callable[[], tuple[Place, Ended]]) -> None:
    place, _ = finished()
    summary = json.loads((place.path / "results/summary.json").read_text(encoding="utf-8"))
    assert summary == json.loads((place.run_dir / "summary.json").read_text(encoding="utf-8"))
    assert (summary["run"], summary["method"], summary["rounds"]) == ("r", "f_tis", 4)
    assert list(summary["nodes"]) == list(NODES)
    for node in summary["nodes"].values():
        assert node["completions_generated"] == 4 * 2 * 4  # rounds, prompts, completions of each
        assert 0 < node["bytes_per_token"] < 16
        for end in ("start", "end"):
            assert node["accuracy"]["test"][end]["n"] == 8
            assert 0 <= node["accuracy"]["test"][end]["value"] <= 1


def test_the_journal_is_whole(finished: Callable[[], tuple[Place, Ended]]) -> None:
    place, _ = finished()
    assert [(row["round"], row["node"]) for row in rows(place.run_dir)] == [
        (n, node) for n in range(-1, 4) for node in NODES
    ]
    assert kinds(place.run_dir) == ["started", "finished"]
    assert sorted(entry.name for entry in (place.run_dir / "checkpoints").iterdir()) == ["round_3", "round_4"]
    for node in NODES:
        assert (place.run_dir / f"completions/{node}.jsonl").stat().st_size > 0
        assert (place.run_dir / f"archive/{node}.motet").stat().st_size > 0
    assert [entry.name for entry in place.run_dir.parent.iterdir()] == ["r"]


def test_the_models_load_in_plain_transformers(finished: Callable[[], tuple[Place, Ended]]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from motet.models import tiny_path

    place, _ = finished()
    for name in NODES:
        folder = place.run_dir / "models" / name
        trained = AutoModelForCausalLM.from_pretrained(folder)
        untrained = AutoModelForCausalLM.from_pretrained(tiny_path(f"tiny:{name}"))
        pairs = list(zip(trained.parameters(), untrained.parameters(), strict=True))
        assert all(after.shape == before.shape for after, before in pairs)
        assert any((after != before).any() for after, before in pairs)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        output = trained.generate(**tokenizer("3+5=", return_tensors="pt"), max_new_tokens=2, do_sample=False)
        assert tokenizer.decode(output[0]).startswith("3+5=")


def test_the_same_command_again_shows_the_result(finished: Callable[[], tuple[Place, Ended]]) -> None:
    place, first = finished()
    before = (place.run_dir / "metrics.jsonl").read_bytes()
    again = place.motet("swarm", "run.toml")
    assert (again.code, again.stdout) == (0, first.stdout)
    assert again.stderr.splitlines() == [
        "run=r state=loading",
        "runs/r was finished before; --clean deletes it and trains anew",
    ]
    assert (place.run_dir / "metrics.jsonl").read_bytes() == before
    assert kinds(place.run_dir) == ["started", "finished"]


# --- interrupted -----------------------------------------------------------------------------------------------------


def test_however_it_is_interrupted_the_same_command_goes_on(
    place: Place, finished: Callable[[], tuple[Place, Ended]]
) -> None:
    ends = {(signal.SIGINT, 2): (130, "interrupted"), (signal.SIGTERM, 3): (143, "terminated")}
    for (number, rounds_done), (code, how) in ends.items():
        with place.held() as (running, let_go):
            running.send(number)
            running.read_until("stopping after this round; again to stop at once")
            let_go()
            ended = running.end()
        assert ended.code == code
        said = f"{how}: after round {rounds_done} of 4; the same command resumes from there"
        assert ended.stderr.splitlines()[-1] == said
    assert "state=resuming round=2/4 nodes=small,large" in ended.stderr
    assert "round=2/4 node=" not in ended.stderr
    assert kinds(place.run_dir) == ["started", "stopped", "resumed", "stopped"]
    assert sorted(entry.name for entry in (place.run_dir / "checkpoints").iterdir()) == ["round_2", "round_3"]
    with place.held() as (running, _):
        running.send(signal.SIGKILL)
        assert running.end().code == -signal.SIGKILL
    with (place.run_dir / "events.jsonl").open("a", encoding="utf-8") as events:
        events.write('{"time": "torn')
    resumed = place.motet("swarm", "run.toml")
    assert resumed.code == 0, resumed.stderr
    assert "state=resuming round=3/4" in resumed.stderr
    check_same_end(place, finished)


def test_with_a_process_for_each_node_nothing_is_lost_and_nobody_is_left(
    place: Place, finished: Callable[[], tuple[Place, Ended]]
) -> None:
    """Ctrl-C at all of them, kill -9 of a node, kill -9 of the command; then the numbers of a run in one process."""
    pipes = ["--set", "swarm.transport=pipes"]
    with place.held(*pipes) as (running, let_go), watched(running) as watch:
        for process in watch.nodes:
            os.kill(process, signal.SIGINT)
        running.send(signal.SIGINT)
        running.read_until("stopping after this round; again to stop at once")
        let_go()
        ended = running.end()
        watch.wait_until_gone()
    assert ended.code == 130
    assert ended.stderr.splitlines()[-1] == "interrupted: after round 2 of 4; the same command resumes from there"
    with place.held(*pipes) as (running, _), watched(running) as watch:
        os.kill(watch.nodes[1], signal.SIGKILL)
        ended = running.end()
        watch.wait_until_gone()
    assert ended.code == 4
    assert ended.stderr.splitlines()[-2] == (
        "error: node large: its process was killed by SIGKILL; the same command goes on from the last checkpoint  "
        "[E-SWARM-03]"
    )
    with place.held(*pipes) as (running, _), watched(running) as watch:
        running.send(signal.SIGKILL)
        watch.wait_until_gone()
        assert running.end().code == -signal.SIGKILL
    resumed = place.motet("swarm", "run.toml", *pipes)
    assert resumed.code == 0, resumed.stderr
    assert "state=resuming round=2/4" in resumed.stderr
    check_same_end(place, finished)


class Watch:
    """The processes that a command has started."""

    def __init__(self, running: Running, stack: ExitStack) -> None:
        below = running.below()
        self.nodes = sorted(process for process, command in below.items() if "spawn_main" in command)
        assert len(self.nodes) == len(NODES)
        self._ends = []
        for process in below:  # the nodes, and Python's own resource tracker
            self._ends.append(os.pidfd_open(process))
            stack.callback(os.close, self._ends[-1])

    def wait_until_gone(self) -> None:
        for end in self._ends:
            assert select.select([end], [], [], 60)[0], "a process is left over"


@contextmanager
def watched(running: Running) -> Iterator[Watch]:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this system cannot wait for processes that are not its children")
    with ExitStack() as stack:
        yield Watch(running, stack)


def test_a_second_signal_ends_it_at_once(place: Place) -> None:
    with place.held() as (running, _):
        running.send(signal.SIGINT)
        running.read_until("stopping after this round")
        running.send(signal.SIGINT)
        ended = running.end()
    assert ended.code == 130
    assert ended.stderr.splitlines()[-1] == "interrupted: stopped at once"
    assert list((place.run_dir / "checkpoints").iterdir()) == []
    assert [entry.name for entry in place.run_dir.parent.iterdir()] == ["r"]


def test_two_at_once_do_not_meet(place: Place, finished: Callable[[], tuple[Place, Ended]]) -> None:
    with place.held() as (running, let_go):
        second = place.motet("swarm", "run.toml")
        cleaning = place.motet("swarm", "run.toml", "--clean")
        let_go()
        ended = running.end()
    for refused in (second, cleaning):
        assert refused.code == 2
        assert refused.error.startswith("error: runs/r: another motet (process ")
        assert refused.error.endswith("[E-RUN-04]")
    assert ended.code == 0, ended.stderr
    check_same_end(place, finished)


# --- other settings --------------------------------------------------------------------------------------------------


def test_other_settings_do_not_continue_a_run(finished: Callable[[], tuple[Place, Ended]]) -> None:
    place, _ = finished()
    before = (place.run_dir / "metrics.jsonl").read_bytes()
    refused = place.motet("swarm", "run.toml", "--set", "run.rounds=5")
    assert refused.code == 2
    assert refused.error.endswith("[E-RESUME-01]")
    assert "run.rounds: there 4, here 5" in refused.error
    assert (place.run_dir / "metrics.jsonl").read_bytes() == before


def test_clean_starts_over_with_other_settings(place: Place) -> None:
    other = RunDir.create(place.run_dir, seed=0)
    other.config.write_text("[run]\nname = 'other'\n", encoding="utf-8")
    other.metrics.write_text('{"round": 7, "node": "other"}\n', encoding="utf-8")
    again = place.motet("swarm", "run.toml", "--clean", *QUICK)
    assert again.code == 0, again.stderr
    assert {row["node"] for row in rows(place.run_dir)} == set(NODES)


def test_clean_deletes_nothing_but_runs(place: Place) -> None:
    place.run_dir.mkdir(parents=True)
    (place.run_dir / "thesis.txt").touch()
    refused = place.motet("swarm", "run.toml", "--clean")
    assert refused.code == 2
    assert refused.error == "error: runs/r: not the directory of a run (it has no run.json)  [E-RUN-02]"
    assert (place.run_dir / "thesis.txt").exists()


def test_a_dry_run_leaves_nothing(place: Place) -> None:
    shown = place.motet("swarm", "run.toml", "--dry-run", "--set", "run.rounds=7")
    assert (shown.code, shown.stderr) == (0, "")
    assert "rounds = 7" in shown.stdout
    assert not (place.path / "runs").exists()


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ("node.small.model=tiny:smal", "E-MODEL-01", 'did you mean "tiny:small"?'),
        ("node.large.model=./nowhere", "E-MODEL-02", "'./nowhere': the folder does not exist"),
        ("task.name=sum.jsonl", "E-TASK-02", "did you mean sums.jsonl?"),
        ("task.reward=rewards.py:fails", "E-REWARD-02", "RuntimeError: no such luck (rewards.py:16)"),
        ("task.reward=rewards.py:asks", "E-REWARD-02", "asks for 'colour', which is no column of the task"),
        ("method.rule=rewards.py:odd", "E-METHOD-02", "takes 1 positional argument but 3 were given  [E-"),
        ("method.weights=weights.py:f", "E-METHOD-01", "method.weights: no file weights.py"),
        ("rollout.prompts_per_round=1000", "E-SWARM-02", "1000"),
    ],
)
def test_a_mistake_that_shows_late_costs_one_line_and_leaves_nothing(
    place: Place, change: str, code: str, says: str
) -> None:
    refused = place.motet("swarm", "run.toml", "--set", change)
    assert refused.code == 2
    assert says in refused.error
    assert refused.error.endswith(f"[{code}]")
    assert list((place.path / "runs").iterdir()) == []


def test_what_was_killed_before_it_measured_anything_is_no_run(place: Place) -> None:
    left = RunDir.create(place.run_dir, seed=0)
    left.config.write_text("[run]\nname = 'other'\n", encoding="utf-8")
    left.metrics.touch()
    ended = place.motet("swarm", "run.toml", *QUICK)
    assert ended.code == 0, ended.stderr


def test_a_folder_of_something_else_is_left_alone(place: Place) -> None:
    place.run_dir.mkdir(parents=True)
    (place.run_dir / "thesis.txt").touch()
    refused = place.motet("swarm", "run.toml")
    assert refused.code == 2
    assert refused.error.endswith("[E-RUN-01]")
    assert [entry.name for entry in place.run_dir.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("dir", ["run.toml", "run.toml/below"])
def test_results_cannot_go_into_a_file(place: Place, dir: str) -> None:
    refused = place.motet("swarm", "run.toml", "--set", f"run.dir={dir}")
    assert refused.code == 2
    assert refused.error == f"error: {dir}: run.dir must be a folder, and a file is there  [E-RUN-01]"


@pytest.mark.parametrize(
    ("target", "says"), [("runs", "runs is a folder; name a file"), ("run.toml/out.json", "run.toml is no folder")]
)
def test_where_json_cannot_go_is_said_before_the_work(place: Place, target: str, says: str) -> None:
    (place.path / "runs").mkdir()
    refused = place.motet("swarm", "run.toml", "--json", target)
    assert refused.code == 2
    assert f"argument --json: {says}" in refused.error
    assert list((place.path / "runs").iterdir()) == []
