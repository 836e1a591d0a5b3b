"""From run directories to a report on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from motet.reports.charts import accuracy_chart
from motet.reports.compare import Comparison, compare
from motet.reports.html import render_page
from motet.reports.plots import draw_png
from motet.reports.run_view import read_run


def write_report(run_dirs: Sequence[Path], *, html: Path, png: Path | None) -> Comparison:
    """Reads the runs, writes the page and the picture of their held-out accuracy, and returns the numbers.

    Args:
        run_dirs: at least one run directory; runs of several methods and seeds are compared.
        html: file of the page.
        png: file of the picture; None for none. Without any evaluation there is nothing to draw: then no file is
            left, nor an old one.

    Raises:
        UsageError: E-RUN-02, E-REPORT-01 or E-REPORT-02, see `read_run`.
        RunFailed: E-JOURNAL-01, a damaged journal.
    """
    comparison = compare([read_run(path) for path in run_dirs])
    html.parent.mkdir(parents=True, exist_ok=True)
    html.write_text(render_page(comparison), encoding="utf-8")
    if png is not None:
        chart = accuracy_chart(comparison)
        if chart is None:
            png.unlink(missing_ok=True)
        else:
            draw_png(chart, png)
    return comparison
