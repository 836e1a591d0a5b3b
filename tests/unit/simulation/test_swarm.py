"""Whole runs: repeatable, resumable, and with books that add up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap

import pytest

from motet.config import RunFile, dump_run_file
from motet.errors import RunFailed, UsageError
from motet.journal import read_jsonl
from motet.journal.metrics import known
from motet.records import read_archive
from motet.simulation import Quiet, run_swarm

LOCKSTEP = {"swarm": {"collaboration": "vertical", "pace": "lockstep"}}
HORIZONTAL = {"swarm": {"collaboration": "horizontal", "pace": "lockstep"}}
FREE = {"swarm": {"collaboration": "vertical", "pace": "free", "max_lag": 2}}
FREE_HORIZONTAL = {"swarm": {"collaboration": "horizontal", "pace": "free", "max_lag": 2}}
AHEAD = {"rollout": {"ahead": 1}}
ALONE = {"method": {"name": "on_policy"}}
KINDS = {
    "lockstep": LOCKSTEP,
    "horizontal": HORIZONTAL,
    "free": FREE,
    "free-horizontal": FREE_HORIZONTAL,
    "alone": ALONE,
    "ahead": LOCKSTEP | AHEAD,
    "free-horizontal-ahead": FREE_HORIZONTAL | AHEAD,
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def play(run, **options):
    return run_swarm(run, observer=Quiet(), **options)


_PLAYED = {}


@pytest.fixture
def uninterrupted(make_run):
    """The directory of a whole run of some kind; played once for all tests, which may only look at it."""

    def of_kind(kind="lockstep"):
        if kind not in _PLAYED:
            _PLAYED[kind] = play(make_run(f"whole-{kind}", **KINDS[kind])).run_dir
        return _PLAYED[kind]

    return of_kind


def stop_after(*counts):
    """`should_stop` for a run that is asked once a round: stops after these many rounds since the start."""
    asked = 0

    def should_stop():
        nonlocal asked
        asked += 1
        return asked in counts

    return should_stop


def without_checkpoint(results, round):
    files = {
        name: data for name, data in results["files"].items() if not name.startswith(f"checkpoints/round_{round}/")
    }
    return results | {"files": files}


def assert_same(first, second):
    assert first["rows"] == second["rows"]
    assert first["summary"] == second["summary"]
    assert first["files"].keys() == second["files"].keys()
    assert [name for name in first["files"] if first["files"][name] != second["files"][name]] == []


class TestRepeatable:
    def test_the_seed_decides_everything(self, make_run, results_of, uninterrupted):
        first, again = results_of(uninterrupted()), results_of(play(make_run("again")).run_dir)
        assert_same(first, again)
        other = results_of(play(make_run("other", run={"seed": 4})).run_dir)
        assert other["rows"] != first["rows"]
        assert other["files"]["models/ann/model.safetensors"] != first["files"]["models/ann/model.safetensors"]
        assert other["files"]["archive/ann.motet"] != first["files"]["archive/ann.motet"]

    def test_alone_means_alone(self, make_run, results_of, uninterrupted):
        """Under on_policy a node's run does not change by who else is in the file, and it does all the work."""
        pair = results_of(uninterrupted("alone"))
        single = results_of(play(make_run("single", nodes={"ann": "tiny:small"}, **KINDS["alone"])).run_dir)
        assert [row for row in pair["rows"] if row["node"] == "ann"] == single["rows"]
        assert pair["files"]["models/ann/model.safetensors"] == single["files"]["models/ann/model.safetensors"]
        for row in pair["rows"]:
            if row["round"] >= 0:
                assert row["own/groups"] == 6
                assert row["external/groups"] == row["wire/bytes_received"] == 0
        assert all(node["ledger"] == {} for node in pair["summary"]["nodes"].values())


