"""`motet replay` as a user meets it: from the archives of a finished run to a run of its own, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Place

pytestmark = pytest.mark.slow
SIX = ("--set", "run.rounds=6")


@pytest.fixture(scope="module")
def swarm(place_in: Callable[[Path], Place], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place where a small and a large model have learned together for six rounds; tests leave that run as it is."""
    place = place_in(tmp_path_factory.mktemp("replay"))
    ended = place.motet("swarm", "run.toml", *SIX)
    assert ended.code == 0, ended.stderr
    return place


def rows(run_dir: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in found]


def test_a_replay_to_its_end_and_what_can_be_done_with_it(swarm: Place) -> None:
    ended = swarm.motet("replay", "runs/r", "--node", "small", "--json", "replayed.json")
    assert ended.code == 0, ended.stderr
    first, head, node, *rest = ended.stdout.splitlines()
    assert first == "groups   24 of large, small in 6 rounds"
    assert head.split()[0] == "node"
    assert node.split()[:3] == ["small", "tiny:small", "held-out"]
    assert rest == ["models   runs/r-replay-small/models", "report   motet report runs/r-replay-small"]
    run_dir = swarm.path / "runs/r-replay-small"
    weights = "models/small/model.safetensors"
    assert (run_dir / weights).read_bytes() != (swarm.run_dir / weights).read_bytes()
    told = rows(run_dir)
    assert [row["round"] for row in told] == [-1, 0, 1, 2, 3, 4, 5]
    assert [row["external/groups"] for row in told[1:]] == [4] * 6
    assert [row["own/completions"] for row in told[1:]] == [0] * 6
    summary = json.loads((swarm.path / "replayed.json").read_text(encoding="utf-8"))
    assert summary["nodes"]["small"]["completions_generated"] == 0

    reported = swarm.motet("report", "runs/r-replay-small")
    assert reported.code == 0, reported.stderr
    assert (run_dir / "report.html").is_file()
    compared = swarm.motet("report", "runs/r", "runs/r-replay-small", "-o", "both.html")
    assert compared.code == 0, compared.stderr
    exported = swarm.motet("export", "runs/r-replay-small", "-o", "exported")
    assert exported.code == 0, exported.stderr
    measured = swarm.motet("eval", "runs/r-replay-small", "--num-prompts", "4")
    assert measured.code == 0, measured.stderr
    again = swarm.motet("replay", "runs/r", "--node", "small")
    assert again.code == 0
    assert "runs/r-replay-small was finished before" in again.stderr


def test_a_repeat_and_an_interrupted_replay_end_alike(swarm: Place) -> None:
    whole = swarm.motet("replay", "runs/r", "--node", "small", "--name", "whole")
    assert whole.code == 0, whole.stderr
    command = ("replay", "runs/r", "--node", "small", "--name", "parts")
    hold = swarm.path / "hold"  # in the examination before the first round the reward waits for it
    os.mkfifo(hold)
    with open(os.open(hold, os.O_RDWR), "wb") as end, swarm.start(*command) as running:
        running.read_until("waiting")
        running.send(signal.SIGINT)
        running.read_until("stopping after this round")
        hold.unlink()
        end.close()
        stopped = running.end()
    assert stopped.code == 130, stopped.stderr
    assert "after round 1 of 6; the same command resumes from there" in stopped.stderr
    assert not (swarm.path / "runs/parts/summary.json").exists()
    ended = swarm.motet(*command)
    assert ended.code == 0, ended.stderr
    ours, theirs = swarm.path / "runs/parts", swarm.path / "runs/whole"
    assert rows(ours) == rows(theirs)
    weights = "models/small/model.safetensors"
    assert (ours / weights).read_bytes() == (theirs / weights).read_bytes()


def test_one_node_s_archive_another_model_and_fewer_rounds(swarm: Place) -> None:
    options = ("--set", "evaluation.final_num_prompts=2", "--set", "run.rounds=2")
    ended = swarm.motet("replay", "runs/r", "--from", "large", "--model", "tiny:small", *options)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.startswith("groups   4 of large in 2 rounds\n")
    assert (swarm.path / "runs/r-replay-model/models/model/model.safetensors").is_file()
    same = swarm.motet("replay", "runs/r/archive/large.motet", "--model", "tiny:small", *options, "--name", "file")
    assert same.code == 0, same.stderr
    weights = "models/model/model.safetensors"
    there, here = (swarm.path / "runs" / name / weights for name in ("r-replay-model", "file"))
    assert here.read_bytes() == there.read_bytes()


def test_settings_without_training(swarm: Place) -> None:
    shown = swarm.motet("replay", "runs/r", "--node", "large", "--set", "run.rounds=50", "--dry-run")
    assert shown.code == 0, shown.stderr
    assert 'name = "r-replay-large"' in shown.stdout
    assert "rounds = 6" in shown.stdout
    assert shown.stderr == "note: 6 rounds of 50 (run.rounds) are stored; the replay has as many\n"
    assert not (swarm.path / "runs/r-replay-large").exists()


def test_what_the_gate_refuses_is_told(swarm: Place) -> None:
    options = ("--set", "rollout.max_new_tokens=1", "--set", "run.rounds=1", "--set", "evaluation.final_num_prompts=2")
    ended = swarm.motet("replay", "runs/r", "--node", "small", "--name", "short", *options)
    assert ended.code == 0, ended.stderr
    assert "refused 4: bad_length 4" in ended.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["runs/r"], "E-CLI-02", "several nodes; name one of small, large"),
        (["runs/r", "--node", "lagre"], "E-CLI-02", "no such node; it has small, large"),
        (["runs/r", "--node", "small", "--from", "lagre"], "E-CLI-02", "no archive of that name; it has large, small"),
        (["runs/r/archive/large.motet", "--node", "small", "--from", "large"], "E-CLI-02", "--from chooses among"),
        (["runs/q", "--node", "small"], "E-RUN-02", "runs/q: no such folder"),
        (["runs/r/archive/q.motet", "--node", "small"], "E-ARCHIVE-02", "no such archive"),
        (["run.toml", "--node", "small"], "E-ARCHIVE-03", "run.toml: not an archive of groups"),
        (["moved.motet", "--node", "small"], "E-REPLAY-02", "give the run file with --file"),
        (["empty.motet", "--file", "run.toml", "--node", "small"], "E-REPLAY-01", "empty.motet: no group is stored"),
        (["runs/r", "--node", "small", "--set", "method.name=on_policy"], "E-REPLAY-05", 'method.name = "on_policy"'),
        (["runs/r", "--node", "small", "--name", "r"], "E-REPLAY-04", "runs/r holds a run that is no replay"),
    ],
)
def test_what_cannot_be_replayed_costs_one_line(swarm: Place, arguments: list[str], code: str, says: str) -> None:
    shutil.copy(swarm.run_dir / "archive/large.motet", swarm.path / "moved.motet")
    (swarm.path / "empty.motet").write_bytes(b"MOTETAR2")
    refused = swarm.motet("replay", *arguments)
    assert refused.code == 2, refused.stderr
    assert refused.stdout == ""
    assert says in refused.error
    assert refused.error.endswith(f"[{code}]")


def test_an_archive_away_from_its_run_with_a_run_file(swarm: Place) -> None:
    shutil.copy(swarm.run_dir / "archive/large.motet", swarm.path / "moved.motet")
    options = ("--node", "small", "--set", "run.rounds=1", "--set", "evaluation.final_num_prompts=2", "--name", "moved")
    ended = swarm.motet("replay", "moved.motet", "--file", "run.toml", *options)
    assert ended.code == 0, ended.stderr
