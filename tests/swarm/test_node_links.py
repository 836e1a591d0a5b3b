"""Real nodes whose way to one another fails, is shut, or opens late: relays, certificates, a full disk, late comers."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack

import pytest
from node_process import Ground
from patience import wait_until
from zenoh_links import free_port

from motet.journal import read_jsonl

pytestmark = [pytest.mark.network, pytest.mark.slow]

MOUNT = 'mount -t tmpfs -o size=2m none "$0" && exec "$@"'


def test_two_relays_of_which_one_dies_and_then_both(tmp_path):
    near, far = (f"tcp/127.0.0.1:{free_port()}" for _ in range(2))
    ground = Ground(tmp_path, ("ann", "bob"), deadline_s=10.0, swarm=f'connect = ["{near}", "{far}"]\n')
    backwards = ("--set", f'swarm.connect=["{far}", "{near}"]')
    second = ("relay", "run.toml", "--listen", far, "--connect", near)
    with ground.start("relay", "run.toml", "--listen", near) as hub, ground.start(*second) as other:
        hub.wait_said("carries")
        other.wait_said("carries")
        with ground.node("ann") as ann, ground.node("bob", *backwards) as bob:
            for node, peer in ((ann, "bob"), (bob, "ann")):
                node.wait_accepted(peer)
            hub.kill()
            # Bob hangs on the second; ann comes over to it, and they go on together in a round of after that.
            ann.wait_rounds(3)
            ann.wait(lambda status: status.neighbours == 1, "has another relay")
            for node, peer in ((ann, "bob"), (bob, "ann")):
                before = node.status().bytes_in
                node.wait(lambda status, before=before: status.bytes_in > before + 5000, "hears again")
                node.wait_live(peer)
                node.wait_accepted(peer)
            other.kill()
            for node in (ann, bob):
                node.wait(lambda status: status.alone and status.link_fault, "alone, and says why")
                node.wait_rounds(3)
            with ground.start(*second):
                for node, peer in ((ann, "bob"), (bob, "ann")):
                    node.wait(lambda status: status.link_fault is None, "a link again")
                    node.wait_live(peer)
                    node.wait_accepted(peer)
                    node.wait_event("link_down")
                    node.wait_event("link_up")
                    node.check_calm()


def test_either_may_start_first(tmp_path):
    """A node whose address nobody answers yet says so, goes on trying, and is alone no longer than until one does."""
    address = f"tcp/127.0.0.1:{free_port()}"
    ground = Ground(tmp_path, ("ann", "bob"), swarm=f'connect = ["{address}"]\n', deadline_s=200.0)
    with ground.node("bob") as bob:
        bob.wait_said("event=waiting no connection within 5 s")
        with ground.node("ann", "--set", f'swarm.listen=["{address}"]') as ann:
            bob.wait_accepted("ann")
            ann.wait_accepted("bob")
            assert ann.stop() == 143
        bob.wait_event("alone", words="hears nobody of this run")
        bob.check_calm()


def test_nobody_at_the_address(tmp_path):
    nobody = f"tcp/127.0.0.1:{free_port()}"
    ground = Ground(tmp_path, ("ann", "bob"), swarm=f'connect = ["{nobody}"]\n', deadline_s=2.0)
    with ground.node("ann") as ann:
        assert ann.end() == 5
        assert nobody in ann.said()
        assert "[E-LINK-01]" in ann.said()
        assert "Traceback" not in ann.said()


def test_tls_lets_in_nobody_of_another_authority_and_nobody_without_a_certificate(tmp_path):
    address = f"tls/127.0.0.1:{free_port()}"
    inside = Ground(tmp_path / "inside", ("ann", "bob", "eve"), name="party", swarm=f'connect = ["{address}"]\n')
    outside = Ground(tmp_path / "outside", ("ann", "bob", "eve"), name="party", swarm=f'connect = ["{address}"]\n')
    for ground, names in ((inside, ("hub", "ann", "bob")), (outside, ("eve",))):
        assert ground.run("keys", "ca", "run.toml")[0] == 0
        for name in names:
            code, _, said = ground.run("keys", "issue", "run.toml", "--name", name)
            assert code == 0, said

    def tls(ground, name):
        return ("--set", f"swarm.tls={ground.home / 'keys' / 'party' / 'tls' / name}")

    with inside.start("relay", "run.toml", *tls(inside, "hub"), "--listen", address) as hub:
        hub.wait_said("carries")
        with inside.node("ann", *tls(inside, "ann")) as ann, inside.node("bob", *tls(inside, "bob")) as bob:
            ann.wait_accepted("bob")
            with outside.node("eve", *tls(outside, "eve"), "--set", "swarm.deadline_s=2") as eve:
                assert eve.end() == 5
                assert "another CA" in eve.said()
                assert "[E-LINK-01]" in eve.said()
            naked = tmp_path / "naked"
            naked.mkdir()
            shutil.copy(inside.home / "keys/party/tls/ann/ca.pem", naked)
            with outside.node("eve", "--set", f"swarm.tls={naked}") as eve:
                assert eve.end() == 2
                assert "[E-LINK-03]" in eve.said()
            bob.wait_accepted("ann")
            assert [peer.name for peer in ann.status().peers] == ["bob"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_full_disk_stops_the_node_that_has_it_and_nobody_else(tmp_path):
    ground = Ground(tmp_path, ("ann", "bob"))
    small = tmp_path / "small"
    small.mkdir()
    with (
        ground.node("ann") as ann,
        ground.node("bob", dir="small", wrapper=("unshare", "-m", "sh", "-c", MOUNT, str(small))) as bob,
    ):
        ann.wait_accepted("bob")
        assert bob.end() == 4
        assert "the disk is full" in bob.said()
        assert "[E-DISK-01]" in bob.said()
        assert "Traceback" not in bob.said()
        ann.wait_event("left", "bob")
        ann.wait_rounds(5)
        ann.check_calm()


def test_who_comes_late_under_free_pace_gets_the_last_rounds(tmp_path):
    ground = Ground(tmp_path, swarm='pace = "free"\nmax_lag = 4\n', deadline_s=15.0)
    with ground.node("ann") as ann, ground.node("bob") as bob:
        for node in (ann, bob):
            node.wait(lambda status: status.round >= 20, "is under way")
        with ground.node("cid") as cid:
            cid.wait(lambda status: status.round >= 20, "in the swarm's round")
            cid.wait_accepted("ann", "bob")
            (jumped,) = cid.events("jumped")
            assert "goes on there instead of 1" in jumped["text"]
            first = wait_until(lambda: [r for r in read_jsonl(cid.run_dir.metrics) if r["round"] >= 0], "a row")[0]
            assert first["external/groups"] > 0
            ann.wait_accepted("cid")
            cid.check_calm()


def test_six_nodes_of_one_machine_need_no_address(tmp_path):
    names = ("ann", "bob", "cid", "dan", "eva", "fay")
    ground = Ground(tmp_path, names, deadline_s=60.0)
    with ExitStack() as stack:
        nodes = {name: stack.enter_context(ground.node(name)) for name in names}
        for name, node in nodes.items():
            node.wait_accepted(*(other for other in names if other != name))
        nodes["ann"].kill()  # the first holds the port that the others came to
        for name in names[1:]:
            nodes[name].wait_event("silent", "ann")
        for name in names[1:]:
            nodes[name].wait_accepted(*(other for other in names[1:] if other != name))
            nodes[name].check_calm()
