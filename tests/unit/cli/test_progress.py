"""What a person sees of a round: numbers worth a word, for whom a node waits, and how long it was idle."""

from __future__ import annotations

import pytest

from motet.cli.progress import LineProgress, LiveProgress
from motet.journal import RunDir

ROW = {"round": 0, "node": "ann", "reward/own_mean": 0.5, "admission/rejected": 0, "admission/late": 0}


@pytest.fixture
def lines(tmp_path, capsys):
    progress = LineProgress(RunDir(tmp_path / "r"))
    progress.started(nodes=["ann", "bob"], first_round=0, num_rounds=4)

    def of(row):
        capsys.readouterr()
        progress.round_done(row)
        return capsys.readouterr().err

    return of


def test_a_line_says_what_is_worth_saying(lines):
    assert lines(ROW) == "run=r round=1/4 node=ann reward=0.5\n"
    assert lines(ROW | {"time/idle_share": 0.0042}) == "run=r round=1/4 node=ann reward=0.5\n"
    told = lines(ROW | {"time/idle_share": 0.2349, "admission/late": 3, "admission/rejected": 1})
    assert told == "run=r round=1/4 node=ann reward=0.5 rejected=1 late=3 idle=0.23\n"


def test_the_table_has_the_idle_share_and_says_for_whom_a_node_waits(tmp_path, monkeypatch):
    from rich.console import Console

    monkeypatch.setenv("TERM", "dumb")
    progress = LiveProgress(RunDir(tmp_path / "r"))
    progress.started(nodes=["ann", "bob"], first_round=0, num_rounds=4)
    progress.round_done(ROW | {"time/idle_share": 0.2349})
    progress.phase("ann", "wait", round=0, waiting_for=["bob"])
    console = Console(width=80)
    with console.capture() as capture:
        console.print(progress._render())
    _, head, ann, bob = capture.get().splitlines()[:4]
    assert head.split()[-1] == "idle"
    assert "waiting for bob" in ann
    assert ann.split()[-2:] == ["23", "%"]
    assert bob.split()[-1] == "-"
