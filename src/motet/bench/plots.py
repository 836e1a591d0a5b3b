"""The picture of `bench growth`. This bench's only file that knows matplotlib, imported when it draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_COLORS = {"seconds": "#1b1f24", "generate_s": "#0072b2", "learn_s": "#d55e00", "wire_s": "#009e73"}
_WORDS = {"seconds": "round", "generate_s": "sampling", "learn_s": "learning", "wire_s": "wire"}
_TITLES = {
    "prompts": "prompts",
    "group_size": "completions of a prompt (G)",
    "completion": "tokens of a completion",
    "model": "parameters of the model",
    "nodes": "nodes in one process",
}
_WIDTH_IN, _HEIGHT_IN = 3.0, 5.4


def draw_growth(result: Mapping[str, Any], path: Path) -> None:
    """Seconds of a round, on logarithmic axes, and its peak memory, from 0, against everything that was grown."""
    import matplotlib
    from matplotlib.figure import Figure

    figures = result["figures"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3}):
        figure = Figure(figsize=(_WIDTH_IN * len(figures), _HEIGHT_IN), layout="constrained")
        panels = figure.subplots(2, len(figures), squeeze=False)
        for column, (factor, found) in enumerate(figures.items()):
            sizes = [row["size"] for row in found["points"]]
            above, below = panels[0][column], panels[1][column]
            for name, color in _COLORS.items():
                costs = [row["parts"].get(name, row["seconds"]) for row in found["points"]]
                label = f"{_WORDS[name]}, ~ n^{found['exponents'][name]['value']:.2f}"
                above.plot(sizes, costs, marker="o", markersize=3, color=color, label=label)
            peaks = [row["peak"] / 1e6 for row in found["points"]]
            label = f"~ n^{found['exponents']['peak']['value']:.2f}"
            below.plot(sizes, peaks, marker="o", markersize=3, color="#7b818a", label=label)
            above.set_title(_TITLES[factor], loc="left")
            for axes in (above, below):
                axes.set_xscale("log", base=10 if factor == "model" else 2)
                axes.legend(fontsize=7, frameon=False)
            above.set_yscale("log")
            below.set_ylim(0, 1.15 * max(peaks))
        panels[0][0].set_ylabel("seconds a round")
        panels[1][0].set_ylabel("peak memory, MB")
        figure.savefig(path, dpi=150)
