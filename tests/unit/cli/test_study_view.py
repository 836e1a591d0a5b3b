"""What a study tells of its runs: each that begins or ends, how many are done, how long the others will take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from motet.cli import study_view
from motet.cli.study_view import StudyView


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(study_view.time, "monotonic", lambda: now.s)
    return now


def job(state):
    flags = {name: name == state for name in ("running", "finished", "failed")}
    return SimpleNamespace(**flags, process=None if state == "waiting" else object(), last_words=lambda: "E-X-01")


def become(jobs, *states):
    for one, state in zip(jobs, states, strict=True):
        vars(one).update(vars(job(state)))


def test_lines_and_the_time_that_is_left(clock):
    jobs = [job("running"), job("running"), job("waiting"), job("waiting")]
    planned = [SimpleNamespace(label=f"size/alone/{seed}") for seed in range(4)]
    view = StudyView(planned, jobs, num_finished=3, num_runs=7, began=90.0)
    assert view.new_lines() == [f"t=10s run=size/alone/{seed} state=running done=3/7" for seed in (0, 1)]
    clock.s = 130.0
    become(jobs, "finished", "running", "running", "waiting")
    assert view.new_lines() == [
        "t=40s run=size/alone/0 state=finished done=4/7 left=90s",  # 30 s for one, three to go
        "t=40s run=size/alone/2 state=running done=4/7 left=90s",
    ]
    clock.s = 160.0
    become(jobs, "finished", "failed", "finished", "finished")
    said = view.new_lines()
    assert said[0] == "t=70s run=size/alone/1 state=failed done=6/7 E-X-01"
    assert said[-1] == "t=70s run=size/alone/3 state=finished done=6/7"
    assert view.new_lines() == []
