"""Training from stored groups: what is learned, that nothing is sampled, repeats, interruptions, wrong archives."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from motet.config import replay_settings
from motet.errors import RunFailed, UsageError
from motet.journal import read_jsonl
from motet.journal.metrics import known
from motet.models import tiny_path
from motet.records import Archive, StoredGroups, read_archive
from motet.simulation import Quiet, run_replay, run_swarm

NODES = {"ann": "tiny:small", "bob": "tiny:small"}


@pytest.fixture(scope="module")
def played():
    """Runs that have been played, by kind: a run is played once for all tests, which may only look at it."""
    return {}


@pytest.fixture
def source(make_run, played, tmp_path_factory):
    """A finished swarm: its settings and its directory."""

    def of(kind="vertical", **sections):
        if kind not in played:
            run = make_run("source", nodes=NODES, **sections)
            run = run.model_copy(update={"run": run.run.model_copy(update={"dir": str(tmp_path_factory.mktemp(kind))})})
            played[kind] = (run, run_swarm(run, observer=Quiet()).run_dir)
        return played[kind]

    return of


@pytest.fixture
def again(source, tmp_path):
    """Settings of a replay for ann, and the archives of both nodes."""

    def of(name="again", kind="vertical", overrides=(), **sections):
        run, run_dir = source(kind, **sections)
        overrides = [f"run.dir={tmp_path}", *overrides]
        return replay_settings(run, run.node[0], name=name, overrides=overrides), archives_of(run_dir)

    return of


def archives_of(run_dir):
    return [run_dir.archive(name) for name in NODES]


def replay(run, archives, **options):
    return run_replay(run, archives, observer=Quiet(), **options)


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_stored_groups_move_the_weights_and_nothing_is_sampled(again):
    run, archives = again()
    outcome = replay(run, archives)
    assert (outcome.finished, outcome.rounds_done) == (True, 4)
    rows = [row for row in read_jsonl(outcome.run_dir.metrics) if row["round"] >= 0]
    stored = [sum(group.round == round for path in archives for group in read_archive(path)) for round in range(4)]
    assert [row["external/groups"] for row in rows] == stored == [6, 6, 6, 6]
    assert {row["own/groups"] for row in rows} == {row["own/completions"] for row in rows} == {0}
    assert {row["admission/rejected"] for row in rows} == {row["admission/reward_mismatches"] for row in rows} == {0}
    assert [name for row in rows for name in row if name not in {"round", "node"} and not known(name)] == []
    assert list(read_archive(outcome.run_dir.archive("ann"))) == []
    before, after = weights(tiny_path("tiny:small")), weights(outcome.run_dir.model("ann"))
    assert any(not torch.equal(after[name], before[name]) for name in after)
    summary = json.loads(outcome.run_dir.summary.read_text())
    assert summary["nodes"]["ann"]["completions_generated"] == 0
    ledger = summary["nodes"]["ann"]["ledger"]
    assert {peer: account["accepted"] for peer, account in ledger.items()} == {"ann": 12, "bob": 12}


def test_a_repeat_is_the_same_to_the_last_bit(again, results_of):
    first, second = (replay(*again(name)).run_dir for name in ("first", "second"))
    assert results_of(first) == results_of(second)


def test_which_archives_are_given_matters(again):
    run, (ann, bob) = again("both")
    both = replay(run, [ann, bob]).run_dir
    alone = replay(again("alone")[0], [bob]).run_dir
    assert [row["external/groups"] for row in read_jsonl(alone.metrics) if row["round"] >= 0] == [3, 3, 3, 3]
    assert any(
        not torch.equal(a, b) for a, b in zip(*(weights(d.model("ann")).values() for d in (both, alone)), strict=True)
    )


def test_an_interrupted_replay_ends_like_an_uninterrupted_one(again, results_of):
    whole = replay(*again("whole")).run_dir
    run, archives = again("parts")
    stopped = replay(run, archives, should_stop=lambda: True)
    assert (stopped.finished, stopped.rounds_done) == (False, 1)
    ended = replay(run, StoredGroups(archives))
    assert (ended.finished, ended.run_dir) == (True, stopped.run_dir)
    assert results_of(ended.run_dir) == results_of(whole)


def test_shares_of_horizontal_groups_are_joined(again):
    horizontal = {"swarm": {"collaboration": "horizontal"}}
    outcome = replay(*again(kind="horizontal", **horizontal))
    rows = [row for row in read_jsonl(outcome.run_dir.metrics) if row["round"] >= 0]
    assert [row["external/groups"] for row in rows] == [12, 12, 12, 12]
    assert {row["admission/rejected"] for row in rows} == {0}


def test_there_are_no_more_rounds_than_are_stored_but_fewer_if_wanted(again):
    run, archives = again(overrides=["run.rounds=100", "evaluation.final_num_prompts=2"])
    assert replay(run, archives).rounds_done == 4
    run, archives = again("short", overrides=["run.rounds=1", "evaluation.final_num_prompts=2"])
    assert replay(run, archives).rounds_done == 1


def test_a_replay_goes_on_with_what_it_began_with_only(again, tmp_path):
    run, archives = again()
    replay(run, archives, should_stop=lambda: True)
    for others in (archives[:1], archives[::-1]):
        with pytest.raises(UsageError, match="a replay of other archives") as caught:
            replay(run.model_copy(), others)
        assert caught.value.code == "E-REPLAY-04"
    moved = [shutil.copy(path, tmp_path / f"{number}.motet") for number, path in enumerate(archives)]
    assert replay(run, moved).finished
    (tmp_path / "again/replay.json").write_text("{")
    with pytest.raises(RunFailed, match="damaged") as damaged:
        replay(run, archives)
    assert damaged.value.code == "E-REPLAY-04"


def test_a_replay_is_continued_by_a_replay_and_a_swarm_by_a_swarm(again, source):
    run, archives = again()
    replay(run, archives, should_stop=lambda: True)
    with pytest.raises(UsageError, match="holds a run that is a replay, and this is none") as caught:
        run_swarm(run, observer=Quiet())
    assert caught.value.code == "E-REPLAY-04"
    live = run.model_copy(update={"run": run.run.model_copy(update={"name": "live"})})
    run_swarm(live, observer=Quiet(), should_stop=lambda: True)
    with pytest.raises(UsageError, match="holds a run that is no replay, and this is a replay"):
        replay(live, archives)


def test_groups_of_another_tokenizer_are_not_learned_from(again, tmp_path):
    run, (ann, _) = again()
    group = next(read_archive(ann))
    with Archive(tmp_path / "other.motet") as archive:
        archive.append(replace(group, sampler=replace(group.sampler, tokenizer="feedfeedfeedfeed")))
    with pytest.raises(UsageError, match=r"other\.motet: groups of another tokenizer \(fingerprint feed") as caught:
        replay(run, [tmp_path / "other.motet"])
    assert caught.value.code == "E-REPLAY-03"


def test_groups_for_other_prompts_are_not_learned_from(again):
    run, archives = again(overrides=["task.terms=[4]"])
    with pytest.raises(
        UsageError, match=r"its groups cannot teach tiny:small: their models see other prompts"
    ) as caught:
        replay(run, archives)
    assert caught.value.code == "E-REPLAY-03"
