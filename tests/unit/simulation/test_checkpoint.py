"""Which checkpoints stay on disk."""

from __future__ import annotations

import json
from functools import partial

import pytest

from motet.journal import JsonLinesWriter, RunDir, read_jsonl
from motet.simulation import Quiet, run_swarm
from motet.simulation.checkpoint import Best, find_best


@pytest.fixture
def run_dir(tmp_path):
    return RunDir.create(tmp_path / "run", seed=0)


def journal(run_dir, rows):
    with JsonLinesWriter(run_dir.metrics) as writer:
        for round, node, accuracy in rows:
            extra = {} if accuracy is None else {"accuracy/test": accuracy}
            writer.write({"round": round, "node": node, **extra})


def test_the_best_has_the_highest_mean_over_the_nodes_and_is_the_earliest_of_equals(run_dir):
    journal(run_dir, [(-1, "a", 0.9), (-1, "b", 0.9)])  # before training there is no checkpoint
    journal(run_dir, [(0, "a", 0.25), (0, "b", 0.5), (1, "a", 0.5), (1, "b", 0.25), (2, "a", 0.5), (2, "b", 0.0)])
    journal(run_dir, [(3, "a", None), (3, "b", None), (4, "a", 1.0), (4, "b", 1.0)])
    for round in (1, 2, 3, 4):  # none after 5
        run_dir.checkpoint(round).mkdir()
    assert find_best(run_dir) == Best(1, 0.375)


def test_without_an_examined_checkpoint_there_is_no_best(run_dir):
    run_dir.checkpoint(1).mkdir()
    journal(run_dir, [(0, "a", None)])
    assert find_best(run_dir) is None


def expected_best(run_dir, rounds):
    marks = {round: [] for round in rounds}
    for row in read_jsonl(run_dir.metrics):
        if row["round"] + 1 in marks:
            marks[row["round"] + 1].append(row["accuracy/test"])
    return max(marks, key=lambda round: (sum(marks[round]), -round))


def test_the_last_k_and_the_best_stay_whether_or_not_the_run_was_interrupted(make_run, results_of):
    def settings(name, **run):
        return make_run(
            name,
            nodes={"ann": "tiny:small"},
            run={"checkpoint_every": 1, "keep_checkpoints": 2, "keep_best": True, "rounds": 5, **run},
            evaluation={"every": 1, "num_prompts": 8, "final_num_prompts": 8},
            learner={"learning_rate": 0.02},
        )

    whole = run_swarm(settings("whole"), observer=Quiet()).run_dir
    best = expected_best(whole, range(1, 6))
    assert best < 4, "the case is of use only if the best is none of the last two"
    assert whole.checkpoint_rounds() == [best, 4, 5]
    assert whole.best_checkpoint() == whole.checkpoint(best)
    assert json.loads(whole.summary.read_text())["best"]["round"] == best
    outcomes = []
    while not outcomes or not outcomes[-1].finished:
        soon = partial(next, iter([False, False]), True)
        outcomes.append(run_swarm(settings("parts"), observer=Quiet(), should_stop=soon))
    assert len(outcomes) > 1
    parts = outcomes[-1]
    assert parts.run_dir.checkpoint_rounds() == [best, 4, 5]
    assert results_of(parts.run_dir)["summary"] == results_of(whole)["summary"]


def test_what_is_kept_may_change_when_a_run_goes_on(make_run):
    first = make_run(run={"keep_checkpoints": 3, "checkpoint_every": 1, "rounds": 4})
    stopped = run_swarm(first, observer=Quiet(), should_stop=lambda: True)
    assert not stopped.finished
    changed = make_run(run={"keep_checkpoints": 1, "keep_best": True, "checkpoint_every": 1, "rounds": 4})
    assert run_swarm(changed, observer=Quiet()).finished
    assert len(stopped.run_dir.checkpoint_rounds()) <= 2
