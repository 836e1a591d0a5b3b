"""What `motet watch` makes of run directories: torn, missing, hostile, of one node or of all."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from motet.cli import watch, watch_runs
from motet.cli.watch_files import Tail, WatchedRun
from motet.cli.watch_now import look
from motet.cli.watch_view import lines_of, table_of
from motet.errors import UsageError
from motet.journal import RunDir, write_json
from motet.journal.peers import PeerStatus, SwarmStatus, write_status

NOW = 1_800_000_000.0
HOSTILE = "[red]\x1b[2Jeve\n\u202e"


def make_run(path: Path, *, nodes: tuple[str, ...] = ("ann", "bob"), name: str = "sums", rounds: int = 20) -> RunDir:
    run_dir = RunDir.create(path, seed=0)
    tables = "".join(f'[[node]]\nname = "{node}"\nmodel = "tiny:small"\n' for node in nodes)
    run_dir.config.write_text(f'[run]\nname = "{name}"\nrounds = {rounds}\n{tables}', encoding="utf-8")
    return run_dir


def append(path: Path, *rows: object) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def row(round: int, node: str, **more: object) -> dict[str, object]:
    return {
        "round": round,
        "node": node,
        "reward/own_mean": 0.5,
        "wire/tokens_sent": 100,
        "wire/bytes_sent": 400,
        "time/generate_s": 1.0,
        "time/learn_s": 1.0,
        **{name.replace("__", "/"): value for name, value in more.items()},
    }


def now_of(*run_dirs: RunDir, now_s: float = NOW):
    watched = [WatchedRun(run_dir) for run_dir in run_dirs]
    for one in watched:
        one.refresh()
    return look(watched, now_s=now_s)


def text_of(now, width: int = 80) -> str:
    console = Console(width=width, markup=True, emoji=True, force_terminal=False)
    with console.capture() as capture:
        console.print(table_of(now))
    return capture.get()


def node_of(now, name: str):
    (node,) = (node for node in now.nodes if node.name == name)
    return node


# --- files that others write -----------------------------------------------------------------------------------------


def test_only_new_whole_lines_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    tail = Tail(path)
    assert tail.read() == (False, [])
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert tail.read() == (False, [{"a": 1}, {"a": 2}])
    assert tail.read() == (False, [])
    with path.open("a") as file:
        file.write(': 3}\n[1]\nnonsense\n{"a": 4}\n')
    assert tail.read() == (False, [{"a": 3}, {"a": 4}])


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    tail = Tail(path)
    tail.read()
    other.write_text('{"a": 1}\n')
    os.replace(other, path)
    assert tail.read() == (True, [{"a": 1}])


@given(content=st.binary(max_size=80), cut=st.integers(0, 80))
def test_no_bytes_stop_the_reading(tmp_path_factory, content, cut):
    path = tmp_path_factory.mktemp("tail") / "a.jsonl"
    tail = Tail(path)
    path.write_bytes(content[:cut])
    first = tail.read()[1]
    path.write_bytes(content)
    assert all(isinstance(found, dict) for found in first + tail.read()[1])


def test_a_directory_with_nothing_in_it_yet(tmp_path):
    run_dir = RunDir.create(tmp_path / "r", seed=0)
    now = now_of(run_dir)
    assert (now.run, now.nodes, now.finished) == ("r", [], False)
    assert "nothing is known" in text_of(now)


def test_a_resumed_run_forgets_the_rows_that_were_dropped(tmp_path):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    append(run_dir.metrics, row(0, "ann"), row(1, "ann"))
    one = WatchedRun(run_dir)
    one.refresh()
    assert one.rounds_done == 2
    aside = run_dir.metrics.with_name("aside")
    append(aside, row(0, "ann"))
    aside.replace(run_dir.metrics)
    one.refresh()
    assert (one.rounds_done, one.learned["ann"].tokens_sent) == (1, 100)


# --- a run without a network -----------------------------------------------------------------------------------------


def test_a_run_in_one_process(tmp_path):
    run_dir = make_run(tmp_path / "r")
    append(run_dir.events, {"time": "2027-01-15T07:59:00+00:00", "kind": "started", "round": 0})
    for name, start in (("ann", 0.25), ("bob", 0.5)):
        append(run_dir.metrics, row(-1, name, accuracy__test=start, accuracy__test__se=0.03))
    for round in range(4):
        append(run_dir.metrics, row(round, "ann", filter__dropped_share=0.25), row(round, "bob"))
    append(
        run_dir.metrics, row(4, "ann", accuracy__test=0.5, accuracy__test__se=0.03), row(4, "bob"), '{"round": 5, "no'
    )
    os.utime(run_dir.metrics, (NOW - 1, NOW - 1))
    os.utime(run_dir.events, (NOW - 61, NOW - 61))
    began = 1_799_999_940.0
    now = now_of(run_dir)
    assert (now.run, now.round, now.rounds, now.seen_by) == ("sums", 5, 20, [])
    assert now.eta_s == pytest.approx((NOW - 1 - began) / 5 * 15 - 1, abs=25)
    ann, bob = now.nodes
    assert (ann.state, ann.round, ann.held_out, ann.gain) == ("running", 5, 0.5, 0.25)
    assert (ann.bytes_per_token, ann.tokens_per_s) == (4.0, 50.0)
    assert (bob.used_share, ann.used_share) == (0.75, None)
    shown = text_of(now)
    assert "round 5/20" in shown
    assert "+25 +-4" in shown


@pytest.mark.parametrize(
    ("event", "age_s", "state"), [("started", 5, "running"), ("stopped", 5, "stopped"), ("started", 500, "silent")]
)
def test_how_a_run_without_a_network_stands(tmp_path, event, age_s, state):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    append(run_dir.events, {"kind": event, "round": 0})
    append(run_dir.metrics, row(0, "ann"))
    for path in (run_dir.events, run_dir.metrics):
        os.utime(path, (NOW - age_s, NOW - age_s))
    assert node_of(now_of(run_dir), "ann").state == state


def test_a_finished_run_has_its_ledger(tmp_path):
    run_dir = make_run(tmp_path / "r")
    append(run_dir.metrics, row(0, "ann"), row(0, "bob"))
    ledger = {"received": 9, "accepted": 7, "rejected": {"stale": 2}, "late": 1, "kept": 6, "dropped": {"kl": 2}}
    write_json(run_dir.summary, {"nodes": {"ann": {"ledger": {"bob": ledger}}, "bob": {"ledger": {"ann": "?"}}}})
    now = now_of(run_dir)
    bob = node_of(now, "bob")
    assert now.finished
    assert (bob.state, bob.accepted, bob.rejected, bob.late, bob.used_share) == ("finished", 7, {"stale": 2}, 1, 0.75)


def test_rejected_groups_of_nobody_in_particular_are_shown(tmp_path):
    run_dir = make_run(tmp_path / "r")
    append(run_dir.metrics, row(0, "ann", admission__rejected__stale=2), row(1, "ann", admission__rejected__stale=1))
    assert "rejected by the gate: stale:3" in text_of(now_of(run_dir))


# --- a run over the network ------------------------------------------------------------------------------------------


def status(node: str, *peers: PeerStatus, **more: object) -> SwarmStatus:
    fields = {"at_s": NOW - 1, "phase": "training", "round": 4, "num_rounds": 20, "swarm_round": 5, **more}
    return SwarmStatus(node=node, peers=list(peers), **fields)


def networked(tmp_path: Path, *, name: str = "sums") -> RunDir:
    run_dir = make_run(tmp_path / f"{name}-ann", nodes=("ann", "bob", "kim"), name=name)
    append(run_dir.metrics, row(3, "ann"))
    write_status(
        run_dir,
        status(
            "ann",
            PeerStatus(
                name="bob",
                state="live",
                heard_s=0.5,
                round=5,
                accepted=12,
                kept=3,
                dropped={"kl": 1},
                rejected={"bad_logp": 2},
                refused={"replay": 7},
            ),
            PeerStatus(name="kim", state="silent", heard_s=30.0, round=2, lag=3),
            phase="waiting",
            phase_since_s=NOW - 9,
            waiting_for=["kim"],
            waiting_until_s=NOW + 48,
        ),
    )
    return run_dir


def test_a_node_tells_of_its_peers(tmp_path):
    now = now_of(networked(tmp_path))
    assert (now.round, now.seen_by) == (6, ["ann"])
    ann, bob, kim = now.nodes
    assert (ann.state, ann.round, ann.lag, ann.waiting_for) == ("waiting", 5, 1, ["kim"])
    assert (bob.state, bob.round, bob.heard_s, bob.accepted, bob.used_share) == ("live", 6, 1.5, 12, 0.75)
    assert (kim.state, kim.lag, kim.since_s) == ("silent", 3, 31.0)
    shown = text_of(now)
    assert "seen by ann" in shown
    assert "waits for kim 9 s" in shown
    assert "ann is held back by kim, since 9 s; goes on without in 48 s" in shown
    assert "rejected 2 (bad_logp:2)" in shown
    assert "refused 7 (replay:7)" in " ".join(text_of(now, width=120).split())


def test_a_swarm_of_three_fits_a_terminal_of_80_columns(tmp_path):
    run_dir = networked(tmp_path)
    long = [PeerStatus(name=f"node-{'x' * 27}", state="silent", heard_s=3.0, rejected={"a_long_reason_" * 3: 10**6})]
    write_status(run_dir, status("bob", *long, phase="waiting", waiting_for=[long[0].name], phase_since_s=0.0))
    append(run_dir.metrics, row(3, "bob", accuracy__test=1.0, accuracy__test__se=0.5))
    lines = text_of(now_of(run_dir)).splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if line.startswith(("node ", "groups of"))]
    assert heads == [
        ["node", "now", "round", "lag", "held-out", "change", "reward", "used"],
        ["groups", "of", "not", "taken", "accepted", "B/token", "token/s", "heard"],
    ]


def test_a_status_that_is_not_rewritten_is_of_a_silent_node(tmp_path):
    run_dir = networked(tmp_path)
    assert node_of(now_of(run_dir, now_s=NOW + 60), "ann").state == "silent"
    assert now_of(run_dir, now_s=NOW + 60).waits == []
    write_status(run_dir, status("ann", phase="stopped"))
    assert node_of(now_of(run_dir, now_s=NOW + 60), "ann").state == "stopped"


def test_a_node_that_is_alone_sets_the_pace_itself(tmp_path):
    run_dir = networked(tmp_path)
    write_status(run_dir, status("bob", at_s=NOW - 60, swarm_round=5, round=5))  # of a process that has gone
    gone = PeerStatus(name="bob", state="silent", heard_s=60.0, round=5)
    write_status(run_dir, status("ann", gone, alone=True, swarm_round=None, round=11))
    now = now_of(run_dir)
    assert (now.round, [node.lag for node in now.nodes]) == (12, [0, 6, 0])


def test_a_node_that_is_alone_samples_as_well(tmp_path):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    sampled = {"own__completions": 40, "own__unscored": 8, "completion__length_mean": 6.25}
    append(run_dir.metrics, row(0, "ann", **sampled, wire__tokens_sent=0, wire__bytes_sent=0))
    ann = node_of(now_of(run_dir), "ann")
    assert (ann.tokens_per_s, ann.bytes_per_token) == (100.0, None)


def test_one_examination_shows_no_change(tmp_path):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    append(run_dir.metrics, row(-1, "ann", accuracy__test=0.25, accuracy__test__se=0.03), row(0, "ann"))
    assert node_of(now_of(run_dir), "ann").gain is None


def test_several_directories_of_one_run(tmp_path):
    first = networked(tmp_path)
    second = make_run(tmp_path / "sums-bob", nodes=("bob",))
    append(second.metrics, row(4, "bob", **{"accuracy/test": 0.75}))
    write_status(second, status("bob", PeerStatus(name="ann", state="live", heard_s=0.1, accepted=5), round=5))
    now = now_of(first, second)
    assert now.seen_by == ["ann", "bob"]
    bob = node_of(now, "bob")
    assert (bob.state, bob.held_out, bob.accepted, bob.round) == ("training", 0.75, 12, 6)
    assert node_of(now, "ann").accepted == 5


def test_quarantine_alone_and_a_broken_link_are_told(tmp_path):
    run_dir = make_run(tmp_path / "r")
    bad = PeerStatus(name="bob", state="live", heard_s=0.1, quarantined_until=9)
    write_status(run_dir, status("ann", bad, alone=True, link_fault="no answer", refused={"unknown_peer": 3}))
    append(
        run_dir.events, {"time": "2027-01-15T08:00:00+00:00", "kind": "quarantined", "peer": "bob", "text": "strikes"}
    )
    shown = text_of(now_of(run_dir))
    assert "quarantined to 10" in shown
    assert "ann is alone" in shown
    assert "ann has no connection: no answer" in shown
    assert "refused from nobody known: unknown_peer:3" in shown
    assert "08:00:00 quarantined bob strikes" in shown


def test_of_many_nodes_those_in_trouble_are_shown(tmp_path):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    peers = [PeerStatus(name=f"n{i:03}", state="silent" if i == 200 else "live", heard_s=0.1) for i in range(256)]
    write_status(run_dir, status("ann", *peers))
    shown = text_of(now_of(run_dir))
    assert "n200" in shown
    assert "and 233 more nodes" in shown
    assert len(shown.splitlines()) < 60


def test_text_of_strangers_steers_nothing(tmp_path):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    eve = PeerStatus(name=HOSTILE, state=HOSTILE, heard_s=0.1, rejected={HOSTILE: 1}, refused={HOSTILE: 2})
    write_status(
        run_dir, status("ann", eve, waiting_for=[HOSTILE], link_fault=HOSTILE, refused={HOSTILE: 1}, phase="waiting")
    )
    append(run_dir.events, {"time": HOSTILE, "kind": HOSTILE, "peer": HOSTILE, "node": HOSTILE, "text": HOSTILE})
    now = now_of(run_dir)
    shown = text_of(now)
    assert "[red]" in shown  # as text
    lines = list(lines_of(now, None))
    for text in (*shown.splitlines(), *lines):
        assert text.isprintable()
    assert any('"[red]?[2Jeve??"' in line or "[red]?[2Jeve??" in line for line in lines)


# --- lines -----------------------------------------------------------------------------------------------------------


def test_a_line_for_each_change_and_none_for_the_clock(tmp_path):
    run_dir = networked(tmp_path)
    first = now_of(run_dir)
    lines = list(lines_of(first, None))
    assert lines[0] == "run=sums node=ann round=5/20 state=waiting lag=1 reward=0.5 bytes_per_token=4 tokens_per_s=50"
    assert "run=sums node=ann waiting_for=kim left_s=48" in lines
    assert list(lines_of(now_of(run_dir, now_s=NOW + 2), first)) == []
    write_status(run_dir, status("ann", alone=True, link_fault="no answer"))
    told = list(lines_of(now_of(run_dir), first))
    assert "run=sums node=ann alone=yes" in told
    assert 'run=sums node=ann link="no answer"' in told
    assert any(line.startswith("run=sums node=kim") and "state=unheard" in line for line in told)


# --- the verb --------------------------------------------------------------------------------------------------------


def run_verb(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    watch.add_parser(parser.add_subparsers())
    return watch.run(parser.parse_args(["watch", *arguments]))


def test_once_as_json(tmp_path, capsys):
    run_dir = networked(tmp_path)
    assert run_verb(str(run_dir.path), "--once", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert [node["name"] for node in found["nodes"]] == ["ann", "bob", "kim"]
    assert set(found) == set(asdict(now_of(run_dir)))


def test_a_finished_run_ends_the_watching(tmp_path, capsys):
    run_dir = make_run(tmp_path / "r", nodes=("ann",))
    append(run_dir.metrics, row(0, "ann"))
    write_json(run_dir.summary, {"nodes": {}})
    assert run_verb(str(run_dir.path), "--interval", "60") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "run=sums state=finished"


def test_a_folder_of_runs_stands_for_the_newest_one_with_all_its_nodes(tmp_path):
    networked(tmp_path)
    make_run(tmp_path / "sums-bob", nodes=("bob",))
    old = make_run(tmp_path / "old", name="old")
    past = time.time() - 1000
    for path in (old.info, old.config):
        os.utime(path, (past, past))
    found = watch_runs.find_runs([str(tmp_path)])
    assert [run_dir.path.name for run_dir in found.run_dirs] == ["sums-ann", "sums-bob"]
    for names in (["sums"], ["sums-ann", "sums-ann/..", "sums-bob"]):
        assert watch_runs.find_runs([str(tmp_path / name) for name in names]) == found


def test_where_a_run_has_ended_it_is_left_out_of_a_folder(tmp_path, capsys):
    networked(tmp_path)
    ended = make_run(tmp_path / "sums", nodes=("ann", "bob"))
    write_json(ended.summary, {"nodes": {}})
    finished = make_run(tmp_path / "other", name="other")
    write_json(finished.summary, {"nodes": {}})
    coming = time.time() + 100
    for path in (finished.info, finished.config):
        os.utime(path, (coming, coming))  # written last, but nothing goes on there
    found = watch_runs.find_runs([str(tmp_path)])
    assert ([run_dir.path.name for run_dir in found.run_dirs], found.left_out) == (["sums-ann"], ["sums"])
    every = watch_runs.find_runs([str(tmp_path)], every=True)
    assert ([run_dir.path.name for run_dir in every.run_dirs], every.left_out) == (["sums", "sums-ann"], [])
    named = watch_runs.find_runs([str(tmp_path / "sums")])
    assert ([run_dir.path.name for run_dir in named.run_dirs], named.left_out) == (["sums"], [])
    assert run_verb(str(tmp_path), "--once") == 0
    assert "not shown, as nothing goes on there any more (--all shows it): sums" in capsys.readouterr().out
    old = time.time() - 10_000
    for path in (tmp_path / "sums-ann").rglob("*"):
        os.utime(path, (old, old))  # where nothing goes on at all, everything is shown
    assert [run_dir.path.name for run_dir in watch_runs.find_runs([str(tmp_path)]).run_dirs] == ["other"]


def test_what_cannot_be_watched(tmp_path):
    make_run(tmp_path / "a", name="a")
    make_run(tmp_path / "b", name="b")
    for paths, code in (
        ([tmp_path / "a", tmp_path / "b"], "E-WATCH-02"),
        ([tmp_path / "none"], "E-RUN-02"),
        ([tmp_path / "a" / "checkpoints"], "E-RUN-02"),
    ):
        with pytest.raises(UsageError) as caught:
            watch_runs.find_runs([str(path) for path in paths])
        assert caught.value.code == code
