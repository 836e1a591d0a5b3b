"""`bench growth`: seconds and memory of a round as one thing at a time grows, and the exponent with which they do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from motet.bench.fit import fit_exponent
from motet.bench.machine import describe_machine, now
from motet.bench.process import Say, take_turns


@dataclass(frozen=True, slots=True)
class RoundPoint:
    """The size of a round.

    Attributes:
        model: the model of every node.
        prompts: prompts of the round, shared out over the nodes.
        group_size: completions of each.
        completion: tokens of every completion.
        nodes: nodes, one after the other in one process.
        prompt: mean length of a prompt.
    """

    model: str = "tiny:small"
    prompts: int = 8
    group_size: int = 8
    completion: int = 32
    nodes: int = 2
    prompt: int = 24


FACTORS: Final[dict[str, tuple[Any, ...]]] = {
    "prompts": (8, 16, 32, 64),
    "group_size": (8, 16, 32, 64),
    "completion": (16, 32, 64, 128, 256),
    "model": ("tiny:small", "tiny:large", "llama:256x4x1024", "llama:512x6x1024"),
    "nodes": (1, 2, 4, 8),
}
"""What grows, and its sizes; a model's size is its number of parameters."""


def bench_growth(
    *,
    say: Say,
    factors: Sequence[str] = tuple(FACTORS),
    base: RoundPoint = RoundPoint(),
    repeats: int = 3,
    steps: int | None = None,
) -> dict[str, Any]:
    """Measure each point in a process of its own, fit exponents, and return every figure as plain data.

    Args:
        say: hears the progress.
        factors: what grows, one at a time.
        base: everything else.
        repeats: measured rounds of each point.
        steps: the first sizes only.
    """
    measured: dict[RoundPoint, dict[str, Any]] = {}
    figures = {}
    for factor in factors:
        rows = []
        for size in FACTORS[factor][:steps]:
            point = replace(base, **{factor: size})
            if point not in measured:
                measured[point] = _measure(point, f"growth of {factor}, at {size}", repeats, say)
            found = measured[point]
            rows.append({"at": size, "size": found["parameters"] if factor == "model" else size, **found})
        figures[factor] = {"points": rows, "exponents": _exponents(rows)}
    return {
        "bench": "growth",
        "date": now(),
        "machine": {**describe_machine(), "threads": next(iter(measured.values()))["threads"]},
        "settings": {"base": asdict(base), "repeats": repeats},
        "figures": figures,
    }


def _measure(point: RoundPoint, text: str, repeats: int, say: Say) -> dict[str, Any]:
    turns = take_turns({text: ("motet.bench.round_arm:RoundArm", point)}, repeats=repeats, say=say)[text]
    return {
        "seconds": statistics.median(turns.seconds),
        "seconds_all": turns.seconds,
        "parts": {name: statistics.median(all_of_it) for name, all_of_it in turns.parts.items()},
        "memory_before": turns.first["memory_before"],
        "peak": turns.last.get("device_peak", turns.last["peak"]),
        "host_peak": turns.last["peak"],
        "parameters": turns.first["settings"]["parameters"],
        "threads": turns.first["threads"],
    }


def _exponents(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Of the round's seconds, of its parts, and of its peak memory."""
    sizes = [float(row["size"]) for row in rows]
    costs = {"seconds": [row["seconds"] for row in rows], "peak": [float(row["peak"]) for row in rows]}
    costs |= {name: [row["parts"][name] for row in rows] for name in rows[0]["parts"]}
    return {name: asdict(fit_exponent(sizes, values)) for name, values in costs.items()}


def growth_markdown(result: dict[str, Any]) -> str:
    """The table for a page: one row for each point, and the exponents."""
    lines = ["| grows | at | s/round | sampling | wire | learning | peak MB |", "|---|---|---|---|---|---|---|"]
    for factor, figure in result["figures"].items():
        for row in figure["points"]:
            parts = row["parts"]
            lines.append(
                f"| {factor} | {row['at']} | {row['seconds']:.3f} | {parts['generate_s']:.3f} | "
                f"{parts['wire_s']:.4f} | {parts['learn_s']:.3f} | {row['peak'] / 1e6:.0f} |"
            )
    lines += ["", "| grows | exponent of s/round | between the last two | sampling | learning | of the peak |"]
    lines.append("|---|---|---|---|---|---|")
    for factor, figure in result["figures"].items():
        found = figure["exponents"]
        whole, *parts = (with_error(found[name]) for name in ("seconds", "generate_s", "learn_s", "peak"))
        lines.append(f"| {factor} | {whole} | {found['seconds']['last']:.2f} | {' | '.join(parts)} |")
    return "\n".join(lines) + "\n"


def with_error(exponent: dict[str, float | None]) -> str:
    """An exponent with its standard error, where it has one.

    >>> with_error({"value": 1.234, "se": None})
    '1.23'
    """
    error = "" if exponent["se"] is None else f" +- {exponent['se']:.2f}"
    return f"{exponent['value']:.2f}{error}"
