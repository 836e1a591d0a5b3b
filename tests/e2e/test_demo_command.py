"""`motet demo` as a user meets it, with numbers so small that it takes seconds."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Ended, Place

pytestmark = pytest.mark.slow
ARMS = {"alone": "on_policy", "F-TIS": "f_tis", "NoIS": "nois"}
NODES = ("small", "large")
CHANGES = (
    "run.rounds=2",
    "rollout.prompts_per_round=4",
    "rollout.group_size=4",
    "evaluation.every=1",
    "evaluation.num_prompts=16",
    "evaluation.final_num_prompts=32",
)
SMALL = [word for change in CHANGES for word in ("--set", change)]


def children_of_demos(folder: Path) -> list[str]:
    """Command lines of processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(folder):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue  # it has ended, or is not ours
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, place_in: Callable[[Path], Place]) -> tuple[Place, Ended]:
    """A demo at its end."""
    place = place_in(tmp_path_factory.mktemp("demo"))
    return place, place.motet("demo", *SMALL, "--dir", "d", "--json", "numbers.json")


def test_it_ends_with_a_table_and_a_page(demo: tuple[Place, Ended]) -> None:
    place, ended = demo
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert any(line.split() == ["model", "before", "alone", "F-TIS", "NoIS"] for line in lines)
    for node in NODES:
        row = next(line for line in lines if line.split()[:3] == [node, "held-out", "sums"])
        assert row.count("\u00b1") == 4
    assert [line.split()[1:] for line in lines if line.split()[:1] == ["generated"]] == [["32", "16", "16"]] * 2
    assert [line.split()[1] for line in lines if line.split()[:1] == ["bytes/token"]] == ["-", "-"]
    assert lines[-4:-1] == ["page     d/report.html", "picture  d/report.png", "numbers  numbers.json"]
    assert (place.path / "d/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (place.path / "d/report.png").read_bytes().startswith(b"\x89PNG")


def test_the_numbers(demo: tuple[Place, Ended]) -> None:
    place, _ = demo
    numbers: dict[str, Any] = json.loads((place.path / "numbers.json").read_text(encoding="utf-8"))
    assert list(numbers["nodes"]) == list(NODES)
    for node in numbers["nodes"].values():
        assert {label: arm["method"] for label, arm in node["arms"].items()} == ARMS
        for label, arm in node["arms"].items():
            for split in ("test", "ood"):
                for end in ("start", "end"):
                    estimate = arm["accuracy"][split][end]
                    assert 0 <= estimate["value"] <= 1
                    assert 0 <= estimate["se"] < 0.1
                    assert estimate["n"] == 32
            assert (arm["bytes_per_token"] is None) == (label == "alone")
            assert label == "alone" or 0 < arm["bytes_per_token"] < 16
            assert arm["seconds"] > 0
        generated = {label: arm["completions_generated"] for label, arm in node["arms"].items()}
        assert generated == {"alone": 32, "F-TIS": 16, "NoIS": 16}  # rounds x prompts x completions, and half of that


def test_progress_in_a_pipe_is_lines(demo: tuple[Place, Ended]) -> None:
    _, ended = demo
    told = [dict(word.split("=", 1) for word in line.split()) for line in ended.stderr.splitlines()]
    assert {line["arm"] for line in told} == set(ARMS)
    assert all({"t", "arm", "round", "node", "held_out", "start"} == set(line) for line in told)


def test_the_same_command_again_shows_the_results(demo: tuple[Place, Ended]) -> None:
    place, first = demo
    before = {path: path.read_bytes() for path in (place.path / "d").rglob("metrics.jsonl")}
    again = place.motet("demo", *SMALL, "--dir", "d", "--json", "numbers.json")
    assert (again.code, again.stdout) == (0, first.stdout)
    assert again.stderr == "the demo in d was finished before; --clean deletes it and trains anew\n"
    assert len(before) == 3
    assert {path: path.read_bytes() for path in (place.path / "d").rglob("metrics.jsonl")} == before


def test_a_pipe_that_knows_ascii_only(demo: tuple[Place, Ended]) -> None:
    place, _ = demo
    report = place.motet("report", "d/seed_0/f_tis", "-o", "ascii.html", PYTHONIOENCODING="ascii")
    assert report.code == 0, report.stderr
    assert report.stdout.isascii()
    assert " ? " in report.stdout


def test_interrupted_it_leaves_no_process_and_goes_on(place: Place, demo: tuple[Place, Ended]) -> None:
    with place.start("demo", *SMALL, "--dir", "d", "--json", "numbers.json", "--workers", "1") as running:
        running.read_until("arm=alone round=")  # how far it is by then is chance; two arms are still to come
        running.send(signal.SIGINT)
        ended = running.end()
    assert ended.code == 130
    assert ended.stderr.splitlines()[-2:] == [
        "stopping after this round; again to stop at once",
        "interrupted: the same command continues the demo in d",
    ]
    assert children_of_demos(place.path) == []
    again = place.motet("demo", *SMALL, "--dir", "d", "--json", "numbers.json")
    assert again.code == 0, again.stderr
    whole, whole_ended = demo
    assert again.stdout == whole_ended.stdout
    rows = "d/seed_0/on_policy/metrics.jsonl"
    assert len((place.path / rows).read_text().splitlines()) == len((whole.path / rows).read_text().splitlines())


def test_an_arm_that_fails_says_why_and_leaves_no_process(place: Place) -> None:
    failed = place.motet("demo", *SMALL, "--set", "node.small.model=./nowhere", "--dir", "d")
    assert failed.code == 4
    assert failed.stdout == ""
    assert "Traceback" not in failed.stderr
    complaint = next(line for line in failed.stderr.splitlines() if line.startswith("error: "))
    assert " stopped: node.model './nowhere': the folder does not exist" in complaint
    assert "(all of its output: d/logs/seed_0_" in complaint
    assert complaint.endswith("[E-DEMO-01]")
    assert children_of_demos(place.path) == []
    assert list((place.path / "d/seed_0").iterdir()) == []


def test_a_dry_run_shows_every_arm_and_leaves_nothing(place: Place) -> None:
    shown = place.motet("demo", *SMALL, "--dir", "d", "--seeds", "2", "--dry-run")
    assert (shown.code, shown.stderr) == (0, "")
    for method in ARMS.values():
        assert shown.stdout.count(f'name = "{method}"') == 4  # of the run and of the method, for two seeds
    assert not (place.path / "d").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "0"], "argument --seeds: got 0; allowed: a whole number from 1 up"),
        (["--seeds", "-1"], "argument --seeds: got -1; allowed: a whole number from 1 up"),
        (["--seeds", "two"], "argument --seeds: got two; allowed: a whole number from 1 up"),
        (["--workers", "0"], "argument --workers: got 0; allowed: a whole number from 1 up"),
        (["--dir", "run.toml"], "argument --dir: run.toml is no folder"),
        (["--json", "."], "argument --json: . is a folder"),
        (["--set", "run.seed=3"], "--set run.seed=3: the demo decides run.seed itself; say --seeds"),
        (["--set", "method.name=vis"], "the demo decides method.name itself"),
        (["--set", "run.round=3"], "did you mean run.rounds?"),
        (["--seed", "3"], 'no argument "--seed"; did you mean "--seeds"?'),
    ],
)
def test_a_mistake_costs_one_line(place: Place, arguments: list[str], says: str) -> None:
    refused = place.motet("demo", *arguments)
    assert refused.code == 2
    assert says in refused.error
    assert not (place.path / "runs").exists()
