"""The table of `motet eval` fits 80 columns, and no completion reaches the terminal as it is."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from motet.cli.eval import Measured
from motet.cli.eval_view import failures, footnotes, readable, results_table
from motet.evaluation import Accuracy, Evaluation, Sample

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\u202e[bold]8\u200b"
SAMPLE = Sample(
    prompt_id="test/0",
    prompt="3+5=",
    completion=f"is\n{HOSTILE}",
    reward=0.0,
    expected="8",
    extracted=None,
    outcome="truncated",
    is_cut=True,
    num_tokens=24,
)


def evaluation(**changes: object) -> Evaluation:
    result = Evaluation(
        accuracy=Accuracy.of([1.0] * 3 + [0.0] * 997),
        reward=Accuracy.of([1.0] * 3 + [0.0] * 997),
        outcomes={"solved": 0.003, "wrong": 0.5, "format": 0.3, "truncated": 0.197, "unscored": 0.0},
        cut_share=0.2,
        num_completions=1,
        num_solved=[1] * 3 + [0] * 997,
        samples=[SAMPLE, replace(SAMPLE, outcome="solved"), replace(SAMPLE, outcome="wrong", prompt_id="test/2")],
    )
    return replace(result, **changes)


def measured(**changes: object) -> Measured:
    one = Measured("HuggingFaceTB/SmolLM2-135M-Instruct", "running_sums", "test", "pass@1", 1.0, (1,), evaluation())
    return replace(one, **changes)


def shown(*all_measured: Measured) -> list[str]:
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False, emoji=False)
    console.print(results_table(all_measured))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_one_line_for_each_measure_with_the_reasons_apart() -> None:
    head, *lines = shown(measured(model="small"))
    assert head.split() == ["model", "prompts", "measure", "%", "right", "95", "%", "n", "wrong", "format", "cut"]
    assert [line.split() for line in lines] == [
        ["small", "test", "pass@1", "0.3", "0.1..0.9", "1000", "50%", "30%", "20%"]
    ]
    assert footnotes([measured()]) == (
        "n: prompts; 95 %: Wilson's interval\nwrong, format, cut: completions that failed, by reason"
    )


def test_pass_at_k_and_what_is_not_usual_has_its_place_in_80_columns() -> None:
    rewards = Accuracy.of([0.5, 0.0, 1.5])
    outcomes = {"solved": 0.25, "wrong": 0.25, "format": 0.0, "truncated": 0.25, "unscored": 0.25}
    several = evaluation(
        accuracy=Accuracy.of([1.0, 0.5, 0.0]),
        reward=rewards,
        outcomes=outcomes,
        num_completions=4,
        num_solved=[4, 2, 0],
    )
    lines = shown(measured(result=several, ks=(1, 2, 4)), measured(task="gym:chain_sum", label="greedy"))
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert lines[0].split()[-3:] == ["cut", "lost", "reward"]
    text = "\n".join(lines)
    assert all(word in text for word in ("pass@1", "pass@2", "pass@4", "greedy", "0.667"))
    assert all(len(line) <= 80 for line in footnotes([measured(result=several)]).splitlines())
    assert "*: mean -+ 1.96 standard errors" in footnotes([measured(result=several)])
    assert footnotes([measured(result=several)]).endswith("; lost: no score")


def test_failures_are_shown_up_to_the_limit_and_escaped() -> None:
    first, more = failures([measured(model="small")], most=1)
    assert first.splitlines() == [
        "--- small, running_sums test/0, pass@1: truncated (reward 0) ---",
        "prompt",
        "  | 3+5=",
        "expected   8",
        "extracted  (nothing)",
        "completion (24 tokens, cut)",
        "  | is",
        r"  | \x1b]0;owned\x07\x1b[2J\r\u202e[bold]8\u200b",
    ]
    assert more == "... and 1 more (small, running_sums test, pass@1)\n"
    assert len(list(failures([measured()], most=9))) == 2


def test_a_long_completion_is_shortened() -> None:
    long = evaluation(samples=[replace(SAMPLE, completion="x" * 5000, reward=None, outcome="unscored")])
    (text,) = failures([measured(result=long)], most=1)
    assert "unscored (reward none)" in text
    assert "... (3000 more characters)" in text
    assert len(text) < 2300


@pytest.mark.parametrize("text", ["\x00", "\x1b[31m", "\u2066", "\ud800", "\u2028", "\x9b31m"])
def test_what_does_not_print_is_escaped(text: str) -> None:
    assert readable(text).isprintable()
    assert readable(f"a{text}").startswith("a\\")


def test_what_prints_stays() -> None:
    assert readable("42\n\u00e9 \u4e2d \u221a") == "42\n\u00e9 \u4e2d \u221a"
