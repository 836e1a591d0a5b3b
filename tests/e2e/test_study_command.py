"""`motet study` as it is typed: a study of two runs, interrupted, continued and repeated; and mistakes."""

from __future__ import annotations

import fcntl
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

STUDY_FILE = """
study = { name = "s", seeds = [3] }

[settings]
run = { rounds = 2 }
task = { name = "sums.jsonl" }
rollout = { prompts_per_round = 4, group_size = 4, max_new_tokens = 4 }
evaluation = { every = 1, num_prompts = 4, final_num_prompts = 8, also_greedy = true }

[pair.size]
title = "two sizes"
node = [{ name = "small", model = "tiny:small" }, { name = "large", model = "tiny:large" }]

[arm.alone]
settings = { method = { name = "on_policy" } }

[arm.f_tis]
title = "filtered and capped"
settings = { method = { name = "f_tis" } }
"""

BROKEN_ARM = """
[arm.odd]
settings = { method = { name = "f_tis", weights = "odd.py:broken" } }

"""

AFTERWARDS = """
[replay.again]
of = "f_tis"

[choice.kept]
reference = "alone"
of = ["f_tis"]
num_prompts = 6
"""
BROKEN_METHOD = """
def broken(ratio, advantages, mask):
    raise ValueError("no such luck")
"""


class Ended(Protocol):
    code: int
    stdout: str
    stderr: str
    error: str


class Place(Protocol):
    path: Path

    def motet(self, *arguments: str | Path, **environment: str) -> Ended: ...
    def start(self, *arguments: str | Path, **environment: str) -> Any: ...


@dataclass(frozen=True)
class Story:
    """What came of the same command, three times."""

    folder: Path
    interrupted: Ended
    continued: Ended
    repeated: Ended
    ended_at: dict[str, int]
    """When each run of the study was finished, before the command was repeated."""


def summaries(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob("runs/**/summary.json")}


