"""Draws charts as SVG for the page and as PNG. The only file that knows matplotlib, imported when it draws."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.reports.charts import Chart, Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#1b1f24"
"""Text and axes. In SVG it becomes the colour of the page's text, so that a dark page can be read."""
_BLUE = "#0072b2"
"""In SVG the page's --blue, which is lighter on a dark page."""
_FAINT = "#8a8f98"
_MUTED = "#7b818a"
# Okabe and Ito's colours, told apart by people with any colour vision; alone is grey, being what others are held to.
_COLORS = {
    "on_policy": _MUTED,
    "f_tis": _BLUE,
    "nois": "#d55e00",
    "tis": "#009e73",
    "vis": "#cc79a7",
    "f_vis": "#56b4e9",
    "f_nois": "#e69f00",
    "advantage": "#56b4e9",
    "kl": "#d55e00",
    "advantage_and_kl": "#cc79a7",
    "non_finite": _INK,
    "rule": "#009e73",
}
_MARKERS = {"on_policy": "s", "f_tis": "o", "nois": "^"}
_SPARE_COLORS = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a800", _BLUE)
_WIDTH_IN = 9.0
# Fixed margins: measuring every label for a layout would double the time of a report.
_LEFT_IN, _BOTTOM_IN, _PANEL_IN, _ROW_GAP_IN = 0.72, 0.5, 1.75, 0.42
_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.alpha": 0.28,
    "grid.linewidth": 0.7,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "motet",
    "text.parse_math": False,  # names are text, also with dollar signs in them
}


def draw_svg(chart: Chart, *, name: str) -> str:
    """An <svg> element to put into a page.

    Args:
        chart: what to draw.
        name: prefix of the element's ids; unique in the page, letters and digits.
    """
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = _draw(chart)
        text = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return _inlined(text.getvalue(), name)


def draw_png(chart: Chart, path: Path) -> None:
    """A picture on white, 1800 pixels wide, that can be read at half of that."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = _draw(chart, heading=chart.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", dpi=200, facecolor="white", metadata={"Software": None})


def _draw(chart: Chart, heading: str = "") -> Figure:
    from matplotlib.figure import Figure

    num_rows = math.ceil(len(chart.panels) / chart.num_columns)
    top_in = 0.75 + (0.35 if heading else 0.0)
    height_in = top_in + num_rows * _PANEL_IN + (num_rows - 1) * _ROW_GAP_IN + _BOTTOM_IN
    column_gap_in = 0.62 if chart.shows_ends else 0.22
    inside_in = _WIDTH_IN - _LEFT_IN - column_gap_in - (chart.num_columns - 1) * column_gap_in
    figure = Figure(figsize=(_WIDTH_IN, height_in))
    all_axes = figure.subplots(
        num_rows,
        chart.num_columns,
        squeeze=False,
        sharey="row",
        sharex=True,
        gridspec_kw={
            "left": _LEFT_IN / _WIDTH_IN,
            "right": 1 - column_gap_in / _WIDTH_IN,
            "top": 1 - top_in / height_in,
            "bottom": _BOTTOM_IN / height_in,
            "wspace": column_gap_in * chart.num_columns / inside_in,
            "hspace": _ROW_GAP_IN / _PANEL_IN,
        },
    )
    colors = _line_colors(chart.panels)
    for position, axes in enumerate(all_axes.flat):
        if position >= len(chart.panels):
            axes.set_visible(False)
            continue
        _draw_panel(axes, chart, chart.panels[position], colors)
        if position % chart.num_columns == 0:
            axes.set_ylabel(chart.unit)
        if position + chart.num_columns >= len(chart.panels):
            axes.set_xlabel("rounds done")
            axes.tick_params(labelbottom=True)
    if chart.shows_ends:
        for axes, panel in zip(all_axes.flat, chart.panels, strict=False):
            _write_ends(axes, panel.lines, colors)
    _draw_legend(figure, chart, colors, heading)
    return figure


def _draw_panel(axes: Axes, chart: Chart, panel: Panel, colors: dict[str, str]) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_title(_label(panel.title))
    if panel.level is not None:
        axes.axhline(panel.level[0], color=_INK, linewidth=1.1, linestyle=":", zorder=1.5)
        if panel.level[1]:
            axes.annotate(
                panel.level[1],
                (1, panel.level[0]),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                fontsize=9,
            )
    if chart.kind == "stacked" and panel.lines:
        axes.stackplot(
            panel.lines[0].rounds,
            [line.values for line in panel.lines],
            colors=[colors[line.label] for line in panel.lines],
            linewidth=0,
        )
        axes.set_ylim(0, 100)
    elif chart.kind != "stacked":
        for line in panel.lines:
            _draw_line(axes, line, colors[line.label], has_ends=chart.shows_ends)
    if chart.kind == "log" and any(value > 0 for line in panel.lines for value in line.values):
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    if not panel.lines:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=_MUTED)
    axes.margins(x=0.02)


def _draw_line(axes: Axes, line: Line, color: str, *, has_ends: bool) -> None:
    marker = _MARKERS.get(line.style, "D") if has_ends and len(line.rounds) <= 40 else None
    axes.plot(
        line.rounds,
        line.values,
        color=color,
        linestyle="--" if line.is_dashed else "-",
        marker=marker,
        markersize=4.5,
        linewidth=1.4 if line.is_dashed else 2.0,
    )
    if line.errors:
        low = [value - error for value, error in zip(line.values, line.errors, strict=True)]
        high = [value + error for value, error in zip(line.values, line.errors, strict=True)]
        axes.fill_between(line.rounds, low, high, color=color, alpha=0.18, linewidth=0)
    elif line.end_error is not None:
        axes.errorbar(line.rounds[-1:], line.values[-1:], yerr=line.end_error, color=color, capsize=3, linewidth=1.4)


def _write_ends(axes: Axes, lines: Sequence[Line], colors: dict[str, str]) -> None:
    """Last values at the right edge, in the colour of their line, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    lines = sorted(lines, key=lambda line: line.values[-1])
    heights = spread([line.values[-1] for line in lines], gap=0.105 * (high - low))
    for line, height in zip(lines, heights, strict=True):
        axes.annotate(
            f"{line.values[-1]:.1f}",
            (1.0, height),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colors[line.label],
            fontsize=10,
            fontweight="bold",
            annotation_clip=False,
        )


