"""Differences paired by seed, the weaker node, collapse, and the way to the baseline, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from motet.study import Row, Table
from motet.study.table import accuracy, accuracy_at, drop_from_peak, has_collapsed

Make = Callable[..., Any]


def test_the_baseline_comes_first(rows: Make, table: Callable[..., Table]) -> None:
    made = table(rows("f_tis", [0.5]), rows("alone", [0.5]), rows("own", [0.5], pair="other"))
    assert made.arms == ["alone", "f_tis", "own"]
    assert made.pairs == ["size", "other"]
    assert made.arms_of("size") == ["alone", "f_tis"]
    assert made.members("f_tis", "alone") == [("size", "small")]
    assert made.members("own", "alone") == []


def test_differences_are_paired_by_seed(row: Make, table: Callable[..., Table]) -> None:
    made = table(
        [row("f_tis", test=0.5, seed=1), row("f_tis", test=0.7, seed=2), row("f_tis", test=0.1, seed=9)],
        [row(test=0.4, seed=2), row(test=0.45, seed=1), row(test=0.9, seed=5)],
    )
    mean = made.difference("size", "small", "f_tis", "alone", accuracy("test"))
    assert mean is not None
    assert mean.value == pytest.approx((0.05 + 0.30) / 2)
    assert mean.n == 2
    assert made.difference("size", "small", "f_tis", "nois", accuracy("test")) is None
    assert made.difference("size", "small", "f_tis", "alone", accuracy("test_greedy")) is None


def test_weaker_and_stronger_follow_the_baseline(rows: Make, table: Callable[..., Table]) -> None:
    made = table(
        rows("alone", [0.4, 0.5], node="small"),
        rows("alone", [0.6, 0.5], node="large"),
        rows("f_tis", [0.9], node="small"),
    )
    assert (made.weaker("size"), made.stronger("size")) == ("small", "large")
    assert table(rows("f_tis", [0.9])).weaker("size") is None
    assert table(rows("f_tis", [0.9])).stronger("size") is None


def test_a_collapse_is_more_than_chance(row: Make) -> None:
    # 2 sqrt((.25 + .24) / 100) = .14
    assert not has_collapsed(row(start=0.5, test=0.4, num_prompts=100))
    assert has_collapsed(row(start=0.5, test=0.4, num_prompts=400))  # 2 sqrt(.49 / 400) = .07
    assert not has_collapsed(row(start=0.5, test=0.6, num_prompts=400))


def test_collapsed_counts_rows(rows: Make, table: Callable[..., Table]) -> None:
    made = table(rows("nois", [0.1, 0.5, 0.4], start=0.3), rows("alone", [0.5], start=0.3))
    assert made.collapsed("nois") == (1, 3)
    assert made.collapsed("alone") == (0, 1)
    assert made.collapsed("vis") == (0, 0)


def test_the_start_is_a_mean_over_seeds_not_over_arms(row: Make, table: Callable[..., Table]) -> None:
    made = table([row("alone", start=0.2, seed=0), row("f_tis", start=0.2, seed=0), row("alone", start=0.4, seed=1)])
    start = made.start("size", "small", "test")
    assert start is not None
    assert (start.value, start.n) == (pytest.approx(0.3), 2)
    assert made.start("size", "small", "test_greedy") is None


def test_the_way_to_the_baseline_is_interpolated(row: Make, table: Callable[..., Table]) -> None:
    # The baseline ends at .51, so .50 counts. .40 at round 5 to .60 at round 10: halfway, round 7.5.
    made = table([row(test=0.51)], [row("f_tis", curve=[0.2, 0.4, 0.6]), row("f_tis", curve=[0.2, 0.3, 0.4], seed=1)])
    rounds, seconds, num_reached = made.to_baseline("size", "small", "f_tis")
    assert rounds is not None
    assert seconds is not None
    assert rounds.value == pytest.approx(7.5)
    assert seconds.value == pytest.approx(75.0)
    assert num_reached == 1


@pytest.mark.parametrize(
    ("curve", "reached"),
    [
        ([0.6, 0.2, 0.6], 0.0),  # there from the beginning, whatever comes later
        ([0.2, 0.6, 0.3], 3.75),  # falling off again does not undo it: (.50 - .2) / .4 of 5 rounds
        ([0.2, 0.3, 0.4], None),
    ],
)
def test_the_first_time_counts(
    row: Make, table: Callable[..., Table], curve: list[float], reached: float | None
) -> None:
    made = table([row(test=0.51)], [row("f_tis", curve=curve)])
    rounds, _, num_reached = made.to_baseline("size", "small", "f_tis")
    assert num_reached == (reached is not None)
    assert (None if rounds is None else rounds.value) == (None if reached is None else pytest.approx(reached))


def test_without_a_baseline_nothing_is_reached(row: Make, table: Callable[..., Table]) -> None:
    assert table([row("f_tis")]).to_baseline("size", "small", "f_tis") == (None, None, 0)


def test_measures(row: Make) -> None:
    one: Row = row(curve=[0.2, 0.5, 0.9, 0.6], ood=None)  # at rounds 0, 3, 7, 10
    assert drop_from_peak(one) == pytest.approx(0.3)
    assert accuracy_at("test", 1 / 3)(one) == 0.5
    assert accuracy_at("test", 1.0)(one) == 0.6
    assert accuracy_at("ood", 1 / 3)(one) is None
    assert accuracy("ood")(one) is None
