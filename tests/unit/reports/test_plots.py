"""Charts drawn as SVG and PNG."""

from __future__ import annotations

import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.reports import compare, read_run
from motet.reports.charts import Chart, Line, Panel, accuracy_chart
from motet.reports.plots import draw_png, draw_svg, spread


def _chart(name: str = "small", *, kind: str = "line") -> Chart:
    line = Line("F-TIS", "f_tis", (0.0, 1.0, 2.0), (30.0, 40.0, 43.0), end_error=1.0)
    return Chart("T", "c", "%", (Panel(name, (line,)),), 1, kind=kind, shows_ends=True)


def _pixels(path: Path) -> tuple[int, int, set[bytes]]:
    """Width, height and the distinct colours of some rows, by the PNG specification: no filter is undone."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    body, position = b"", 8
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IDAT":
            body += data[position + 8 : position + 8 + length]
        position += 12 + length
    raw = zlib.decompress(body)
    stride = 1 + 4 * width
    assert len(raw) == height * stride
    return width, height, {raw[row * stride + 1 : (row + 1) * stride] for row in range(height)}


def test_png_is_a_picture_and_not_blank(three_runs: list[Path], tmp_path: Path) -> None:
    chart = accuracy_chart(compare([read_run(path) for path in three_runs]))
    assert chart is not None
    draw_png(chart, tmp_path / "new" / "folder" / "a.png")
    width, height, rows = _pixels(tmp_path / "new" / "folder" / "a.png")
    assert width == 1800
    assert height > 400
    assert len(rows) > 100


def test_svg_has_no_address_no_fixed_size_and_its_own_ids() -> None:
    svg = draw_svg(_chart(), name="c7")
    assert svg.startswith("<svg")
    assert "http" not in svg
    assert "<!--" not in svg
    assert " viewBox=" in svg
    assert " width=" not in svg.partition(">")[0]
    ids = set(re.findall(r' id="([^"]*)"', svg))
    assert ids
    assert all(one.startswith("c7-") for one in ids)
    used = set(re.findall(r'href="#([^"]*)"', svg)) | set(re.findall(r"url\(#([^)]*)\)", svg))
    assert used
    assert used <= ids


def test_svg_is_the_same_each_time() -> None:
    assert draw_svg(_chart(), name="c0") == draw_svg(_chart(), name="c0")


def test_text_takes_the_colour_of_the_page() -> None:
    svg = draw_svg(_chart(), name="c0")
    assert "currentColor" in svg
    assert "#1b1f24" not in svg


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>", "$x^2$", "$\\frac{", "a\x00b\u4f60\U0001f600", "x" * 500, "--!>"]
)
def test_any_name_is_drawn_as_text(name: str) -> None:
    svg = draw_svg(_chart(name), name="c0")
    assert "<img" not in svg
    assert "--!>" not in svg
    assert "\x00" not in svg


@pytest.mark.parametrize("kind", ["line", "stacked", "log"])
def test_a_chart_without_points_says_so(kind: str) -> None:
    empty = Chart("T", "c", "%", (Panel("a", ()),), 1, kind=kind)
    assert "no data" in draw_svg(empty, name="c0")


@given(st.lists(st.floats(-100, 100), max_size=8), st.floats(0.1, 20))
def test_labels_keep_their_order_and_distance(positions: list[float], gap: float) -> None:
    found = spread(sorted(positions), gap=gap)
    assert len(found) == len(positions)
    assert all(second - first >= gap - 1e-9 for first, second in pairwise(found))
    assert sum(found) == pytest.approx(sum(positions), abs=1e-6)
