"""What the curves show, before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from motet.journal import JsonLinesWriter, RunDir
from motet.reports import Comparison, compare, read_run
from motet.reports.charts import MAX_POINTS, Chart, accuracy_chart, line_over_seeds, process_charts, thinned
from motet.reports.run_view import Series

WriteRun = Callable[..., Path]


def _by_title(comparison: Comparison) -> dict[str, Chart]:
    return {chart.title: chart for chart in process_charts(comparison)}


def test_accuracy_has_a_panel_for_each_node_and_split(write_run: WriteRun) -> None:
    nodes = {name: {"test": (0.3, 0.5), "ood": (0.1, 0.2)} for name in ("small", "large")}
    chart = accuracy_chart(compare([read_run(write_run(method, nodes=nodes)) for method in ("on_policy", "f_tis")]))
    assert chart is not None
    assert [panel.title for panel in chart.panels] == [
        "small, in distribution",
        "large, in distribution",
        "small, out of distribution",
        "large, out of distribution",
    ]
    panel = chart.panels[0]
    assert [line.label for line in panel.lines] == ["alone", "F-TIS"]
    assert panel.level == (pytest.approx(30.0), "")
    assert panel.lines[0].rounds[0] == 0
    assert panel.lines[0].values[-1] == pytest.approx(50.0)
    assert panel.lines[0].end_error == pytest.approx(1.0)
    assert panel.lines[0].errors == ()


def test_several_seeds_have_a_band(write_run: WriteRun) -> None:
    runs = [write_run("f_tis", seed=seed, nodes={"small": {"test": (0.3, 0.4 + 0.1 * seed)}}) for seed in (0, 1)]
    chart = accuracy_chart(compare([read_run(run) for run in runs]))
    assert chart is not None
    line = chart.panels[0].lines[0]
    assert line.values[-1] == pytest.approx(45.0)
    assert line.errors[-1] == pytest.approx(5.0)  # 40 and 50: deviation 5 each, variance 50, over 2, root 5
    assert line.errors[0] == 0.0
    assert len(line.errors) == len(line.values)


def test_without_evaluations_there_is_no_accuracy_chart(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        metrics.write({"round": 0, "node": "a", "reward/mean": 0.5})
    comparison = compare([read_run(run_dir.path)])
    assert accuracy_chart(comparison) is None
    assert list(_by_title(comparison)) == ["Reward"]


def test_long_series_are_averaged_and_short_ones_left() -> None:
    series = Series(tuple(range(300)), tuple(float(round) for round in range(300)))
    short = thinned(series)
    assert len(short.values) == MAX_POINTS
    assert short.values[:2] == (2.0, 7.0)
    assert short.rounds[:2] == (2, 7)
    assert thinned(short) is short


def test_seeds_meet_on_the_rounds_they_share() -> None:
    line = line_over_seeds("x", "f_tis", [Series((0, 1, 2), (1.0, 2.0, 9.0)), Series((1, 2), (4.0, 9.0))])
    assert line is not None
    assert line.rounds == (2.0, 3.0)
    assert line.values == (3.0, 9.0)
    assert line.errors == (1.0, 0.0)
    assert line_over_seeds("x", "f_tis", [Series((0,), (1.0,)), Series((1,), (1.0,))]) is None


def test_dropped_shares_add_up_to_the_share_dropped(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        row = {"node": "a", "filter/dropped_share": 0.5, "filter/dropped/advantage": 30, "filter/dropped/kl": 10}
        metrics.write({"round": 0, **row})
        metrics.write(
            {"round": 1, **row, "filter/dropped_share": 0.0, "filter/dropped/advantage": 0, "filter/dropped/kl": 0}
        )
    chart = _by_title(compare([read_run(run_dir.path)]))["Dropped by the filter"]
    assert chart.kind == "stacked"
    found = {line.label: line.values for line in chart.panels[0].lines}
    assert found == {"advantage not above 0": (37.5, 0.0), "KL above the limit": (12.5, 0.0)}


def test_what_an_own_rule_dropped_is_drawn(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        for round in range(2):
            metrics.write({"round": round, "node": "a", "filter/dropped_share": 0.5, "filter/dropped/rule": 0.5})
    (panel,) = _by_title(compare([read_run(run_dir.path)]))["Dropped by the filter"].panels
    assert {line.label: line.values for line in panel.lines} == {"own rule": (50.0, 50.0)}


def test_the_other_curves(write_run: WriteRun) -> None:
    charts = _by_title(compare([read_run(write_run(method, rounds=120)) for method in ("on_policy", "f_tis", "nois")]))
    assert list(charts) == [
        "Reward",
        "Distance of external completions",
        "Dropped by the filter",
        "Influence of others",
        "Sent",
        "Bytes per token",
    ]
    assert [line.label for line in charts["Reward"].panels[0].lines] == ["alone", "F-TIS", "NoIS"]
    distance = charts["Distance of external completions"].panels[0]
    assert [(line.label, line.is_dashed) for line in distance.lines] == [
        ("F-TIS", False), ("F-TIS", True), ("NoIS", False), ("NoIS", True),
    ]  # fmt: skip
    assert distance.level == (50.0, "filter's limit")
    assert [panel.title for panel in charts["Dropped by the filter"].panels] == ["F-TIS: small", "F-TIS: large"]
    sent = charts["Sent"].panels[0].lines[0].values
    assert list(sent) == sorted(sent)
    assert sent[-1] == pytest.approx(120 * 0.00925, rel=0.02)
    assert "A point is the mean of 2 rounds." in charts["Reward"].caption


def test_an_arm_alone_has_no_line_for_what_it_does_not_do(write_run: WriteRun) -> None:
    path = write_run("on_policy")
    with JsonLinesWriter(path / "metrics.jsonl") as metrics:
        metrics.write({"round": 20, "node": "small", "wire/bytes_sent": 0, "kl_gen_old/sum_p50": None})
    assert list(_by_title(compare([read_run(path)]))) == ["Reward"]
