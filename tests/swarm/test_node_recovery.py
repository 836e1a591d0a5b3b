"""A run in which a node is killed ends as well as one without, and a node holds no more memory the longer it runs."""

from __future__ import annotations

import math
from contextlib import ExitStack
from statistics import fmean

import pytest
from node_process import Ground

pytestmark = [pytest.mark.network, pytest.mark.slow]

NAMES = ("ann", "bob", "cid")
ROUNDS = 60
SETTINGS = [
    f"--set={setting}"
    for setting in (
        "evaluation.final_num_prompts=300",
        "rollout.group_size=8",
        "rollout.max_new_tokens=24",
        "learner.learning_rate=5e-4",
        "learner.schedule=linear",
        "method.kl_limit_nats=10",
    )
]


def play(path, *, kill_at=None):
    """Three nodes from start to end: by name, their accuracies then. Cid is killed in this round, and started again."""
    ground = Ground(path, NAMES, name="recovery", rounds=ROUNDS, prompts=24)
    with ExitStack() as stack:
        nodes = [stack.enter_context(ground.node(name, *SETTINGS)) for name in NAMES]
        if kill_at is not None:
            nodes[-1].wait(lambda status: status.round >= kill_at, f"round {kill_at}")
            nodes[-1].kill()
            nodes[-1] = stack.enter_context(ground.node("cid", *SETTINGS))
        for node in nodes:
            assert node.end() == 0, node.said()
            assert "Traceback" not in node.said()
        assert len(nodes[-1].events("resumed")) == (kill_at is not None)
        return {node.name: node.summary()["accuracy"]["test"]["end"] for node in nodes}


def test_a_node_that_was_killed_ends_with_the_accuracy_of_one_that_was_not(tmp_path):
    whole = play(tmp_path / "whole")
    killed = play(tmp_path / "killed", kill_at=10)
    differences = [killed[name]["value"] - whole[name]["value"] for name in NAMES]
    # Of independent examinations. Both have the same prompts, so the true errors are smaller. One difference in three
    # is larger than its error though nothing is lost, so no single node can be held to that.
    errors = [math.hypot(whole[name]["se"], killed[name]["se"]) for name in NAMES]
    for difference, error in zip(differences, errors, strict=True):
        assert abs(difference) <= 3 * error, (whole, killed)
    assert abs(fmean(differences)) <= 2 * fmean(errors), (whole, killed)  # as if all erred alike; they do not quite


def test_a_node_holds_no_more_memory_the_longer_it_runs(tmp_path):
    ground = Ground(tmp_path, ("ann", "bob"))
    with ground.node("ann") as ann, ground.node("bob"):
        ann.wait(lambda status: status.round >= 100, "round 100")
        early = ann.rss_bytes()
        ann.wait(lambda status: status.round >= 500, "round 500")
        assert ann.rss_bytes() - early < 30_000_000
        ann.check_calm()
