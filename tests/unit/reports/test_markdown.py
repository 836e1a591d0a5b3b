"""The Markdown tables: every number of the comparison, and nothing that a name could break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from motet.reports import compare, read_run, render_markdown

WriteRun = Callable[..., Path]


def test_tables_hold_the_numbers(write_run: WriteRun) -> None:
    runs = [
        write_run(method, se=0.01, nodes={"small": {"test": (0.30, end)}})
        for method, end in (("on_policy", 0.50), ("f_tis", 0.49), ("nois", 0.40))
    ]
    text = render_markdown(compare([read_run(path) for path in runs]))
    assert "| model | accuracy in % | before | alone | F-TIS | NoIS |" in text
    assert "| small | held-out | 30.0 \u00b1 1.0 | 50.0 \u00b1 1.0 | 49.0 \u00b1 1.0 | 40.0 \u00b1 1.0 |" in text
    assert "| small | held-out | NoIS - F-TIS | -9.0 \u00b1 1.4 points | below |" in text
    assert text.startswith("F-TIS ends level with training alone")


def test_a_bar_in_a_name_does_not_break_the_table(write_run: WriteRun) -> None:
    text = render_markdown(compare([read_run(write_run("f_tis", nodes={"a|b": {"test": (0.3, 0.4)}}))]))
    rows = [line for line in text.splitlines() if line.startswith("| a")]
    assert rows
    assert all(row.startswith("| a\\|b |") for row in rows)
