"""Charts of a study: every arm and node is drawn somewhere, and means are those of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from motet.study import Table
from motet.study.curves import curves_of

Make = Callable[..., Any]


def test_one_chart_by_hand(row: Make, table: Callable[..., Table]) -> None:
    made = table([row(curve=[0.2, 0.4, 0.6]), row(curve=[0.4, 0.6, 0.8], seed=1)])
    (chart,) = curves_of(made, "size", title="two sizes")
    assert chart.title == "two sizes"
    assert [panel.title for panel in chart.panels] == ["small, in distribution", "small, out of distribution"]
    (line,) = chart.panels[0].lines
    assert line.rounds == (0.0, 5.0, 10.0)
    assert line.values == pytest.approx((30.0, 50.0, 70.0))
    assert line.errors == pytest.approx((10.0, 10.0, 10.0))
    assert line.end_error == pytest.approx(10.0)
    assert chart.panels[0].level == (pytest.approx(30.0), "")


def test_a_lone_seed_has_no_band(row: Make, table: Callable[..., Table]) -> None:
    (chart,) = curves_of(table([row(ood=None)]), "size", title="t")
    assert len(chart.panels) == 1
    assert chart.panels[0].lines[0].errors == ()
    assert chart.panels[0].lines[0].end_error is None


def test_only_rounds_that_all_seeds_have(row: Make, table: Callable[..., Table]) -> None:
    made = table([row(curve=[0.2, 0.4, 0.6]), row(curve=[0.2, 0.3, 0.5, 0.6], seed=1)])
    (chart,) = curves_of(made, "size", title="t")
    assert chart.panels[0].lines[0].rounds == (0.0, 10.0)


def test_added_arms_are_drawn_too(rows: Make, table: Callable[..., Table]) -> None:
    own = [f"own_{number}" for number in range(7)]
    made = table(*(rows(arm, [0.5]) for arm in ["own_0", "alone", "nois", "f_tis", *own[1:]]))
    charts = curves_of(made, "size", title="t")
    assert [chart.title for chart in charts] == ["t (1 of 2)", "t (2 of 2)"]
    drawn = [[line.label for line in chart.panels[0].lines] for chart in charts]
    assert drawn[0][:3] == ["alone", "f_tis", "nois"]
    assert drawn[1][0] == "alone"
    assert {arm for arms in drawn for arm in arms} == set(made.arms)
    assert max(map(len, drawn)) == 7


def test_many_nodes_do_not_make_a_tower(rows: Make, table: Callable[..., Table]) -> None:
    made = table(*(rows("alone", [0.5], node=f"n{number}") for number in range(8)))
    charts = curves_of(made, "size", title="t")
    assert [len(chart.panels) for chart in charts] == [12, 4]
    assert [panel.title[:2] for panel in charts[0].panels[:6]] == ["n0", "n1", "n2"] * 2
