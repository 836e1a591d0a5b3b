"""Real nodes on three machines: cables that are pulled, a slow line, somebody killed while the others are cut off."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hosts import lan, why_no_hosts
from node_process import Ground, peer_of

NO_HOSTS = why_no_hosts()
pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(NO_HOSTS is not None, reason=NO_HOSTS or ""),
]
NAMES = ("ann", "bob", "cid")
PORT = 7447


class Lan:
    """Three machines with a node each."""

    def __init__(self, path, hosts, stack, *, more=(), **options):
        self.hosts = dict(zip(NAMES, hosts, strict=True))
        self._stack = stack
        self._more = more
        self._grounds = {}
        for name, host in self.hosts.items():
            listen = f'listen = ["tcp/{host.address}:{PORT}"]\nconnect = ["tcp/{hosts[0].address}:{PORT}"]\n'
            self._grounds[name] = Ground(path / name, NAMES, name="lan", deadline_s=20.0, swarm=listen, **options)
        self.nodes = {}
        self.start("ann")
        self.nodes["ann"].wait(lambda status: status.phase == "joining", "listens")
        self.start("bob")
        self.start("cid")

    def start(self, name):
        node = self._grounds[name].node(name, *self._more, host=self.hosts[name])
        self.nodes[name] = self._stack.enter_context(node)
        return self.nodes[name]

    def check_well(self):
        for name, node in self.nodes.items():
            others = [other for other in NAMES if other != name]
            node.wait_live(*others)
            node.wait_accepted(*others)
            node.check_calm()


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with lan(3) as hosts, ExitStack() as stack:
        yield Lan(tmp_path_factory.mktemp("lan"), hosts, stack)


def test_a_cable_is_pulled_and_put_back(three):
    three.check_well()
    ann, bob, cid = (three.nodes[name] for name in NAMES)
    three.hosts["cid"].unplug()
    for node in (ann, bob):
        node.wait_peer("cid", lambda peer: peer.state == "silent", "is silent")
        node.wait_event("silent", "cid")
        node.wait_rounds(5)
    for node, other in ((ann, "bob"), (bob, "ann")):
        node.wait_accepted(other)
    cid.wait(lambda status: status.alone, "alone")
    cid.wait_rounds(5)
    three.hosts["cid"].plug()
    three.check_well()
    ann.wait_event("back", "cid")


def test_churn_while_the_swarm_is_in_two_parts(three):
    """Ann is cut off; meanwhile bob is killed and comes back, and has only cid to learn how far the swarm is."""
    three.check_well()
    ann, bob, cid = (three.nodes[name] for name in NAMES)
    three.hosts["ann"].unplug()
    ann.wait(lambda status: status.alone, "alone")
    bob.kill()
    cid.wait(lambda status: status.alone, "alone")
    cid.wait_rounds(5)
    three.hosts["ann"].plug()
    again = three.start("bob")
    again.wait_said("state=resuming")
    three.check_well()
    rounds = [node.status().round for node in three.nodes.values()]
    assert max(rounds) - min(rounds) <= 3, (rounds, cid.status())


def test_large_groups_on_a_slow_line(tmp_path):
    more = ("--set", "rollout.group_size=512", "--set", "admission.max_group_size=512")
    with lan(3) as hosts, ExitStack() as stack:
        hosts[2].limit_downlink(0.5)  # a round of the others takes longer than a second
        three = Lan(tmp_path, hosts, stack, more=(*more, "--set", "swarm.log_probs=exact"))
        three.check_well()
        ann, _, cid = (three.nodes[name] for name in NAMES)
        before = peer_of(cid.status(), "ann").accepted
        cid.wait_rounds(3)
        cid.wait_peer("ann", lambda peer: peer.accepted >= before + 4, "is learned from all the same")
        ann.wait_accepted("cid")
        assert not cid.events("silent")