@pytest.fixture(scope="module")
def story(place_in: Callable[[Path], Place], tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = place_in(tmp_path_factory.mktemp("study"))
    (place.path / "study.toml").write_text(STUDY_FILE, encoding="utf-8")
    folder = place.path / "runs/s"
    with place.start("study", "study.toml", "--workers", "1") as running:
        running.read_until("run=size/alone/3 state=finished")
        running.send(signal.SIGINT)
        interrupted = running.end()
    first = summaries(folder)
    continued = place.motet("study", "study.toml", "--workers", "1")
    both = summaries(folder)
    assert first.items() <= both.items()
    return Story(folder, interrupted, continued, place.motet("study", "study.toml"), both)


@pytest.mark.slow
def test_an_interruption_says_how_to_go_on(story: Story) -> None:
    assert story.interrupted.code == 130
    assert "Traceback" not in story.interrupted.stderr
    last = story.interrupted.stderr.splitlines()[-1]
    assert last == "interrupted: the same command continues the study in runs/s"


@pytest.mark.slow
def test_the_same_command_does_what_was_left(story: Story) -> None:
    assert story.continued.code == 0, story.continued.stderr
    assert "run=size/alone/3" not in story.continued.stderr
    assert "run=size/f_tis/3 state=finished done=2/2" in story.continued.stderr
    assert sorted(story.ended_at) == ["runs/size/alone/seed_3/summary.json", "runs/size/f_tis/seed_3/summary.json"]


@pytest.mark.slow
def test_a_second_call_repeats_nothing(story: Story) -> None:
    assert story.repeated.code == 0, story.repeated.stderr
    assert "state=" not in story.repeated.stderr
    assert summaries(story.folder) == story.ended_at
    assert story.repeated.stdout.splitlines()[0] == "page     runs/s/study.md"


@pytest.mark.slow
def test_the_page_shows_both_arms(story: Story) -> None:
    page = (story.folder / "study.md").read_text(encoding="utf-8")
    assert "motet study study.toml" in page
    assert "2 runs, 2 side by side" in page
    assert "not finished" not in page
    assert "## size: two sizes" in page
    assert '| f_tis | filtered and capped | `method.name = "f_tis"` | 1 |' in page
    assert "| small | f_tis | " in page
    assert "**not shown**" in page  # one seed shows nothing
    picture = story.folder / "images/study_size.png"
    assert f"](images/{picture.name})" in page
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_rows_are_those_of_the_runs(story: Story) -> None:
    rows = json.loads((story.folder / "study.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["arm"], row["node"], row["seed"]) for row in rows] == [
        ("alone", "small", 3),
        ("alone", "large", 3),
        ("f_tis", "small", 3),
        ("f_tis", "large", 3),
    ]
    for row in rows:
        assert row["curve"]["rounds"] == [0, 1, 2]
        assert row["curve"]["ood"] == []
        assert set(row["accuracy"]) == {"test", "test_greedy"}
        assert row["num_prompts"] == 8
        assert row["completions"] == (32 if row["arm"] == "alone" else 16)
        assert (row["bytes_per_token"] is None) == (row["arm"] == "alone")
    starts = [row["start"] for row in rows]
    assert starts[:2] == starts[2:]


@pytest.mark.slow
def test_runs_of_other_settings_are_not_mixed_in(story: Story, place_in: Callable[[Path], Place]) -> None:
    place = place_in(story.folder.parents[1])
    ended = place.motet("study", "study.toml", "--set", "run.rounds=3")
    assert ended.code == 2
    assert "run.rounds: 2 there, 3 here" in ended.error
    assert "delete that folder to train it anew, or use another study.name" in ended.error
    listed = place.motet("study", "study.toml", "--set", "run.rounds=3", "--dry-run")
    assert listed.code == 2
    assert ended.error in listed.stderr
    assert summaries(story.folder) == story.ended_at


@pytest.fixture
def study(place: Place) -> Place:
    (place.path / "study.toml").write_text(STUDY_FILE, encoding="utf-8")
    return place


@pytest.mark.slow
def test_a_run_that_fails_costs_no_other(study: Place) -> None:
    file = study.path / "study.toml"
    file.write_text(STUDY_FILE.replace("[arm.f_tis]", BROKEN_ARM + "[arm.f_tis]"), encoding="utf-8")
    (study.path / "odd.py").write_text(
        "def broken(ratio, advantages, mask):\n    raise ValueError('no such luck')\n", encoding="utf-8"
    )
    ended = study.motet("study", "study.toml", "--workers", "1")
    assert ended.code == 4
    assert "run=size/odd/3 state=failed done=1/3" in ended.stderr
    assert "run=size/f_tis/3 state=finished done=2/3" in ended.stderr
    assert "Traceback" not in ended.stderr
    error = next(line for line in ended.stderr.splitlines() if line.startswith("error: "))
    assert "1 of 3 runs stopped before their end; the same command tries them again: size/odd/3: " in error
    assert "no such luck" in error
    assert "runs/s/logs/size/odd/seed_3.log" in error
    assert error.endswith("[E-STUDY-05]")
    page = (study.path / "runs/s/study.md").read_text(encoding="utf-8")
    assert "1 of the runs of the study is not finished" in page
    assert "| small | f_tis | " in page


@pytest.mark.slow
def test_what_failed_is_mended_and_tried_again(study: Place) -> None:
    """The run that failed has settings of its own in its place, and nothing else; nothing has to be deleted."""
    file, broken = study.path / "study.toml", STUDY_FILE.replace("[arm.f_tis]", BROKEN_ARM + "[arm.f_tis]")
    file.write_text(broken, encoding="utf-8")
    (study.path / "odd.py").write_text(BROKEN_METHOD, encoding="utf-8")
    assert study.motet("study", "study.toml", "--arm", "odd").code == 4
    assert not (study.path / "runs/s/study.md").exists(), "no run is finished"
    file.write_text(broken.replace('weights = "odd.py:broken"', "cap = 3.0"), encoding="utf-8")
    ended = study.motet("study", "study.toml", "--arm", "odd")
    assert ended.code == 0, ended.stderr
    assert (study.path / "runs/s/study.md").exists()


@pytest.mark.slow
def test_a_replay_waits_for_its_run(study: Place) -> None:
    (study.path / "study.toml").write_text(STUDY_FILE + AFTERWARDS, encoding="utf-8")
    ended = study.motet("study", "study.toml", "--arm", "again")
    assert ended.code == 0
    assert "2 replays wait for the runs that they learn from" in ended.stderr


@pytest.mark.slow
def test_replays_and_choices_follow(study: Place) -> None:
    (study.path / "study.toml").write_text(STUDY_FILE + AFTERWARDS, encoding="utf-8")
    ended = study.motet("study", "study.toml")
    assert ended.code == 0, ended.stderr
    assert "run=size/alone/3 state=running done=0/4" in ended.stderr
    assert {f"run=size/again/3/{node} state=finished" for node in ("small", "large")} <= {
        " ".join(line.split()[1:3]) for line in ended.stderr.splitlines()
    }
    *_, last, first_exam, second_exam = ended.stderr.splitlines()
    assert last.endswith(" state=finished done=4/4")
    assert {first_exam, second_exam} == {
        f"examined=size/{arm}/3 for the choices done={number}/2" for number, arm in ((1, "alone"), (2, "f_tis"))
    }
    rows = json.loads((study.path / "runs/s/study.json").read_text(encoding="utf-8"))["rows"]
    by_arm = {(row["arm"], row["node"]): row for row in rows}
    assert len(by_arm) == 8
    again, live, alone, kept = (by_arm[arm, "small"] for arm in ("again", "f_tis", "alone", "kept"))
    assert again["start"] == live["start"]
    assert again["completions"] == 0
    assert again["kept_share"] is not None, "peers' groups and its own old ones came to the filter"
    assert kept["settings"]["taken"] in ("alone", "f_tis")
    assert kept["accuracy"] == by_arm[kept["settings"]["taken"], "small"]["accuracy"]
    assert kept["completions"] == live["completions"] + alone["completions"]
    page = (study.path / "runs/s/study.md").read_text(encoding="utf-8")
    assert "4 runs, 2 side by side" in page
    assert "| size | small | again | " in page
    exam = study.path / "runs/s/exams/size/f_tis/seed_3.json"
    assert len(json.loads(exam.read_bytes())["solved"]["small"]["test"]) == 6
    before = exam.stat().st_mtime_ns
    assert study.motet("study", "study.toml").code == 0
    assert exam.stat().st_mtime_ns == before


def test_dry_run_lists_the_runs(study: Place) -> None:
    ended = study.motet("study", "study.toml", "--dry-run")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines() == ["size/alone/3", "size/f_tis/3"]
    assert ended.stderr == "2 of 2 runs to do\n"
    assert not (study.path / "runs").exists()
    ended = study.motet("study", "study.toml", "--dry-run", "--arm", "f_tis")
    assert ended.stdout.splitlines() == ["size/f_tis/3"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["study", "study.toml", "--arm", "f_tsi"], "--arm f_tsi: the study has alone, f_tis"),
        (["study", "study.toml", "--pair", "sizes"], "--pair sizes: the study has size"),
        (["study", "study.toml", "--set", "run.seed=7"], "--set run.seed=7: pair size: the study decides this itself"),
        (["study", "run.toml"], "run.toml: a run file, not a study file; `motet swarm run.toml` runs it"),
        (["swarm", "study.toml"], "study.toml: a study file, not a run file; `motet study study.toml` runs it"),
        (["study", "stdy.toml"], "stdy.toml: no such file; did you mean study.toml?"),
    ],
)
def test_mistakes(study: Place, arguments: list[str], says: str) -> None:
    ended = study.motet(*arguments)
    assert ended.code == 2
    assert says in ended.error


def test_one_study_at_a_time_in_a_folder(study: Place) -> None:
    (study.path / "runs/s").mkdir(parents=True)
    with (study.path / "runs/s/.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = study.motet("study", "study.toml")
    assert ended.code == 2
    assert "runs/s: another motet (process ?) is at work there; wait for it or stop it, or use another" in ended.error
    assert list((study.path / "runs/s").iterdir()) == [study.path / "runs/s/.lock"]


def test_prompts_that_a_model_cannot_read_are_one_line(study: Place) -> None:
    lines = [json.dumps({"prompt": f"two and {number}", "answer": "4"}) for number in range(40)]
    (study.path / "sums.jsonl").write_text("\n".join(lines), encoding="utf-8")
    ended = study.motet("study", "study.toml", "--arm", "alone")
    assert ended.code == 4
    assert "size/alone/3: tiny:small: its vocabulary cannot write the prompt 'two and " in ended.stderr
    assert "Traceback" not in ended.stderr
