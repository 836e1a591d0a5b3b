"""What real nodes survive on one machine: processes that freeze, die, are doubled, or are no nodes at all.

Three nodes with tiny models train without end; each test does something to them, and leaves them as they were.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack

import pytest
from hostile import ATTACKS
from hostile_node import hostile_node
from node_process import Ground, peer_of
from patience import wait_until

from motet.config import load_run_file
from motet.swarm.identity.keyring import run_id_of
from motet.tasks import load_task

pytestmark = [pytest.mark.network, pytest.mark.slow]

NAMES = ("ann", "bob", "cid", "dan", "eli", "fay", "gus", "eve")
COUNT = 1000


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("ground"), NAMES, deadline_s=20.0)


@pytest.fixture(scope="module")
def nodes(ground):
    """Ann, bob and cid by name, wherever they are now."""
    with ExitStack() as stack:
        started = {}

        def start(name):
            started[name] = stack.enter_context(ground.node(name, *PATIENT))
            return started[name]

        started["start"] = start
        for name in ("ann", "bob", "cid"):
            start(name)
        yield started


PATIENT = ("--set", "admission.quarantine_after=1000000")
"""Ann and her friends count every hostile group of eve's, rather than hearing her no more."""


@pytest.fixture
def trio(nodes):
    """The three nodes, each of which learns from the others."""
    trio = [nodes[name] for name in ("ann", "bob", "cid")]
    check_well(trio)
    yield trio
    check_well([nodes[name] for name in ("ann", "bob", "cid")])


def check_well(trio):
    for node in trio:
        others = [other.name for other in trio if other is not node]
        node.wait_live(*others)
        node.wait_accepted(*others)
        node.check_calm()


def wait_told(trio, odd, words):
    """Who differs leaves as soon as it knows: told is whoever got its card before."""
    wait_until(
        lambda: any(words in event["text"] for node in trio for event in node.events("other_run", odd)),
        f"{odd}: {words}",
    )


def address(ground):
    run = load_run_file(ground.path / "run.toml")
    return {"port": run.embedded_port, "run_id": run_id_of(run.run.name, run.run.seed, None).hex()}


def test_a_frozen_node_is_not_waited_for_and_catches_up(trio):
    ann, bob, cid = trio
    os.kill(cid.pid, signal.SIGSTOP)
    try:
        for node in (ann, bob):
            node.wait_peer("cid", lambda peer: peer.state == "silent", "is silent")
            node.wait_rounds(15)
            node.wait_accepted("ann" if node is bob else "bob")
    finally:
        os.kill(cid.pid, signal.SIGCONT)
    cid.wait_event("jumped", words="the swarm is in round")
    behind = ann.status().round
    cid.wait(lambda status: status.round >= behind, "in the swarm's round")
    assert not ann.peer("cid").refused.keys() - {"replay", "duplicate", "round"}


def test_a_node_that_is_killed_goes_on_by_the_same_command(trio, nodes):
    ann, bob, cid = trio
    cid.wait(lambda status: status.phase in ("generating", "training"), "in mid-round")
    cid.kill()
    before = ann.peer("cid").refused
    at = ann.status().round
    for node in (ann, bob):
        node.wait(lambda status: status.round >= at + 10, "goes on")
    again = nodes["start"]("cid")
    again.wait_said("state=resuming")
    again.wait_accepted("ann", "bob")
    first = again.status().round
    assert first >= at
    ann.wait_accepted("cid")
    after = ann.peer("cid").refused
    assert {reason for reason in after if after[reason] > before.get(reason, 0)} <= {"replay", "duplicate"}
    assert again.events("resumed")


def test_a_second_process_with_the_same_key_ends_and_says_why(trio, ground):
    """It listens before it speaks: otherwise the others would take it for the node, and the node for a ghost."""
    ann, bob, cid = trio
    before = {node: [len(node.events(kind, "cid")) for kind in ("back", "left")] for node in (ann, bob)}
    with ground.node("cid", dir="elsewhere") as double:
        assert double.end() == 6
        assert "another process uses this node's name and key" in double.said()
        assert "[E-SWARM-12]" in double.said()
        assert "Traceback" not in double.said()
    cid.wait_rounds(3)
    assert before == {node: [len(node.events(kind, "cid")) for kind in ("back", "left")] for node in (ann, bob)}


