"""What a finished run came to, from its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.config import RunFile
from motet.journal import RunDir, read_jsonl
from motet.simulation.checkpoint import find_best
from motet.simulation.crew import Facts

_HELD_OUT = ("test", "ood", "test_greedy", "ood_greedy")


def summarise(run: RunFile, run_dir: RunDir, facts: Mapping[str, Facts], *, seconds: float) -> dict[str, object]:
    """Plain data for `summary.json`: per node accuracy before and after, what it generated and sent, its ledger."""
    rows = read_jsonl(run_dir.metrics)
    nodes: dict[str, object] = {}
    for settings in run.node:
        known = facts[settings.name]
        own = [row for row in rows if row["node"] == settings.name]
        tokens = _total(own, "wire/tokens_sent")
        sent = _total(own, "wire/bytes_sent")
        nodes[settings.name] = {
            "model": settings.model,
            "parameters": known.parameters,
            "trained_parameters": known.trained_parameters,
            "accuracy": {split: ends for split in _HELD_OUT if (ends := _ends(own, split))},
            "completions_generated": int(_total(own, "own/completions")),
            "optimizer_steps": known.optimizer_steps,
            "tokens_sent": int(tokens),
            "bytes_sent": int(sent),
            "bytes_per_token": sent / tokens if tokens else None,
            "ledger": known.ledger,
        }
    best = find_best(run_dir) if run.run.keep_best else None
    return {
        "run": run.run.name,
        "method": run.method.name,
        "task": facts[run.node[0].name].task,
        "seed": run.run.seed,
        "rounds": run.run.rounds,
        "seconds": seconds,
        "best": None if best is None else {"round": best.rounds_done, "accuracy": best.accuracy},
        "nodes": nodes,
    }


def _total(rows: Sequence[dict[str, Any]], name: str) -> float:
    return float(sum(row.get(name, 0) for row in rows))


def _ends(rows: Sequence[dict[str, Any]], split: str) -> dict[str, object]:
    examined = [row for row in rows if f"accuracy/{split}" in row]
    if not examined:
        return {}
    return {
        end: {
            "value": row[f"accuracy/{split}"],
            "se": row[f"accuracy/{split}/se"],
            "n": row[f"accuracy/{split}/num_prompts"],
        }
        for end, row in (("start", examined[0]), ("end", examined[-1]))
    }