class TestJournal:
    def test_rows_and_metrics(self, uninterrupted, kind):
        run_dir = uninterrupted(kind)
        rows = read_jsonl(run_dir.metrics)
        assert [(row["round"], row["node"]) for row in rows] == [(r, n) for r in range(-1, 4) for n in ("ann", "bob")]
        for row in rows:
            names = row.keys() - {"round", "node"}
            assert [name for name in names if not known(name)] == []
            examined = row["round"] in {-1, 1, 3}
            assert ("accuracy/test" in names) == ("accuracy/ood" in names) == examined
            if examined:
                assert row["accuracy/test/num_prompts"] == (4 if row["round"] == 1 else 6)
        assert run_dir.checkpoint_rounds() == [2, 4]
        assert [event["kind"] for event in read_jsonl(run_dir.events)] == ["started", "finished"]

    def test_nodes_share_the_work(self, uninterrupted, kind):
        rows = [row for row in read_jsonl(uninterrupted(kind).metrics) if row["round"] >= 0]
        for round in range(4):
            made = [row["own/completions"] for row in rows if row["round"] == round]
            assert made == ([24, 24] if kind == "alone" else [12, 12])

    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "alone"])
    def test_every_group_has_one_fate(self, uninterrupted, kind):
        """Sent is received, late or on its way; received is let in or rejected; let in is learned from or dropped."""
        run_dir = uninterrupted(kind)
        sent = {name: list(read_archive(run_dir.archive(name))) for name in ("ann", "bob")}
        ledgers = {name: node["ledger"] for name, node in json.loads(run_dir.summary.read_text())["nodes"].items()}
        state = json.loads((run_dir.checkpoint(4) / "swarm.json").read_text())
        under_way = state["nodes"]["ann"]["hub"]["undelivered"]
        assert bool(under_way) == kind.startswith("free"), "at free pace nobody collects the last turn's groups"
        for receiver, sender in (("ann", "bob"), ("bob", "ann")):
            account = ledgers[receiver][sender]
            waiting = [1 for to, peer, *_ in under_way if (to, peer) == (receiver, sender)]
            assert account["received"] + account["late"] + len(waiting) == len(sent[sender])
            assert account["received"] == account["accepted"] > 0
            assert account["rejected"] == {}
            assert account["reward_mismatches"] == 0
            delivered = sent[sender][: account["accepted"]]
            assert account["kept"] + sum(account["dropped"].values()) == sum(len(group.rollouts) for group in delivered)
            assert account["kept"] > 0


class TestResumed:
    def test_an_interrupted_run_ends_like_an_uninterrupted_one(self, make_run, results_of, uninterrupted, kind):
        run = make_run("parts", **KINDS[kind])
        first = play(run, should_stop=stop_after(1))
        assert (first.finished, first.rounds_done) == (False, 1)
        second = play(run, should_stop=stop_after(2))
        assert (second.finished, second.rounds_done) == (False, 3)
        last = play(run)
        assert (last.finished, last.rounds_done) == (True, 4)
        assert_same(
            without_checkpoint(results_of(last.run_dir), 3), without_checkpoint(results_of(uninterrupted(kind)), 2)
        )
        kinds = [event["kind"] for event in read_jsonl(last.run_dir.events)]
        assert kinds == ["started", "stopped", "resumed", "stopped", "resumed", "finished"]

    def test_different_models_in_bf16_and_an_adapter(self, make_run, results_of):
        options = {"nodes": {"ann": "tiny:small", "bob": "tiny:large"}, "learner": {"precision": "bf16"}}
        runs = []
        for name in ("whole", "parts"):
            settings = make_run(name, run={"rounds": 3}, **options).model_dump()
            settings["node"][1]["lora"] = {"rank": 2}
            runs.append(RunFile.model_validate(settings))
        play(runs[1], should_stop=stop_after(2))
        whole, parts = (results_of(play(run).run_dir) for run in runs)
        assert_same(parts, whole)
        bob = whole["summary"]["nodes"]["bob"]
        assert bob["trained_parameters"] < bob["parameters"] / 4

    def test_a_finished_run_is_left_alone(self, make_run, results_of):
        run = make_run(run={"rounds": 1})
        before = results_of(play(run).run_dir)
        outcome = play(run)
        assert outcome.finished
        assert_same(results_of(outcome.run_dir), before)
        assert [event["kind"] for event in read_jsonl(outcome.run_dir.events)] == ["started", "finished"]

    def test_a_stop_in_the_last_round_is_the_end(self, make_run):
        assert play(make_run(run={"rounds": 2}), should_stop=stop_after(2)).finished

    @pytest.mark.parametrize(
        "change",
        [
            {"run": {"seed": 9}},
            {"learner": {"learning_rate": 2e-3}},
            {"run": {"rounds": 7}},
            {"swarm": {"pace": "free"}},
            {"rollout": {"ahead": 1}},
            {"nodes": {"ann": "tiny:small", "cid": "tiny:small"}},
        ],
        ids=["seed", "rate", "rounds", "pace", "ahead", "nodes"],
    )
    def test_other_settings_are_refused(self, make_run, change):
        play(make_run(run={"rounds": 2}), should_stop=stop_after(1))
        changed = {"run": {"rounds": 2}} | change
        with pytest.raises(UsageError, match="other settings") as caught:
            play(make_run(**changed))
        assert caught.value.code == "E-RESUME-01"

    def test_a_run_goes_on_with_other_patience_and_pins(self, make_run):
        play(make_run(run={"rounds": 2}), should_stop=stop_after(1))
        run = make_run(run={"rounds": 2}, swarm={"deadline_s": 5.0})
        pinned = run.node[0].model_copy(update={"key": "ed25519:" + "0a" * 32})
        assert play(run.model_copy(update={"node": (pinned, *run.node[1:])})).finished

    def test_a_run_that_was_moved_goes_on(self, make_run, tmp_path):
        stopped = play(make_run(run={"rounds": 2}), should_stop=stop_after(1))
        moved = tmp_path / "elsewhere" / stopped.run_dir.path.name
        moved.parent.mkdir()
        stopped.run_dir.path.rename(moved)
        outcome = play(make_run(run={"rounds": 2, "dir": str(moved.parent)}))
        assert (outcome.finished, outcome.rounds_done) == (True, 2)
        assert [event["kind"] for event in read_jsonl(outcome.run_dir.events)] == [
            "started",
            "stopped",
            "resumed",
            "finished",
        ]

    def test_a_run_from_before_a_setting_existed_goes_on(self, make_run):
        outcome = play(make_run(run={"rounds": 2}), should_stop=stop_after(1))
        config = outcome.run_dir.config
        lines = config.read_text().splitlines(keepends=True)
        config.write_text("".join(line for line in lines if not line.startswith("ahead")))
        with pytest.raises(UsageError, match=r"rollout\.ahead: there 'not set', here 1"):
            play(make_run(run={"rounds": 2}, rollout={"ahead": 1}))
        assert play(make_run(run={"rounds": 2})).finished

    def test_damaged_settings_are_one_line(self, make_run):
        outcome = play(make_run(run={"rounds": 2}), should_stop=stop_after(1))
        outcome.run_dir.config.write_text("[run\n")
        with pytest.raises(RunFailed, match=r"config\.toml: damaged") as caught:
            play(make_run(run={"rounds": 2}))
        assert caught.value.code == "E-RESUME-02"

    def test_the_error_names_the_setting(self, make_run):
        play(make_run(run={"rounds": 2}), should_stop=stop_after(1))
        with pytest.raises(UsageError, match=r"learner\.learning_rate: there 0\.001, here 0\.002"):
            play(make_run(run={"rounds": 2}, learner={"learning_rate": 2e-3}))

    def test_from_an_older_checkpoint_if_the_newest_is_removed(self, make_run, results_of, uninterrupted):
        run = make_run("parts")
        stopped = play(run, should_stop=stop_after(3))
        assert stopped.run_dir.checkpoint_rounds() == [2, 3]
        shutil.rmtree(stopped.run_dir.checkpoint(3))
        assert_same(results_of(play(run).run_dir), results_of(uninterrupted()))