def test_nodes_that_cannot_belong_here_are_refused_by_reason_and_hurt_nobody(trio, ground):
    ann, bob, _ = trio
    late_clock = "import time\nreal = time.time\ntime.time = lambda: real() + 3600"
    other_protocol = "import motet.swarm.identity.envelope as envelope\nenvelope.PROTOCOL_VERSION = 2"
    other_wire = "import motet.records.wire as wire\nwire.WIRE_VERSION = 4\nimport motet.records as records\n"
    other_wire += "records.WIRE_VERSION = 4"
    settings = ("--set", "rollout.group_size=5", "--set", "rollout.max_new_tokens=9")
    with ExitStack() as stack:
        dan = stack.enter_context(ground.node("dan", prelude=late_clock))
        eli = stack.enter_context(ground.node("eli", prelude=other_protocol))
        fay = stack.enter_context(ground.node("fay", *settings))
        gus = stack.enter_context(ground.node("gus", prelude=other_wire))
        for node in (ann, bob):
            node.wait_event("clock", words="dan: its clock is")
            node.wait_event("refused", words="of another protocol version")
        wait_told(trio, "fay", "rollout.group_size: here '4', there '5'; rollout.max_new_tokens: here '8', there '9'")
        wait_told(trio, "gus", "wire version: here '3', there '4'")
        for odd, words in ((fay, "rollout.group_size: here '5', there '4'"), (gus, "wire version: here '4'")):
            assert odd.end() == 6
            assert words in odd.said()
            assert "[E-SWARM-15]" in odd.said()
        for odd in (dan, eli):
            odd.wait(lambda status: status.round >= 1 and status.alone, "alone")
            odd.check_calm()
        status = ann.status()
        assert "ann" not in {peer.name for peer in dan.status().peers if peer.state == "live"}
        assert peer_of(status, "fay").accepted == peer_of(status, "gus").accepted == 0
        assert not [peer for peer in status.peers if peer.name in ("dan", "eli", "fay", "gus") and peer.state == "live"]
        told = dan.wait_event("clock", words="behind this machine's")
        assert "3600 s" in told["text"] or "3599 s" in told["text"]


class TestHostileProcess:
    def test_hostile_groups_of_every_kind(self, trio, ground):
        ann, bob, _ = trio
        before = ann.status().round
        task = load_task(**load_run_file(ground.path / "run.toml").task.model_dump())
        options = {"count": COUNT, "num_prompts": task.num_prompts("train"), **address(ground)}
        with hostile_node("groups", name="eve", victim="ann", **options) as eve:
            sent = json.loads(eve.stdout.readline())
        assert sum(sent.values()) == COUNT
        assert sent.keys() == ATTACKS.keys() - {"too-large"}
        for node in (ann, bob):
            node.wait_peer(
                "eve", lambda peer: sum(peer.rejected.values()) + peer.accepted >= COUNT - 40, "rejected all over"
            )
            peer = node.peer("eve")
            reasons = {attack.reason for attack in ATTACKS.values()}
            assert len(peer.rejected.keys() & reasons) >= 12, peer.rejected
            assert peer.accepted == 0
            node.check_calm()
        assert ann.status().round >= before + COUNT // 6

    def test_hostile_bytes_of_every_kind(self, trio, ground):
        ann, bob, _ = trio
        with hostile_node("bytes", name="eve", victim="ann", count=COUNT, **address(ground)) as eve:
            sent = json.loads(eve.stdout.readline())
        assert sum(sent.values()) == COUNT
        assert len(sent) == 13
        wanted = {"malformed", "wrong_protocol", "impersonation", "bad_signature", "foreign_run", "wrong_key"}

        def has_all(status):
            refused = set(status.refused)
            for peer in status.peers:
                refused |= peer.refused.keys()
            return wanted <= refused

        for node in (ann, bob):
            node.wait(has_all, f"refused for {wanted}")
        assert [peer.name for peer in ann.status().peers if peer.name.startswith("x")] == []

    def test_a_flood_costs_neither_rounds_nor_memory(self, trio, ground):
        before = {node.name: node.rss_bytes() for node in trio}
        with hostile_node("flood", name="eve", victim="ann", seconds=8.0, **address(ground)) as eve:
            for node in trio:
                node.wait_rounds(5)
            flooded = json.loads(eve.stdout.readline())
        assert flooded["messages"] > 1000
        for node in trio:
            assert node.rss_bytes() - before[node.name] < 400_000_000
