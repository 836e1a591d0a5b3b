"""Examinations are the same every time and for every node."""

from __future__ import annotations


def test_the_same_examination_every_time(make_run, assemble):
    members = assemble(make_run()).members
    first = members["ann"].examiner.examine(num_prompts=6)
    assert list(first) == ["test", "ood"]
    assert first == members["ann"].examiner.examine(num_prompts=6)
    assert first == members["bob"].examiner.examine(num_prompts=6), "equal models get equal marks"
    assert first["test"].accuracy.num_prompts == 6


def test_training_changes_nothing_but_the_answers(make_run, assemble):
    member = assemble(make_run(method={"name": "on_policy"}, learner={"learning_rate": 0.01})).members["ann"]
    before = member.examiner.examine(num_prompts=6)
    for _ in member.node.run_round(0):
        pass
    after = member.examiner.examine(num_prompts=6)
    assert [s.prompt_id for s in after["test"].samples] == [s.prompt_id for s in before["test"].samples]
    assert after["test"].samples != before["test"].samples


def test_a_split_that_is_missing_is_left_out(make_run, assemble):
    examiner = assemble(make_run(task={"ood_terms": ()})).members["ann"].examiner
    assert list(examiner.examine(num_prompts=2)) == ["test"]
