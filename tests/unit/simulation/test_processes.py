"""Each node in a process of its own: the same results, the same checkpoints, the same errors, and nobody left over."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal

import pytest
from safetensors import SafetensorError

from motet.errors import EnvironmentFault, RunFailed, UsageError
from motet.journal import read_jsonl
from motet.records import read_archive
from motet.simulation import Quiet, run_swarm
from motet.simulation.messages import decode_answer, encode
from motet.simulation.node_process import _failure
from motet.simulation.processes import NodeFault, _raise

PIPES = {"transport": "pipes"}


def play(run, **options):
    return run_swarm(run, observer=options.pop("observer", Quiet()), **options)


def stop_after(*counts):
    asked = 0

    def should_stop():
        nonlocal asked
        asked += 1
        return asked in counts

    return should_stop


def assert_same(first, second):
    assert first["rows"] == second["rows"]
    assert first["summary"] == second["summary"]
    assert first["files"].keys() == second["files"].keys()
    assert [name for name in first["files"] if first["files"][name] != second["files"][name]] == []


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    assert multiprocessing.active_children() == []


def on_pipes(make_run, name, swarm=None, **sections):
    return make_run(name, swarm={**(swarm or {}), **PIPES}, **sections)


@pytest.mark.slow
class TestSame:
    @pytest.mark.parametrize(
        "sections",
        [
            {"nodes": {"ann": "tiny:small", "bob": "tiny:large", "cid": "tiny:small"}},
            {"method": {"name": "on_policy"}},
        ],
        ids=["together", "alone"],
    )
    def test_lockstep_is_the_same_in_one_process_and_in_many(self, make_run, results_of, sections):
        one = results_of(play(make_run("one", **sections)).run_dir)
        many = results_of(play(on_pipes(make_run, "many", **sections)).run_dir)
        assert_same(many, one)

    def test_a_run_goes_on_under_the_other_transport(self, make_run, results_of):
        sections = {"swarm": {"collaboration": "horizontal"}, "rollout": {"ahead": 1}}
        whole = results_of(play(make_run("whole", **sections)).run_dir)
        outcome = play(on_pipes(make_run, "parts", **sections), should_stop=stop_after(1))
        assert (outcome.finished, outcome.rounds_done) == (False, 1)
        outcome = play(make_run("parts", **sections), should_stop=stop_after(1))
        assert (outcome.finished, outcome.rounds_done) == (False, 2)
        outcome = play(on_pipes(make_run, "parts", **sections))
        assert (outcome.finished, outcome.rounds_done) == (True, 4)
        assert_same(results_of(outcome.run_dir), whole)
        kinds = [event["kind"] for event in read_jsonl(outcome.run_dir.events)]
        assert kinds == ["started", "stopped", "resumed", "stopped", "resumed", "finished"]


@pytest.mark.slow
def test_at_free_pace_every_group_has_one_fate(make_run):
    free = {"pace": "free", "max_lag": 1}
    sections = {"rollout": {"ahead": 1}, "run": {"rounds": 6}, "evaluation": {"every": 0}}
    nodes = {"ann": "tiny:small", "bob": "tiny:large"}
    run = on_pipes(make_run, "free", swarm=free, nodes=nodes, **sections)
    assert play(run, should_stop=stop_after(3)).rounds_done == 3
    outcome = play(run)
    assert outcome.finished
    run_dir = outcome.run_dir
    assert [(row["round"], row["node"]) for row in read_jsonl(run_dir.metrics)] == [
        (r, n) for r in range(-1, 6) for n in nodes
    ]
    ledgers = {name: node["ledger"] for name, node in json.loads(run_dir.summary.read_text())["nodes"].items()}
    state = json.loads((run_dir.checkpoint(6) / "swarm.json").read_text())
    for receiver, sender in (("ann", "bob"), ("bob", "ann")):
        account = ledgers[receiver][sender]
        under_way = [
            1 for to, peer, *_ in state["nodes"]["ann"]["hub"]["undelivered"] if (to, peer) == (receiver, sender)
        ]
        sent = list(read_archive(run_dir.archive(sender)))
        assert account["received"] + account["late"] + len(under_way) == len(sent)
        assert account["rejected"] == {}, "nobody is so far ahead that its groups are turned away"


@pytest.mark.slow
def test_the_observer_is_told_as_ever_and_for_whom_a_node_waits(make_run):
    seen = []

    class Note(Quiet):
        def started(self, *, nodes, first_round, num_rounds):
            seen.append(("started", tuple(nodes), first_round, num_rounds))

        def phase(self, node, phase, *, round, waiting_for):
            seen.append((node, str(phase), round))
            assert set(waiting_for) <= {"ann", "bob"} - {node}

        def evaluating(self, node, *, round):
            seen.append((node, "evaluate", round))

        def round_done(self, row):
            seen.append((row["node"], "done", row["round"]))
            assert row["round"] < 0 or 0 <= row["time/idle_share"] <= 1

    play(on_pipes(make_run, "run", run={"rounds": 1}), observer=Note())
    assert seen[0] == ("started", ("ann", "bob"), 0, 1)
    for node in ("ann", "bob"):
        told = [event[1:] for event in seen if event[0] == node]
        whole = ["evaluate", "done", "generate", "wait", "learn", "evaluate", "done"]
        assert [activity for activity, _ in told][:7] == whole
        assert told[7:] in ([], [("wait", 0)]), "the faster one waits for the other"


@pytest.mark.slow
class TestErrors:
    def test_a_node_s_error_is_the_run_s(self, make_run):
        run = on_pipes(make_run, "run", nodes={"ann": "tiny:small", "bob": "./nowhere"})
        with pytest.raises(UsageError, match=r"'\./nowhere': the folder does not exist") as caught:
            play(run)
        assert caught.value.code == "E-MODEL-02"

    def test_in_the_middle_of_the_run_and_from_the_sampling_thread(self, make_run):
        run = on_pipes(make_run, "run", learner={"learning_rate": 1e38}, run={"rounds": 40}, rollout={"ahead": 1})
        with pytest.raises(RunFailed, match=r"learner\.learning_rate") as caught:
            play(run)
        assert caught.value.code == "E-LEARN-02"
        assert "\n" not in str(caught.value)

    def test_a_process_that_is_killed_ends_the_run_with_its_name(self, make_run):
        class Kill(Quiet):
            def phase(self, node, phase, *, round, **_):
                if (node, str(phase), round) == ("bob", "learn", 1):
                    (process,) = [p for p in multiprocessing.active_children() if p.name == "motet node bob"]
                    os.kill(process.pid, signal.SIGKILL)

        with pytest.raises(RunFailed, match=r"^node bob: its process was killed by SIGKILL; ") as caught:
            play(on_pipes(make_run, "run"), observer=Kill())
        assert caught.value.code == "E-SWARM-03"

    def test_whatever_stops_this_process_stops_the_others(self, make_run):
        class Stop(Quiet):
            def round_done(self, row):
                if row["round"] == 0:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            play(on_pipes(make_run, "run"), observer=Stop())


@pytest.mark.parametrize(
    "error",
    [
        UsageError("a: b", code="E-TASK-01"),
        EnvironmentFault("c", code="E-MODEL-03"),
        RunFailed("d", code="E-LEARN-01"),
        OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
        OSError(errno.EACCES, "Permission denied"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel(error):
    with pytest.raises(type(error)) as caught:
        _raise(decode_answer(encode(_failure(error))))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "code", None) == getattr(error, "code", None)


def test_a_fault_of_our_own_travels_with_its_traceback():
    def unlucky():
        raise ZeroDivisionError("by nothing")

    with pytest.raises(ZeroDivisionError) as raised:
        unlucky()
    with pytest.raises(NodeFault, match=r"in unlucky\n.*\nZeroDivisionError: by nothing"):
        _raise(decode_answer(encode(_failure(raised.value))))
