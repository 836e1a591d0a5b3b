"""A method of a researcher's own in one file, from the run file to the report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Place

pytestmark = pytest.mark.slow
METHOD = """
import torch

def damped(logp_old_BT, logp_gen_BT, mask_BT):
    return ((logp_old_BT - logp_gen_BT) / 2).clamp(max=0.7).exp() * mask_BT

def near(advantage_B, kl_B, is_external_B):
    return (kl_B < 8.0) & (advantage_B > 0)

def breaks(advantage_B, kl_B, is_external_B):
    if len(kl_B) > 2 or not torch.isin(kl_B, torch.tensor([0.5, 80.0])).all():
        raise RuntimeError("no such luck")
    return kl_B < 8.0
"""
TWO_ROUNDS = ["--set", "run.rounds=2", "--set", "evaluation.final_num_prompts=2"]
WEIGHTS, RULE = "method.weights=mine.py:damped", "method.rule=mine.py:near"


def shares(place: Place, name: str) -> list[dict[str, Any]]:
    lines = (place.path / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for line in lines if "filter/dropped_share" in (row := json.loads(line))]


def test_two_arms_with_own_functions_stand_beside_each_other_in_a_report(place: Place) -> None:
    (place.path / "mine.py").write_text(METHOD, encoding="utf-8")
    arms = {"own_rule": [RULE], "own_both": [RULE, WEIGHTS]}
    for name, changes in arms.items():
        flags = [word for change in (f"run.name={name}", *changes) for word in ("--set", change)]
        ended = place.motet("swarm", "run.toml", *TWO_ROUNDS, *flags)
        assert ended.code == 0, ended.stderr
        rows = shares(place, name)
        assert {row["node"] for row in rows} == {"small", "large"}
        assert any(row["filter/dropped/rule"] > 0 for row in rows)
        assert all(row["filter/dropped/rule"] == row["filter/dropped_share"] for row in rows)
    ended = place.motet("report", *(f"runs/{name}" for name in arms), "--json", "report.json")
    assert ended.code == 0, ended.stderr
    found = json.loads((place.path / "report.json").read_text(encoding="utf-8"))
    assert sorted({run["arm"] for run in found["runs"]}) == [
        "F-TIS, method.rule = mine.py:near, method.weights = default",
        "F-TIS, method.rule = mine.py:near, method.weights = mine.py:damped",
    ]


@pytest.mark.parametrize("transport", ["memory", "pipes"])
def test_a_rule_that_fails_in_a_round_ends_the_run_with_one_line(place: Place, transport: str) -> None:
    (place.path / "mine.py").write_text(METHOD, encoding="utf-8")
    flags = ["--set", "method.rule=mine.py:breaks", "--set", f"swarm.transport={transport}"]
    refused = place.motet("swarm", "run.toml", *TWO_ROUNDS, *flags)
    assert refused.code == 2
    assert "method.rule: mine.py:breaks failed: RuntimeError: no such luck (mine.py:12)" in refused.error
    assert refused.error.endswith("[E-METHOD-02]")
