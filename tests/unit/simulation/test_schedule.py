from __future__ import annotations

import pytest

from motet.simulation.schedule import exam_prompts, has_checkpoint, most_rounds_ahead, next_gathering


@pytest.fixture
def run(make_run):
    return make_run(
        run={"rounds": 11, "checkpoint_every": 4},
        evaluation={"every": 3, "num_prompts": 5, "final_num_prompts": 9},
    )


def test_examinations(run):
    assert [exam_prompts(run, round) for round in range(-1, 11)] == [9, 0, 0, 5, 0, 0, 5, 0, 0, 5, 0, 9]


def test_only_at_both_ends(make_run):
    run = make_run(run={"rounds": 3}, evaluation={"every": 0, "final_num_prompts": 9})
    assert [exam_prompts(run, round) for round in range(-1, 3)] == [9, 0, 0, 9]


def test_checkpoints(run):
    assert [done for done in range(1, 12) if has_checkpoint(run, done)] == [4, 8, 11]


def test_all_wait_for_each_other_at_checkpoints_and_after_examinations(run):
    done, gatherings = 0, []
    while done < 11:
        done = next_gathering(run, done)
        gatherings.append(done)
    assert gatherings == [3, 4, 6, 8, 9, 11]
    assert next_gathering(run, 5) == 6, "wherever a run continues"


def test_how_far_ahead(make_run):
    assert most_rounds_ahead(make_run()) == 1
    assert most_rounds_ahead(make_run(swarm={"pace": "free", "max_lag": 7})) == 7
