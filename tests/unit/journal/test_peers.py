"""The status of a node: written whole, read with whatever it lacks, and never a reason to stop."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.journal import RunDir
from motet.journal.peers import PeerStatus, SwarmStatus, read_status, read_statuses, status_path, write_status

STATUS = SwarmStatus(
    at_s=1000.5,
    node="ann",
    key="0a1b2c3d",
    phase="waiting",
    phase_since_s=990.0,
    round=7,
    num_rounds=20,
    swarm_round=8,
    waiting_for=["bob"],
    peers=[PeerStatus(name="bob", state="live", heard_s=0.4, round=7, rejected={"bad_logp": 2}, refused={"replay": 1})],
)


@pytest.fixture
def run_dir(tmp_path):
    return RunDir(tmp_path / "r")


def test_what_is_written_is_read_and_nothing_else_lies_there(run_dir):
    write_status(run_dir, STATUS)
    write_status(run_dir, SwarmStatus(node="bob", at_s=3.0))
    assert read_status(status_path(run_dir, "ann")) == STATUS
    assert list(read_statuses(run_dir)) == ["ann", "bob"]
    assert sorted(path.name for path in (run_dir.path / "peers").iterdir()) == ["ann.json", "bob.json"]


def test_a_status_is_plain_json_for_others(run_dir):
    write_status(run_dir, STATUS)
    plain = json.loads(status_path(run_dir, "ann").read_text(encoding="utf-8"))
    assert plain["peers"][0] == {
        "name": "bob",
        "state": "live",
        "heard_s": 0.4,
        "round": 7,
        "rejected": {"bad_logp": 2},
        "refused": {"replay": 1},
    }


def test_unknown_fields_and_missing_ones_are_fine(run_dir):
    path = status_path(run_dir, "ann")
    path.parent.mkdir(parents=True)
    path.write_text('{"node": "ann", "of_the_future": [1], "peers": [{"name": "bob", "mood": "good"}]}')
    assert read_status(path) == SwarmStatus(node="ann", peers=[PeerStatus(name="bob")])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"node": 3}', b'{"at_s": 1}', b'{"node": "a", "version": 99}', b'{"node": "\xff"}']
)
def test_what_is_no_status_is_none(run_dir, content):
    path = status_path(run_dir, "ann")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert read_status(path) is None
    assert read_statuses(run_dir) == {}


def test_nothing_there_is_no_status(run_dir):
    assert read_status(status_path(run_dir, "ann")) is None
    assert read_statuses(run_dir) == {}


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: json.dumps({"node": text}).encode()))
def test_reading_never_raises(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("peers") / "a.json"
    path.write_bytes(content)
    found = read_status(path)
    assert found is None or found.node
