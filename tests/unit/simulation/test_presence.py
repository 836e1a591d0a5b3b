"""What a node tells of itself while it waits for others, and when they have gone."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from network_hub import Party, memory_links, wait_for

from motet.config import RunFile
from motet.journal import RunDir
from motet.journal.peers import read_status, status_path
from motet.simulation.presence import Presence


@pytest.fixture
def party():
    with ExitStack() as stack:
        party = Party(stack.enter_context(memory_links()), num_rounds=3)
        stack.callback(party.close)
        yield party


@pytest.fixture
def presence(party, tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_HOME", str(tmp_path / "home"))
    nodes = [{"name": name, "model": "tiny:small"} for name in party.keys]
    run = RunFile.model_validate(
        {"run": {"name": "sums", "rounds": 3}, "swarm": {"transport": "zenoh", "deadline_s": 200.0}, "node": nodes}
    )
    run_dir = RunDir.create(tmp_path / "runs" / "sums-ann", seed=0)
    presence = Presence(run, "ann", run_dir, party.make("ann"), node=None)  # which is asked between rounds only
    presence.status = lambda: read_status(status_path(run_dir, "ann"))
    yield presence
    presence.close()


def test_whom_a_node_waits_for_at_the_beginning(party, presence):
    told: list[str] = []
    entering = threading.Thread(
        target=lambda: presence.enter(0, wait_for=["bob", "cid"], tell=told.append), name="entering"
    )
    entering.start()
    wait_for(lambda: (status := presence.status()) is not None and status.waiting_for == ["bob", "cid"])
    assert presence.status().phase == "waiting"
    assert presence.status().waiting_until_s > presence.status().at_s
    assert not presence.status().alone  # it has not begun
    wait_for(lambda: told, "a word about it")
    assert told == ["waits for bob, cid, 200 s at most"]
    party.join("bob")
    wait_for(lambda: presence.status().waiting_for == ["cid"])
    party.join("cid")
    entering.join()
    wait_for(lambda: presence.status().phase == "joining")
    assert (presence.status().waiting_for, presence.status().waiting_until_s) == ([], None)


@pytest.mark.parametrize(("last", "is_alone"), [(1, True), (2, False)])
def test_a_node_whose_peers_have_done_the_last_round_is_not_alone(party, presence, last, is_alone):
    bob = party.join("bob")
    presence.enter(0, wait_for=["bob"])
    assert not presence.is_alone
    bob.begin(0)
    bob.publish(last, [b"group"])
    bob.close()
    wait_for(lambda: presence._network.peers() == [])
    assert presence.is_alone == is_alone
