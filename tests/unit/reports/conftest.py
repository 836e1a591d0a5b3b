"""Run directories as a run leaves them, with numbers of the test's choosing."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from motet.journal import JsonLinesWriter, RunDir

WriteRun = Callable[..., Path]

_TOML = """\
[run]
name = {name}
seed = {seed}
rounds = {rounds}

[task]
name = "running_sums"

[method]
name = {method}
cap = 2.0
kl_limit_nats = {kl_limit}
{own}
[learner]
learning_rate = 1e-4
"""


def _node_toml(name: str) -> str:
    return f'\n[[node]]\nname = {json.dumps(name)}\nmodel = "tiny:{"large" if name == "large" else "small"}"\n'


def _accuracy_at(progress: float, start: float, end: float) -> float:
    return start + (end - start) * (1 - math.exp(-3 * progress)) / (1 - math.exp(-3))


def _round_row(rng: random.Random, round: int, rounds: int, *, method: str, start: float, end: float) -> dict[str, Any]:
    progress = (round + 1) / rounds
    row: dict[str, Any] = {
        "reward/mean": _accuracy_at(progress, start, end) + rng.gauss(0, 0.03),
        "reward/own_mean": _accuracy_at(progress, start, end) + rng.gauss(0, 0.03),
        "time/generate_s": 0.2,
        "time/wait_s": 0.0 if method == "on_policy" else 0.05,
        "time/learn_s": 0.15,
        "time/idle_share": 0.0 if method == "on_policy" else 0.17,
    }
    if method != "on_policy":
        by_advantage, by_kl = (rng.randint(60, 80), rng.randint(0, 15)) if method == "f_tis" else (0, 0)
        row |= {
            "filter/dropped_share": (by_advantage + by_kl) / 128,
            "filter/dropped/advantage": by_advantage,
            "filter/dropped/kl": by_kl,
            "filter/dropped/advantage_and_kl": 0,
            "kl_gen_old/sum_p50": 1.5 + rng.random(),
            "kl_gen_old/sum_p95": 12 + 10 * rng.random(),
            "external/influence_share": 0.35 + 0.1 * rng.random(),
            "wire/bytes_sent": 9000 + rng.randint(0, 500),
            "wire/tokens_sent": 1500,
            "wire/bytes_per_token": 6.1,
        }
    return row


def _write_metrics(
    run_dir: RunDir, nodes: Mapping[str, Any], *, method: str, seed: int, rounds: int, evaluate_every: int
) -> None:
    rng = random.Random(f"{method}{seed}")
    with JsonLinesWriter(run_dir.metrics) as metrics:
        for round in range(-1, rounds):
            for name, accuracy in nodes.items():
                row: dict[str, Any] = {"round": round, "node": name}
                start, end = accuracy["test"]
                if round >= 0:
                    row |= _round_row(rng, round, rounds, method=method, start=start, end=end)
                for split, (first, last) in accuracy.items():
                    is_edge = round in (-1, rounds - 1)
                    if is_edge or (round + 1) % evaluate_every == 0:
                        noise = 0.0 if is_edge else rng.gauss(0, 0.02)
                        row[f"accuracy/{split}"] = _accuracy_at((round + 1) / rounds, first, last) + noise
                        row[f"accuracy/{split}/se"] = 0.015
                metrics.write(row)


def _summary(
    name: str, nodes: Mapping[str, Any], *, method: str, seed: int, rounds: int, se: float, ledger: Mapping[str, Any]
) -> dict[str, Any]:
    is_alone = method == "on_policy"
    return {
        "run": name,
        "method": method,
        "seed": seed,
        "rounds": rounds,
        "seconds": 70.2,
        "nodes": {
            node: {
                "model": "tiny:large" if node == "large" else "tiny:small",
                "parameters": 446_000 if node == "large" else 75_000,
                "accuracy": {
                    split: {
                        "start": {"value": first, "se": se, "n": 1024},
                        "end": {"value": last, "se": se, "n": 1024},
                    }
                    for split, (first, last) in accuracy.items()
                },
                "completions_generated": rounds * (256 if is_alone else 128),
                "tokens_sent": 0 if is_alone else rounds * 1500,
                "bytes_sent": 0 if is_alone else rounds * 9150,
                "bytes_per_token": None if is_alone else 6.1,
                "ledger": ledger.get(node, {}),
            }
            for node, accuracy in nodes.items()
        },
    }


def _ledger(nodes: Sequence[str], rounds: int) -> dict[str, Any]:
    row = {
        "received": 16 * rounds,
        "accepted": 16 * rounds - 3,
        "rejected": {"duplicate": 2, "bad_logp": 1},
        "late": 0,
        "kept": 50 * rounds,
        "dropped": {"advantage": 70 * rounds, "kl": 8 * rounds},
    }
    return {node: {peer: row for peer in nodes if peer != node} for node in nodes}


def _writer(folder_of_runs: Path) -> WriteRun:
    def write(
        method: str = "f_tis",
        *,
        seed: int = 0,
        nodes: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
        rounds: int = 20,
        se: float = 0.01,
        evaluate_every: int = 5,
        is_finished: bool = True,
        name: str = "sums",
        kl_limit: float = 50.0,
        folder: str | None = None,
        own: Mapping[str, str] | None = None,
    ) -> Path:
        nodes = nodes or {"small": {"test": (0.30, 0.43)}, "large": {"test": (0.24, 0.62)}}
        run_dir = RunDir.create(folder_of_runs / (folder or f"seed_{seed}/{method}"), seed=seed)
        toml = _TOML.format(
            name=json.dumps(name),
            seed=seed,
            rounds=rounds,
            method=json.dumps(method),
            kl_limit=kl_limit,
            own="".join(f"{key} = {json.dumps(value)}\n" for key, value in (own or {}).items()),
        )
        run_dir.config.write_text(toml + "".join(map(_node_toml, nodes)), encoding="utf-8")
        _write_metrics(run_dir, nodes, method=method, seed=seed, rounds=rounds, evaluate_every=evaluate_every)
        with JsonLinesWriter(run_dir.events) as events:
            events.write({"time": 0.0, "kind": "started", "text": "started"})
            if method != "on_policy":
                events.write({"time": 9.0, "kind": "peer_left", "round": 12, "node": "small", "text": "large left"})
        if is_finished:
            ledger = {} if method == "on_policy" else _ledger(list(nodes), rounds)
            summary = _summary(name, nodes, method=method, seed=seed, rounds=rounds, se=se, ledger=ledger)
            run_dir.summary.write_text(json.dumps(summary), encoding="utf-8")
        return run_dir.path

    return write


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes a run; `nodes` maps name -> split -> (accuracy before, after)."""
    return _writer(tmp_path)


@pytest.fixture(scope="session")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One run for each arm of the demo, to read only."""
    write = _writer(tmp_path_factory.mktemp("runs"))
    return [write(method) for method in ("on_policy", "f_tis", "nois")]
