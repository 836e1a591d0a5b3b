"""Arms, paired differences, verdicts in every branch, and the JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.reports import Comparison, compare, read_run

WriteRun = Callable[..., Path]

LEVEL = "level with training alone on"


def _compare(*paths: Path) -> Comparison:
    return compare([read_run(path) for path in paths])


def _one_seed(write_run: WriteRun, *, se: float = 0.01, **ends: dict[str, float]) -> Comparison:
    """One run for each method, from accuracies at the end per node; all start at 0.30."""
    runs = [
        write_run(method, se=se, nodes={node: {"test": (0.30, end)} for node, end in by_node.items()})
        for method, by_node in ends.items()
    ]
    return _compare(*runs)


def test_arms_come_alone_first_with_their_words(write_run: WriteRun) -> None:
    comparison = _compare(write_run("nois"), write_run("f_tis"), write_run("on_policy"))
    assert [arm.label for arm in comparison.arms] == ["alone", "F-TIS", "NoIS"]
    assert comparison.nodes == ("small", "large")


def test_seeds_of_one_setting_are_one_arm_and_settings_apart_are_two(write_run: WriteRun) -> None:
    comparison = _compare(
        write_run("f_tis", seed=1, folder="a"),
        write_run("f_tis", seed=0, folder="b"),
        write_run("f_tis", seed=0, folder="c", kl_limit=5.0),
    )
    assert [(arm.label, [run.seed for run in arm.runs]) for arm in comparison.arms] == [
        ("F-TIS, method.kl_limit_nats = 5.0", [0]),
        ("F-TIS, method.kl_limit_nats = 50.0", [0, 1]),
    ]


def test_an_own_function_is_named_even_where_nothing_else_has_its_method(write_run: WriteRun) -> None:
    first, second = ({"weights": f"mine.py:{name}"} for name in ("flat", "steep"))
    alone = write_run("on_policy")
    one = _compare(alone, write_run("f_tis", own=first))
    assert [arm.label for arm in one.arms] == ["alone", "F-TIS, method.weights = mine.py:flat"]
    runs = [write_run("f_tis", own=own, folder=folder) for own, folder in ((second, "s"), (first, "f"), ({}, "p"))]
    several = _compare(alone, *runs)
    assert [arm.label for arm in several.arms] == [
        "alone",
        "F-TIS, method.weights = default",
        "F-TIS, method.weights = mine.py:flat",
        "F-TIS, method.weights = mine.py:steep",
    ]
    assert {row.minus for row in several.differences} == {"alone", "F-TIS, method.weights = default"}


def test_a_repeat_of_a_seed_is_not_counted_and_said(write_run: WriteRun) -> None:
    comparison = _compare(write_run("f_tis", folder="a"), write_run("f_tis", folder="b"))
    assert len(comparison.runs) == 1
    assert any("b repeats settings and seed" in note for note in comparison.notes)


def test_numbers_over_seeds(write_run: WriteRun) -> None:
    ends = {"on_policy": [0.42, 0.44, 0.46], "f_tis": [0.43, 0.44, 0.45], "nois": [0.38, 0.40, 0.39]}
    runs = [
        write_run(method, seed=seed, nodes={"small": {"test": (0.30 + 0.01 * seed, end)}})
        for method, by_seed in ends.items()
        for seed, end in enumerate(by_seed)
    ]
    comparison = _compare(*runs)
    alone = comparison.cells["small", "alone"].accuracy["test"]
    assert alone.end is not None
    assert alone.end.value == pytest.approx(0.44)
    assert alone.end.se == pytest.approx(0.02 / 3**0.5)  # deviations -0.02, 0, 0.02: variance 0.0004
    assert alone.gain is not None
    assert alone.gain.value == pytest.approx(0.13)  # 0.12, 0.13, 0.14
    assert alone.gain.se == pytest.approx(0.01 / 3**0.5)
    found = {(row.arm, row.minus): row.estimate for row in comparison.differences}
    assert found["F-TIS", "alone"].value == pytest.approx(0.0)  # 0.01, 0, -0.01
    assert found["F-TIS", "alone"].se == pytest.approx(0.01 / 3**0.5)
    assert found["NoIS", "F-TIS"].value == pytest.approx(-0.05)  # -0.05, -0.04, -0.06
    assert found["NoIS", "F-TIS"].se == pytest.approx(0.01 / 3**0.5)
    assert found["NoIS", "alone"].value == pytest.approx(-0.05)
    assert any("Fewer than 5 seeds" in note for note in comparison.notes)
    assert not any("One seed" in note for note in comparison.notes)


def test_verdict_level_and_below(write_run: WriteRun) -> None:
    comparison = _one_seed(
        write_run,
        on_policy={"small": 0.430, "large": 0.620},
        f_tis={"small": 0.425, "large": 0.625},
        nois={"small": 0.350, "large": 0.615},
    )
    assert comparison.verdict == (
        "F-TIS ends level with training alone on small (-0.5 \u00b1 1.4 points) and large (+0.5 \u00b1 1.4 points), "
        "each node generating 50 % of the completions that it generates alone. "
        "NoIS ends below F-TIS on small (-7.5 \u00b1 1.4 points); "
        "it is not separated from F-TIS at this length on large (-1.0 \u00b1 1.4 points)."
    )


@pytest.mark.parametrize(
    ("end", "se", "words"),
    [
        (0.50, 0.01, "F-TIS ends above training alone on small (+7.0 \u00b1 1.4 points)"),
        (0.37, 0.01, "F-TIS ends below training alone on small (-6.0 \u00b1 1.4 points)"),
        (0.39, 0.03, "F-TIS is not separated from training alone at this length on small (-4.0 \u00b1 4.2 points)"),
    ],
)
def test_verdict_against_alone(write_run: WriteRun, end: float, se: float, words: str) -> None:
    comparison = _one_seed(write_run, se=se, on_policy={"small": 0.43}, f_tis={"small": end})
    assert comparison.verdict.startswith(words)


def test_verdict_says_when_the_naive_way_wins(write_run: WriteRun) -> None:
    comparison = _one_seed(write_run, f_tis={"small": 0.40}, nois={"small": 0.50})
    assert comparison.verdict == "NoIS ends above F-TIS on small (+10.0 \u00b1 1.4 points)."
    assert any("No run with method on_policy" in note for note in comparison.notes) is False  # one node: no joining
    assert LEVEL not in comparison.verdict


def test_level_with_alone_is_not_enough_if_nobody_learned(write_run: WriteRun) -> None:
    comparison = _one_seed(write_run, on_policy={"small": 0.305}, f_tis={"small": 0.31})
    assert comparison.verdict.endswith(
        "No improvement beyond chance under F-TIS: small (+1.0 \u00b1 1.4 points from the start)."
    )


def test_verdict_without_standard_errors(write_run: WriteRun) -> None:
    paths = [
        write_run(method, nodes={"small": {"test": (0.3, 0.4)}}, is_finished=False) for method in ("on_policy", "f_tis")
    ]
    for path in paths:
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            row.pop("accuracy/test/se", None)
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = _compare(*paths).verdict
    assert "cannot be judged against training alone, for want of a standard error, on small (+0.0 points)" in verdict


@pytest.mark.parametrize(
    ("end", "words"),
    [(0.43, "improved"), (0.20, "got worse"), (0.31, "shows no change beyond chance")],
)
def test_a_single_run_tells_before_and_after(write_run: WriteRun, end: float, words: str) -> None:
    comparison = _compare(write_run("f_tis", nodes={"small": {"test": (0.30, end)}}))
    assert comparison.verdict == (
        f"small {words}: 30.0 \u00b1 1.0 % before, {100 * end:.1f} \u00b1 1.0 % after "
        f"({100 * end - 30:+.1f} \u00b1 1.4 points)."
    )
    assert comparison.differences == ()


def test_a_swarm_alone_says_that_joining_is_not_judged(write_run: WriteRun) -> None:
    assert any("No run with method on_policy" in note for note in _compare(write_run("f_tis")).notes)


def test_an_interrupted_run_is_said_and_claims_no_savings(write_run: WriteRun) -> None:
    comparison = _compare(write_run("on_policy", rounds=20), write_run("f_tis", rounds=10, is_finished=False))
    assert any("interrupted after round 10 of 10" in note for note in comparison.notes)
    assert any("not equally long: 10, 20 rounds" in note for note in comparison.notes)
    assert "generating" not in comparison.verdict


def test_without_an_evaluation_there_is_no_verdict(write_run: WriteRun) -> None:
    path = write_run("f_tis", is_finished=False)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in row.items() if not key.startswith("accuracy")} for row in rows]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    assert "nothing to judge yet" in _compare(path).verdict


def test_nodes_that_only_some_arms_have_are_not_compared(write_run: WriteRun) -> None:
    comparison = _one_seed(write_run, on_policy={"small": 0.43}, f_tis={"small": 0.43, "large": 0.6})
    assert {row.node for row in comparison.differences} == {"small"}
    assert ("large", "alone") not in comparison.cells


def test_runs_of_unlike_tasks_are_warned_of(write_run: WriteRun) -> None:
    paths = [write_run("on_policy"), write_run("f_tis")]
    config = paths[1] / "config.toml"
    config.write_text(config.read_text().replace("running_sums", "other.jsonl"))
    assert any("differ in task.name" in note for note in _compare(*paths).notes)


def test_json_holds_what_the_table_shows(write_run: WriteRun) -> None:
    comparison = _compare(write_run("on_policy"), write_run("f_tis"))
    found = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert found["verdict"] == comparison.verdict
    assert [run["arm"] for run in found["runs"]] == ["alone", "F-TIS"]
    small = found["nodes"]["small"]
    assert (small["model"], small["parameters"]) == ("tiny:small", 75_000)
    arm = small["arms"]["F-TIS"]
    assert arm["accuracy"]["test"]["end"] == {"value": 0.43, "se": 0.01, "over": "prompts", "n": 1024}
    assert (arm["method"], arm["seeds"], arm["completions_generated"]) == ("f_tis", [0], 2560.0)
    assert (arm["bytes_per_token"], arm["seconds"]) == (6.1, 70.2)
    assert small["arms"]["alone"]["bytes_per_token"] is None
    assert found["differences"][0]["standing"] == "level"