KILLER = """
    import os, signal, sys
    from motet.config import load_run_file
    from motet.simulation import Quiet, run_swarm, station

    class Killer(Quiet):
        def __init__(self, count):
            self.left = count

        def _count(self):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def phase(self, *args, **kwargs): self._count()
        def evaluating(self, *args, **kwargs): self._count()
        def round_done(self, *args, **kwargs): self._count()

    def kill_in_the_middle_of_a_checkpoint():
        real, calls = station.save_learner, []
        def save_learner(folder, learner):
            calls.append(1)
            if len(calls) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            real(folder, learner)
        station.save_learner = save_learner

    for path, when in zip(sys.argv[1::2], sys.argv[2::2]):
        child = os.fork()
        if child == 0:
            if when == "checkpoint":
                kill_in_the_middle_of_a_checkpoint()
            run_swarm(load_run_file(path), observer=Killer(int(when) if when.isdigit() else 0))
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (path, when, status)
"""


@pytest.mark.slow
def test_a_killed_run_ends_like_an_unharmed_one(make_run, results_of, uninterrupted, tmp_path):
    """kill -9 while examining, in the first round, just after a checkpoint, between two rows, while one is written.

    The examination before training makes 4 events, a round 8: generate and wait for each, then learn and a row for
    each; an examination in it 2 more.
    """
    times = ["3", "11", "24", "30", "checkpoint"]
    arguments, runs = [], []
    for number, when in enumerate(times):
        run = make_run(f"killed{number}")
        path = tmp_path / f"killed{number}.toml"
        path.write_text(dump_run_file(run))
        arguments += [str(path), when]
        runs.append(run)
    subprocess.run([sys.executable, "-c", textwrap.dedent(KILLER), *arguments], check=True, cwd=tmp_path)
    for run in runs:
        outcome = play(run)
        assert outcome.finished
        assert_same(results_of(outcome.run_dir), results_of(uninterrupted()))


def in_every_node(state, **changes):
    return json.dumps(state | {"nodes": {name: node | changes for name, node in state["nodes"].items()}})


