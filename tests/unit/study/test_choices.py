"""What a node that chooses among arms would have, and what it paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from motet.config.study_file import ChoiceSettings
from motet.study import Row, Table
from motet.study.choices import chosen_rows
from motet.study.curves import curves_of

Make = Callable[..., Any]
CHOICE = ChoiceSettings(reference="alone", of=("f_tis", "tis"))
POOR, FAIR, GOOD = ([0.0] * (1000 - n) + [1.0] * n for n in (300, 500, 700))


def answers(**by_arm: list[float]) -> dict[tuple[str, str, int, str], dict[Any, list[float]]]:
    return {("size", arm, 0, "small"): {"test": values} for arm, values in by_arm.items()}


def chosen(rows: list[Row], **by_arm: list[float]) -> list[Row]:
    return list(chosen_rows("kept", CHOICE, rows, answers(**by_arm), margin=0.02))


def test_the_arm_that_is_taken_gives_the_numbers(row: Make) -> None:
    rows = [row("alone", test=0.5), row("f_tis", test=0.6, tokens_sent=7), row("tis", test=0.7, bytes_per_token=3.0)]
    (kept,) = chosen(rows, alone=FAIR, f_tis=GOOD, tis=POOR)
    assert (kept.arm, kept.method, kept.settings["taken"]) == ("kept", "choice", "f_tis")
    assert kept.accuracy == rows[1].accuracy
    assert kept.start == rows[1].start


def test_it_costs_what_all_cost(row: Make) -> None:
    (kept,) = chosen([row(arm) for arm in ("alone", "f_tis", "tis")], alone=FAIR, f_tis=FAIR, tis=FAIR)
    assert kept.settings["taken"] == "alone"
    assert (kept.completions, kept.steps, kept.node_seconds) == (3 * 2560, 3 * 10, 300.0)
    assert kept.seconds == 0.0, "the runs' own rows have it"
    assert kept.curve.rounds == ()


def test_without_an_arm_or_its_answers_there_is_no_choice(row: Make) -> None:
    assert chosen([row("alone"), row("f_tis")], alone=FAIR, f_tis=GOOD, tis=GOOD) == []
    assert chosen([row(arm) for arm in ("alone", "f_tis", "tis")], alone=FAIR, f_tis=GOOD) == []


def test_answers_to_other_prompts_are_not_compared(row: Make) -> None:
    rows = [row(arm) for arm in ("alone", "f_tis", "tis")]
    assert chosen(rows, alone=FAIR, f_tis=GOOD[:900], tis=GOOD) == []
    few = ChoiceSettings(reference="alone", of=("f_tis", "tis"), num_prompts=900)
    (kept,) = chosen_rows("k", few, rows, answers(alone=FAIR, f_tis=GOOD[:900], tis=POOR), margin=0.02)
    assert kept.settings["taken"] == "f_tis"


def test_a_choice_has_no_line_in_the_curves(row: Make) -> None:
    rows = [row(arm) for arm in ("alone", "f_tis", "tis")]
    rows += chosen(rows, alone=FAIR, f_tis=GOOD, tis=GOOD)
    table = Table(rows, baseline="alone")
    assert table.to_baseline("size", "small", "kept") == (None, None, 0)
    (chart,) = curves_of(table, "size", title="t")
    assert [line.label for line in chart.panels[0].lines] == ["alone", "f_tis", "tis"]
