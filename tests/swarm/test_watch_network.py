"""`motet watch` beside real nodes: it hears them, and they go on as if it were not there."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import pytest
from nats_server import NatsServer, why_no_nats
from node_process import Ground, Program
from zenoh_links import free_port

pytestmark = [pytest.mark.network, pytest.mark.slow]


@contextmanager
def nodes_of(ground: Ground, *names: str, **options):
    """Nodes that have taken something of one another."""
    with ground.node(names[0], **options) as first, ground.node(names[1], **options) as second:
        first.wait_accepted(names[1])
        second.wait_accepted(names[0])
        yield first, second


def end_by_ctrl_c(watching: Program) -> None:
    watching.process.send_signal(signal.SIGINT)
    assert watching.end() == 0
    assert "Traceback" not in watching.said()


def test_a_run_file_whose_nodes_meet_on_this_machine(tmp_path):
    ground = Ground(tmp_path, ("ann", "bob"))
    with ground.start("watch", "run.toml") as early:
        assert early.end() == 5
        assert "nothing listens there" in early.said()
        assert "[E-LINK-01]" in early.said()
    with nodes_of(ground, "ann", "bob") as (ann, bob), ground.start("watch", "run.toml") as watching:
        for name in ("ann", "bob"):
            watching.wait_said(f"run={ground.run_name} node={name} state=live")
        for node, other in ((ann, "bob"), (bob, "ann")):
            node.wait_rounds(3)
            assert [peer.name for peer in node.status().peers] == [other]
            assert node.status().refused == {}
            node.check_calm()
        bob.stop()
        watching.wait_said("node=bob state=left")
        ann.wait_rounds(1)
        end_by_ctrl_c(watching)


def test_an_address_of_a_relay(tmp_path):
    address = f"tcp/127.0.0.1:{free_port()}"
    ground = Ground(tmp_path, ("ann", "bob"), swarm=f'connect = ["{address}"]\n')
    with ground.start("relay", "run.toml", "--listen", address) as relay:
        relay.wait_said("carries")
        with ground.start("watch", address, "--run", ground.run_name) as watching:
            watching.wait_said(f'state=connected address="{address} (relay)" heard=nobody')
            with nodes_of(ground, "ann", "bob") as (_, bob):
                for name in ("ann", "bob"):
                    watching.wait_said(f"run={ground.run_name} node={name} state=live")
                bob.kill()
                watching.wait_said("node=bob state=silent")
                relay.kill()
                watching.wait_said("state=disconnected")
            end_by_ctrl_c(watching)


@pytest.mark.skipif(why_no_nats() is not None, reason=why_no_nats() or "")
def test_a_nats_server(tmp_path):
    with NatsServer(tmp_path / "server") as server:
        ground = Ground(tmp_path / "ground", ("ann", "bob"))
        of_nats = ("--set", "swarm.transport=nats", "--set", f'swarm.connect=["{server.address}"]')
        with ground.node("ann", *of_nats) as ann, ground.node("bob", *of_nats) as bob:
            for node, other in ((ann, "bob"), (bob, "ann")):
                node.wait_accepted(other)
            with (
                ground.start("watch", server.address, "--run", ground.run_name) as anything,
                ground.start("watch", "run.toml", *of_nats) as own,
            ):
                for watching in (anything, own):
                    for name in ("ann", "bob"):
                        watching.wait_said(f"run={ground.run_name} node={name} state=live")
                for node, other in ((ann, "bob"), (bob, "ann")):
                    node.wait_rounds(3)
                    assert [peer.name for peer in node.status().peers] == [other]
                    node.check_calm()
                for watching in (anything, own):
                    end_by_ctrl_c(watching)