class TestDamage:
    @pytest.fixture
    def stopped(self, make_run):
        run = make_run(run={"rounds": 2}, task={"ood_terms": ()}, evaluation={"final_num_prompts": 1})
        outcome = play(run, should_stop=stop_after(1))
        return run, outcome.run_dir.checkpoint(1)

    @pytest.mark.parametrize(
        "change",
        [
            lambda _: "{",
            lambda _: "[]",
            lambda state: json.dumps(state | {"rounds_done": "many"}),
            lambda state: json.dumps(state | {"nodes": {}}),
            lambda state: json.dumps(state | {"nodes": []}),
            lambda state: json.dumps(state | {"archive_bytes": None}),
            lambda state: in_every_node(state, ledger=[]),
            lambda state: in_every_node(state, ledger={"x": {"received": 1}}),
            lambda state: in_every_node(state, ahead={"round": 1, "groups": []}),
            lambda state: in_every_node(state, hub={}),
            lambda state: in_every_node(state, hub={"published": {}, "late": [], "undelivered": []}),
            lambda state: in_every_node(state, hub={"published": {}, "late": {}, "undelivered": [["a", "b", 0, "?"]]}),
        ],
        ids=[
            "cut",
            "list",
            "count",
            "no-nodes",
            "nodes-list",
            "archives",
            "ledger",
            "account",
            "ahead",
            "hub",
            "late",
            "parcel",
        ],
    )
    def test_a_damaged_state_is_one_line(self, stopped, change):
        run, folder = stopped
        state = json.loads((folder / "swarm.json").read_text())
        (folder / "swarm.json").write_text(change(state))
        with pytest.raises(RunFailed) as caught:
            play(run)
        assert caught.value.code == "E-CHECKPOINT-01"
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_lost_archive(self, stopped):
        run, folder = stopped
        (folder.parents[1] / "archive" / "ann.motet").unlink()
        with pytest.raises(RunFailed, match="archive") as caught:
            play(run)
        assert caught.value.code == "E-ARCHIVE-04"


class TestBreakdown:
    def test_a_rate_that_destroys_the_model_is_one_line(self, make_run):
        run = make_run(learner={"learning_rate": 1e38}, run={"rounds": 40})
        with pytest.raises(RunFailed, match=r"learner\.learning_rate") as caught:
            play(run)
        assert caught.value.code == "E-LEARN-02"
        assert "\n" not in str(caught.value)


class TestObserver:
    def test_it_is_told_everything(self, make_run):
        seen = []

        class Note(Quiet):
            def started(self, *, nodes, first_round, num_rounds):
                seen.append(("started", tuple(nodes), first_round, num_rounds))

            def phase(self, node, phase, *, round, waiting_for):
                seen.append((node, str(phase), round, tuple(waiting_for)))

            def evaluating(self, node, *, round):
                seen.append((node, "evaluate", round))

            def round_done(self, row):
                seen.append((row["node"], "done", row["round"]))

        run = make_run(run={"rounds": 1})
        run_swarm(run, observer=Note())
        assert seen == [
            ("started", ("ann", "bob"), 0, 1),
            ("ann", "evaluate", -1),
            ("ann", "done", -1),
            ("bob", "evaluate", -1),
            ("bob", "done", -1),
            ("ann", "generate", 0, ()),
            ("ann", "wait", 0, ("bob",)),
            ("bob", "generate", 0, ()),
            ("bob", "wait", 0, ()),
            ("ann", "learn", 0, ()),
            ("ann", "evaluate", 0),
            ("ann", "done", 0),
            ("bob", "learn", 0, ()),
            ("bob", "evaluate", 0),
            ("bob", "done", 0),
        ]

    def test_a_failing_run_can_be_continued(self, make_run, results_of, uninterrupted):
        """Whatever stops the process, what was there at the last checkpoint is continued from."""

        class Stop(Quiet):
            def round_done(self, row):
                if row["round"] == 2 and row["node"] == "ann":
                    raise KeyboardInterrupt

        run = make_run("parts")
        with pytest.raises(KeyboardInterrupt):
            run_swarm(run, observer=Stop())
        assert_same(results_of(play(run).run_dir), results_of(uninterrupted()))


def test_a_completion_that_cannot_be_scored_is_told_once(make_run, tmp_path):
    (tmp_path / "rewards.py").write_text(
        "calls = []\n"
        "def picky(completions, **columns):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 1:\n"
        "        raise RuntimeError('no such luck')\n"
        "    return [0.0 for _ in completions]\n"
    )
    rows = [{"prompt": f"{a}+1=", "answer": "2"} for a in range(1, 10)] * 4
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"name": str(tmp_path / "rows.jsonl"), "reward": f"{tmp_path / 'rewards.py'}:picky"}
    run = make_run(nodes={"ann": "tiny:small"}, task=task, run={"rounds": 2})
    run_dir = run_swarm(run, observer=Quiet()).run_dir
    told = [json.loads(line) for line in run_dir.events.read_text().splitlines() if "unscored" in line]
    assert [(event["node"], "no such luck" in event["text"]) for event in told] == [("ann", True)]