def spread(ascending: Sequence[float], *, gap: float) -> list[float]:
    """The positions nearest to the given ones that are at least `gap` apart, neighbours sharing the way.

    >>> spread([1.0, 1.0, 5.0], gap=2.0)
    [0.0, 2.0, 5.0]
    """
    blocks: list[list[float]] = []
    for position in ascending:
        blocks.append([position])
        while len(blocks) > 1 and _first_of(blocks[-1], gap) < _first_of(blocks[-2], gap) + gap * len(blocks[-2]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_first_of(block, gap) + gap * place for block in blocks for place in range(len(block))]


def _first_of(block: Sequence[float], gap: float) -> float:
    return sum(block) / len(block) - gap * (len(block) - 1) / 2


def _draw_legend(figure: Figure, chart: Chart, colors: dict[str, str], heading: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    styles = {line.label: line.style for panel in chart.panels for line in panel.lines}
    handles: list[Line2D | Patch] = []
    for label, color in colors.items():
        if chart.kind == "stacked":
            handles.append(Patch(color=color, label=_label(label)))
        else:
            marker = _MARKERS.get(styles[label], "D") if chart.shows_ends else None
            handles.append(Line2D([], [], color=color, marker=marker, markersize=4.5, label=_label(label)))
    if chart.shows_ends:
        handles.append(Line2D([], [], color=_INK, linestyle=":", linewidth=1.1, label="before training"))
    height = figure.get_figheight()
    if heading:
        figure.text(0.012, 1 - 0.12 / height, heading, fontsize=13, fontweight="bold", va="top")
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 1 - (0.38 if heading else 0.02) / height),
        ncols=min(len(handles), 5),
        borderaxespad=0.2,
        columnspacing=1.6,
        handlelength=1.8,
    )


def _line_colors(panels: Sequence[Panel]) -> dict[str, str]:
    """A colour for each label. Arms of one method differ in it: the first has the method's own."""
    colors: dict[str, str] = {}
    for line in (line for panel in panels for line in panel.lines):
        if line.label in colors:
            continue
        color = _COLORS.get(line.style, _SPARE_COLORS[0])
        spare = [other for other in _SPARE_COLORS if other not in colors.values()]
        colors[line.label] = spare[0] if color in colors.values() and spare else color
    return colors


def _label(text: str) -> str:
    """Text that the font can show: other characters become question marks, long names are cut."""
    shown = "".join(char if char.isprintable() and ord(char) < 0x250 else "?" for char in text)
    return shown if len(shown) <= 48 else f"{shown[:45]}..."


def _inlined(svg: str, name: str) -> str:
    """Without prologue, namespaces and fixed size; ids made unique; ink in the colour of the page."""
    svg = re.sub(r"<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r' id="', f' id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = (
        svg.replace(_INK, "currentColor")
        .replace(_BLUE, "var(--blue)")
        .replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    )
    return re.sub(r"\n\s*", "\n", svg)
