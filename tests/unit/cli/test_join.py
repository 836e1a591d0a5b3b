"""`motet join`: what a guest gets of an invitation, again and elsewhere, and what a hostile one cannot do."""

from __future__ import annotations

import argparse
import stat
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest

from motet.cli import join
from motet.cli.doctor import case_of
from motet.cli.guest_file import guest_file
from motet.config import RunFile, load_run_file
from motet.errors import SwarmRefused, SwarmUnreachable, UsageError
from motet.journal import RunDir
from motet.journal.peers import PeerStatus, SwarmStatus, write_status
from motet.swarm.identity.certificates import create_ca, issue_leaf
from motet.swarm.identity.credentials import Credential, Refusal, Roster, issue_grant, plain_credential
from motet.swarm.identity.invitation import Invitation, encode
from motet.swarm.identity.keyring import Keyring, run_id_of
from motet.swarm.identity.keys import NodeKey, fingerprint
from motet.tasks import load_task

ADDRESS = "tcp/127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_HOME", str(tmp_path / "guest"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "guest"


@pytest.fixture
def host(tmp_path):
    """An inviter: `host()` gives an invitation with its token; keywords change the run file."""
    authority = NodeKey.generate()

    def invite(
        *,
        days: float = 7,
        address: str = ADDRESS,
        task: str | None = None,
        tls: bool = False,
        models: tuple[str, ...] = ("elsewhere", "tiny:large"),
        text: str | None = None,
        **sections: dict[str, object],
    ) -> SimpleNamespace:
        run_file = RunFile.model_validate(
            {
                "run": {"name": "sums", "rounds": 9, **sections.pop("run", {})},
                "rollout": {"prompts_per_round": 9, "group_size": 4},
                "swarm": {"transport": "zenoh", "authority": fingerprint(authority.public)},
                "node": [{"name": f"n{index}", "model": model} for index, model in enumerate(models)],
                **sections,
            }
        )
        run_id = run_id_of("sums", 0, fingerprint(authority.public))
        secret = NodeKey.generate()
        grant = issue_grant(authority, run_id, "kim", secret.public, int(time.time() + days * 86_400))
        bundle = None
        if tls:
            create_ca(tmp_path / "ca", name="sums")
            bundle = issue_leaf(tmp_path / "ca", "kim", [])
        invitation = Invitation(
            run_file=text or guest_file(run_file, [address]),
            name="kim",
            addresses=(address,),
            authority=authority.public,
            grant=grant,
            secret=secret.secret,
            task=task or load_task(**run_file.task.model_dump()).fingerprint,
            tls=bundle,
        )
        roster = Roster(run_id, authority=authority.public, pins={})
        return SimpleNamespace(
            invitation=invitation, token=encode(invitation, authority), roster=roster, run_file=run_file
        )

    return invite


def keyring() -> Keyring:
    return Keyring.of_run("sums")


def credential_of(ring: Keyring) -> Credential:
    return msgspec.msgpack.decode(ring.credential("kim").read_bytes(), type=Credential)


def run_verb(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    join.add_parser(parser.add_subparsers())
    return join.run(parser.parse_args(["join", *arguments]))


# --- membership ------------------------------------------------------------------------------------------------------


def test_a_guest_is_let_in_and_its_secrets_are_its_own(host):
    invited = host(tls=True)
    key = join.take_membership(invited.invitation, keyring(), keyring())
    assert invited.roster.admit(credential_of(keyring()), now_s=time.time()) == key.public
    secrets = [keyring().node_key("kim"), keyring().credential("kim"), keyring().tls("kim") / "node.key"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in secrets] == [0o600] * 3


def test_the_second_use_goes_on_with_the_same_membership(host):
    invitation = host().invitation
    first = join.take_membership(invitation, keyring(), keyring())
    before = keyring().credential("kim").read_bytes()
    assert join.take_membership(invitation, keyring(), keyring()).public == first.public
    assert keyring().credential("kim").read_bytes() == before


def test_the_second_machine_is_not_let_in(host, tmp_path):
    invited = host()
    elsewhere = Keyring(tmp_path / "elsewhere")
    for ring in (keyring(), elsewhere):
        join.take_membership(invited.invitation, ring, ring)
    now = time.time()
    assert isinstance(invited.roster.admit(credential_of(keyring()), now_s=now), bytes)
    assert invited.roster.admit(credential_of(elsewhere), now_s=now) == Refusal("invite_used_twice")


def test_a_new_invitation_takes_the_place_of_an_old_one(host):
    old, new = host(), host()
    first = join.take_membership(old.invitation, keyring(), keyring())
    second = join.take_membership(new.invitation, keyring(), keyring())
    assert second.public == first.public
    assert credential_of(keyring()).grant == new.invitation.grant


def test_an_expired_invitation_lets_go_on_who_has_used_it(host):
    token = host(days=-1).token
    with pytest.raises(UsageError) as caught:
        join.read_invitation(token)
    assert caught.value.code == "E-INVITE-02"
    invitation = join.decode(token, now_s=0.0)
    join.take_membership(invitation, keyring(), keyring())
    assert join.read_invitation(token) == invitation


# --- the guest's run file --------------------------------------------------------------------------------------------


def test_the_guest_is_the_only_node_and_takes_the_share_of_every_node(host):
    run_file = join.guest_run_file(host(tls=True).invitation, keyring(), model="tiny:small")
    assert [(node.name, node.model) for node in run_file.node] == [("kim", "tiny:small")]
    assert run_file.rollout.prompts_per_round == 4  # 9 for two nodes
    assert run_file.swarm.connect == (ADDRESS,)
    assert run_file.swarm.tls == str(keyring().tls("kim"))
    assert (run_file.run.rounds, run_file.rollout.group_size) == (9, 4)


def test_the_run_of_the_guest_is_the_run_of_the_host(host):
    invited = host()
    run_file = join.guest_run_file(invited.invitation, keyring(), model="tiny:small")
    assert case_of(run_file, "kim").run_id == case_of(invited.run_file, None).run_id


def test_an_invitation_does_not_say_where_to_write_or_to_listen_or_to_send(host):
    text = host().invitation.run_file
    for ours, theirs in (
        ('dir = "runs"', 'dir = "/etc"'),
        ("trackers = []", 'trackers = ["wandb"]'),
        ("listen = []", 'listen = ["tcp/0.0.0.0:7447"]\ntls = "/etc"'),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    run_file = join.guest_run_file(host(text=text).invitation, keyring(), model="tiny:small")
    assert (run_file.run.dir, run_file.run.trackers, run_file.swarm.listen) == ("runs", (), ())
    assert run_file.swarm.tls is None


def test_a_run_file_of_another_motet(host):
    text = host().invitation.run_file.replace("[run]", "[run]\ncolour = 1")
    with pytest.raises(UsageError, match=r"^run file of the invitation:\d+  run.colour: unknown"):
        join.guest_run_file(host(text=text).invitation, keyring(), model="tiny:small")


def test_the_first_model_of_the_host_that_fits(host, monkeypatch):
    invitation = host(models=("elsewhere", "tiny:huge", "tiny:large", "tiny:small")).invitation
    assert join.guest_run_file(invitation, keyring(), model=None).node[0].model == "tiny:large"
    monkeypatch.setattr("motet.models.memory.free_memory", lambda _: 1000)
    with pytest.raises(UsageError, match="tiny:large needs about") as caught:
        join.guest_run_file(invitation, keyring(), model=None)
    assert caught.value.code == "E-JOIN-01"


def test_no_model_to_take(host):
    with pytest.raises(UsageError, match="Say --model") as caught:
        join.guest_run_file(host(models=("elsewhere",)).invitation, keyring(), model=None)
    assert caught.value.code == "E-JOIN-01"


def test_the_file_is_written_over_its_own_and_over_no_other(host, tmp_path):
    run_file = join.guest_run_file(host().invitation, keyring(), model="tiny:small")
    path = tmp_path / "new" / "kim.toml"
    for _ in range(2):
        join.write_run_file(path, run_file)
        assert load_run_file(path) == run_file
        assert join._earlier_model(path) == "tiny:small"
    path.write_text("mine")
    with pytest.raises(UsageError) as caught:
        join.write_run_file(path, run_file)
    assert caught.value.code == "E-JOIN-06"
    assert path.read_text() == "mine"
    assert join._earlier_model(path) is None


# --- checks before it begins -----------------------------------------------------------------------------------------


@pytest.mark.network
def test_nobody_answers(host, capsys):
    with pytest.raises(SwarmUnreachable) as caught:
        run_verb(host().token, "--model", "tiny:small")
    assert (caught.value.code, caught.value.exit_code) == ("E-JOIN-03", 5)
    assert "problem  connect        tcp/127.0.0.1:1" in capsys.readouterr().err


def test_another_machine_under_the_same_name():
    ours, theirs = NodeKey.generate(), NodeKey.generate()
    join._check_namesake(None, ours)
    join._check_namesake(plain_credential("kim", ours.public), ours)
    with pytest.raises(SwarmRefused) as caught:
        join._check_namesake(plain_credential("kim", theirs.public), ours)
    assert (caught.value.code, caught.value.exit_code) == ("E-JOIN-04", 6)


def test_another_task(host):
    invited = host(task="0" * 64)
    run_file = join.guest_run_file(invited.invitation, keyring(), model="tiny:small")
    with pytest.raises(SwarmRefused) as caught:
        join._check_task(run_file, invited.invitation)
    assert caught.value.code == "E-JOIN-05"
    join._check_task(run_file, host().invitation)


def test_code_that_the_run_calls_is_told(host):
    plain = join.guest_run_file(host().invitation, keyring(), model="tiny:small")
    assert list(join._code_of_the_task(plain)) == []
    task = {"name": "sums.jsonl", "reward": "os:system"}
    calling = plain.model_copy(update={"task": plain.task.model_copy(update=task)})
    (finding,) = join._code_of_the_task(calling)
    assert (finding.verdict, "os:system" in finding.what) == ("warning", True)


@pytest.mark.network
@pytest.mark.slow
def test_a_dry_run_checks_everything_and_writes_nothing(host, tmp_path, home, capsys):
    import socket

    from motet.swarm.engines.zenoh_link import ZenohLink

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp/127.0.0.1:{server.getsockname()[1]}"
    invited = host(address=address)
    node = ZenohLink("n0", case_of(invited.run_file, None).run_id.hex(), listen=[address])
    node.open(inbox=lambda _topic, _message: None, answer=lambda _topic: [], pushed=False)
    try:
        assert run_verb(*f"motet join {invited.token}".split()[2:], "--dry-run") == 0
    finally:
        node.close()
    told = capsys.readouterr()
    assert 'model = "tiny:large"' in told.out
    assert "none heard within" in told.err
    assert list(tmp_path.iterdir()) == []


# --- after it has begun ----------------------------------------------------------------------------------------------


def test_a_guest_is_told_that_it_is_in(host, tmp_path, capsys):
    run_file = join.guest_run_file(host().invitation, keyring(), model="tiny:small")
    run_dir = RunDir(tmp_path / "runs" / "sums-kim")
    assert join.welcome(SwarmStatus(node="kim", peers=[PeerStatus(name="n0")]), run_file) is None
    peers = [PeerStatus(name="n0", state="live"), PeerStatus(name="n1", state="silent")]
    said = threading.Event()
    with join._greeting(run_file, run_dir, "kim", said=said):
        write_status(run_dir, SwarmStatus(node="kim", at_s=time.time() - 3600, peers=peers))  # of an earlier process
        assert not said.wait(1.5)
        write_status(run_dir, SwarmStatus(node="kim", at_s=time.time() + 1, swarm_round=4, peers=peers))
        assert said.wait(60)
    assert capsys.readouterr().err == "you are in: 1 peer (n0), round 5 of 9, you generate for 4 prompts a round\n"
