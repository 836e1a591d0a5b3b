"""What a finished run says of itself agrees with its journal and archives."""

from __future__ import annotations

import json

from motet.journal import read_jsonl
from motet.records import read_archive
from motet.simulation import Quiet, run_swarm


def test_numbers_are_those_of_the_journal(make_run):
    run_dir = run_swarm(make_run(nodes={"ann": "tiny:small", "bob": "tiny:large"}), observer=Quiet()).run_dir
    rows = read_jsonl(run_dir.metrics)
    summary = json.loads(run_dir.summary.read_text())
    assert summary["rounds"] == 4
    assert summary["seconds"] > 0
    for name, node in summary["nodes"].items():
        own = [row for row in rows if row["node"] == name]
        assert node["completions_generated"] == sum(row.get("own/completions", 0) for row in own) == 4 * 12
        assert node["bytes_per_token"] == node["bytes_sent"] / node["tokens_sent"]
        for split in ("test", "ood"):
            assert node["accuracy"][split]["start"]["value"] == own[0][f"accuracy/{split}"]
            assert node["accuracy"][split]["end"]["value"] == own[-1][f"accuracy/{split}"]
            assert node["accuracy"][split]["end"]["n"] == 6
        groups = list(read_archive(run_dir.archive(name)))
        assert node["tokens_sent"] == sum(group.num_tokens for group in groups)
        assert node["optimizer_steps"] == sum(1 - row.get("optim/skipped", 1) for row in own)


def test_a_task_without_an_ood_split(make_run):
    run_dir = run_swarm(make_run(task={"ood_terms": ()}, run={"rounds": 1}), observer=Quiet()).run_dir
    summary = json.loads(run_dir.summary.read_text())
    assert all(list(node["accuracy"]) == ["test"] for node in summary["nodes"].values())
