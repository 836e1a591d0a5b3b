"""What people type to train together: `motet node` twice, `motet swarm` over zenoh, an invitation and its use."""

from __future__ import annotations

import json

import pytest
from hosts import lan, why_no_hosts
from node_process import Ground

from motet.cli.main import main
from motet.journal import RunDir, read_jsonl
from motet.journal.peers import read_statuses

pytestmark = pytest.mark.network
NO_HOSTS = why_no_hosts()
PORT = 7447


def test_two_nodes_on_one_machine_without_addresses(tmp_path):
    """They find each other; one is stopped, says so, and goes on by the same command."""
    ground = Ground(tmp_path, ("ann", "bob"))
    with ground.node("ann") as ann, ground.node("bob") as bob:
        for node, other in ((ann, "bob"), (bob, "ann")):
            node.wait_accepted(other)
        assert bob.stop() == 143
        assert "terminated: after round" in bob.said()
        assert "the same command resumes from there" in bob.said()
        assert "Traceback" not in bob.said()
        assert bob.run_dir.latest_checkpoint() is not None
        ann.wait_peer("bob", lambda peer: peer.state == "left", "has left")
        ann.wait(lambda status: status.alone, "alone")
        ann.wait_event("left", "bob", words="has left")
        ann.wait_rounds(3)
        with ground.node("bob") as again:
            again.wait_said("state=resuming")
            again.wait_accepted("ann")
            ann.wait_accepted("bob")
            again.check_calm()
        ann.check_calm()


@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("eve", [], 'no node "eve"; it has ann, bob, cid  [E-NODE-01]'),
        ("ann", ["--set", "swarm.transport=memory"], "[E-NODE-02]"),
    ],
)
def test_a_mistake_costs_one_line(tmp_path, monkeypatch, capsys, name, more, says):
    Ground(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["node", "run.toml", "--name", name, *more]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_swarm_over_zenoh_to_its_end(tmp_path):
    ground = Ground(tmp_path, ("ann", "bob"), rounds=6)
    by_gradient = "admission.max_influence=by_gradient"  # a learner that compares its peers round by round
    code, printed, said = ground.run("swarm", "run.toml", "--json", "end.json", "--set", by_gradient)
    assert code == 0, said
    assert "Traceback" not in said
    summary = json.loads((tmp_path / "end.json").read_text(encoding="utf-8"))
    assert list(summary["nodes"]) == ["ann", "bob"]
    run_dir = RunDir(tmp_path / "runs" / ground.run_name)
    rows = read_jsonl(run_dir.metrics)
    statuses = read_statuses(run_dir)
    for name, other in (("ann", "bob"), ("bob", "ann")):
        assert statuses[name].phase == "finished"
        (peer,) = statuses[name].peers
        assert (peer.name, peer.rejected, peer.accepted) == (other, {}, 6 * 2)
        scales = [
            row["external/influence_scale"] for row in rows if row["node"] == name and "external/influence_scale" in row
        ]
        assert len(scales) == 6
        assert scales[:2] == [0, 0], "too little is known of a peer to learn from it"
        assert all(0 <= scale <= 1 for scale in scales)
    assert "report   motet report" in printed


@pytest.mark.slow
@pytest.mark.skipif(NO_HOSTS is not None, reason=NO_HOSTS or "")
def test_a_guest_is_invited_joins_is_alone_with_its_token_and_is_sent_away(tmp_path):
    with lan(3) as hosts:
        listen = f'listen = ["tcp/{hosts[0].address}:{PORT}"]\n'
        ground = Ground(tmp_path / "host", ("ann", "bob"), name="party", deadline_s=20.0, swarm=listen)
        code, authority, said = ground.run("keys", "ca", "run.toml", host=hosts[0])
        assert code == 0, said
        run_file = ground.path / "run.toml"
        run_file.write_text(run_file.read_text(encoding="utf-8").replace(listen, listen + authority), encoding="utf-8")
        with ground.node("ann", host=hosts[0]) as ann:
            code, invitation, said = ground.run("invite", "run.toml", "--as", "guest", host=hosts[0])
            assert code == 0, said
            motet, join, *token = invitation.split()
            assert (motet, join) == ("motet", "join")
            ann.wait_rounds(1)
            home = Ground(tmp_path / "guest")
            with home.join("guest", token, run_name="party", host=hosts[1]) as guest:
                guest.wait_said("you are in: 1 peer (ann)")
                guest.wait_accepted("ann")
                ann.wait_accepted("guest")
                guest.check_calm()
                code, _, said = Ground(tmp_path / "thief").run("join", *token, host=hosts[2])
                assert code == 6, said
                assert "another machine takes part as guest already" in said
                assert "[E-JOIN-04]" in said
                ann.wait_accepted("guest")
                assert guest.stop() == 143
            with home.join("guest", token, run_name="party", host=hosts[1]) as guest:
                guest.wait_said("state=resuming")
                ann.wait_accepted("guest")
                code, _, said = ground.run("invite", "run.toml", "--revoke", "guest", host=hosts[0])
                assert code == 0, said
                ann.wait_event("left", "guest", words="its invitation was revoked")
                assert guest.end() == 6
                assert "[E-SWARM-14]" in guest.said()
                assert "Traceback" not in guest.said()
            ann.wait_rounds(3)
            ann.check_calm()
