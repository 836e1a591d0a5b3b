from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from motet.cli.main import main
from motet.config import load_run_file
from motet.swarm.identity.credentials import Refusal, Roster, bind
from motet.swarm.identity.invitation import Invitation, decode
from motet.swarm.identity.invites import read_ledger, read_revocations
from motet.swarm.identity.keyring import run_id_of
from motet.swarm.identity.keys import NodeKey, parse_fingerprint
from motet.tasks import load_task

RUN_FILE = """
[run]
name = "sums"
seed = 7

[swarm]
transport = "{transport}"
{swarm}

[[node]]
name = "small"
model = "tiny:small"
"""
LISTEN = 'listen = ["tcp/192.0.2.7:7447"]'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOTET_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def keys(here: Path) -> Path:
    return here / "home/keys/sums"


def write(swarm: str, transport: str = "zenoh") -> None:
    Path("run.toml").write_text(RUN_FILE.format(swarm=swarm, transport=transport), encoding="utf-8")


@pytest.fixture
def authority(capsys: pytest.CaptureFixture[str]) -> str:
    """The swarm's key is made, and stands in the run file."""
    write("")
    assert main(["keys", "ca", "run.toml"]) == 0
    line = capsys.readouterr().out
    write(line + LISTEN)
    return line.split('"')[1]


def invite(capsys: pytest.CaptureFixture[str], *flags: str, name: str = "kim") -> tuple[Invitation, str]:
    """What was given out, and what was said on stderr."""
    assert main(["invite", "run.toml", "--as", name, *flags]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("motet join motet1.")
    assert out.count("\n") == 1
    assert out.split()[2] not in err
    return decode(out), err


def error(capsys: pytest.CaptureFixture[str], code: str) -> str:
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert lines[-2].startswith("error: ")
    assert lines[-2].endswith(f"[{code}]")
    assert "motet1." not in out
    return lines[-2]


# --- inviting


def test_a_guest_has_all_that_it_needs(authority: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, err = invite(capsys)
    assert (found.name, found.addresses, found.tls) == ("kim", ("tcp/192.0.2.7:7447",), None)
    assert found.authority == parse_fingerprint(authority)
    assert found.task == load_task(name="running_sums").fingerprint
    assert 6.99 * 86_400 < found.grant.not_after - time.time() <= 7 * 86_400
    Path("guest.toml").write_text(found.run_file, encoding="utf-8")
    guest = load_run_file("guest.toml")
    assert (guest.run.name, guest.swarm.authority, guest.swarm.connect) == ("sums", authority, found.addresses)
    assert guest.swarm.listen == ()
    for word in ("secret", "once", "until", "--revoke kim", authority):
        assert word in err


def test_a_guest_is_let_in_once(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = invite(capsys)
    run_id = run_id_of("sums", 7, authority)
    roster = Roster(run_id, authority=found.authority, pins={})
    secret, node, other = NodeKey.from_secret(found.secret), NodeKey.generate(), NodeKey.generate()
    assert roster.admit(bind(secret, found.grant, node.public), now_s=time.time()) == node.public
    again = roster.admit(bind(secret, found.grant, other.public), now_s=time.time())
    assert again == Refusal("invite_used_twice")


def test_every_line_is_another_one(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invite(capsys)[0].secret != invite(capsys, name="lee")[0].secret


def test_days_and_a_certificate(authority: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, err = invite(capsys, "--days", "60", "--tls", "--address", "tls/relay.example.org:7447")
    assert 59.99 * 86_400 < found.grant.not_after - time.time() <= 60 * 86_400
    assert found.tls is not None
    found.tls.write(here / "guest")
    assert main(["keys", "verify", str(here / "guest"), "--name", "kim"]) == 0
    assert "--tls" not in err


def test_an_address_that_needs_a_certificate_says_so(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--tls" in invite(capsys, "--address", "tls/relay.example.org:7447")[1]


def test_files_that_a_guest_must_have_are_named(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f'{{"prompt": "{number}+1", "answer": "{number + 1}"}}\n' for number in range(20)]
    Path("sums.jsonl").write_text("".join(lines), encoding="utf-8")
    _, err = invite(capsys, "--set", "task.name=sums.jsonl", "--set", "task.reward=exact")
    assert "sums.jsonl" in err


def test_connect_comes_before_listen_and_address_before_both(
    authority: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f'authority = "{authority}"\n{LISTEN}\nconnect = ["tls/a.example.org:1", "tls/b.example.org:2"]')
    assert invite(capsys)[0].addresses == ("tls/a.example.org:1", "tls/b.example.org:2")
    assert invite(capsys, "--address", "tcp/c.example.org:3", name="lee")[0].addresses == ("tcp/c.example.org:3",)


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("tcp/127.0.0.1:7447", "E-INVITE-07"),
        ("tcp/0.0.0.0:7447", "E-INVITE-07"),
        ("tcp/[::]:7447", "E-INVITE-07"),
        ("tls/[::1]:7447", "E-INVITE-07"),
        ("tls/localhost:7447", "E-INVITE-07"),
        ("tcp/192.0.2.7:0", "E-LINK-02"),
        ("192.0.2.7", "E-LINK-02"),
    ],
)
def test_addresses_that_no_guest_could_use(
    authority: str, keys: Path, address: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["invite", "run.toml", "--as", "kim", "--address", address]) == 2
    assert "--address" in error(capsys, code)
    write(f'authority = "{authority}"\nlisten = ["{address}"]')
    assert main(["invite", "run.toml", "--as", "kim"]) == 2
    assert "swarm.listen" in error(capsys, code)
    assert read_ledger(keys / "invites.json") == []


def test_no_address_at_all(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(f'authority = "{authority}"')
    assert main(["invite", "run.toml", "--as", "kim"]) == 2
    assert "swarm.listen" in error(capsys, "E-INVITE-07")


def test_a_private_address_is_said_to_be_one(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "local network" in invite(capsys, "--address", "tcp/10.0.0.5:7447")[1]
    assert "local network" not in invite(capsys, "--address", "tcp/8.8.8.8:7447", name="lee")[1]


def test_nats_passwords_of_the_inviter_stay_at_home(authority: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(f'authority = "{authority}"\nconnect = ["nats://ann:hush@hub.example.org:4222"]', transport="nats")
    found, err = invite(capsys)
    assert found.addresses == ("nats://hub.example.org:4222",)
    assert "hush" not in found.run_file + err
    given, _ = invite(capsys, "--address", "nats://kim:pass@hub.example.org:4222", name="lee")
    assert given.addresses == ("nats://kim:pass@hub.example.org:4222",)
    assert main(["invite", "run.toml", "--as", "eve", "--address", "nats://127.0.0.1:4222"]) == 2
    error(capsys, "E-INVITE-07")


def test_a_name_is_invited_once_at_a_time(authority: str, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invite(capsys)
    assert main(["invite", "run.toml", "--as", "kim"]) == 2
    assert "--revoke kim" in error(capsys, "E-INVITE-08")
    NodeKey.load_or_create(keys / "nodes" / "small.pem")
    assert main(["invite", "run.toml", "--as", "small"]) == 2
    told = error(capsys, "E-INVITE-08")
    assert "small.pem" in told
    assert "delete that file if the node runs elsewhere" in told


# --- without the key of the swarm


def test_nothing_is_made_in_silence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(LISTEN)
    for flags in (["--as", "kim"], ["--revoke", "kim"]):
        assert main(["invite", "run.toml", *flags]) == 2
        assert "motet keys ca run.toml" in error(capsys, "E-INVITE-06")
    assert not (here / "home").exists()


def test_the_key_must_be_here_and_the_right_one(authority: str, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (keys / "authority.pem").rename(keys / "away")
    assert main(["invite", "run.toml", "--as", "kim"]) == 2
    assert authority in error(capsys, "E-INVITE-06")
    NodeKey.load_or_create(keys / "authority.pem")
    assert main(["invite", "run.toml", "--as", "kim"]) == 2
    assert authority in error(capsys, "E-INVITE-06")


def test_tls_needs_an_authority_of_certificates(authority: str, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (keys / "ca").rename(keys / "away")
    assert main(["invite", "run.toml", "--as", "kim", "--tls"]) == 2
    error(capsys, "E-CERT-01")
    assert read_ledger(keys / "invites.json") == []


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--as", "kim", "--list"],
        ["--as", "k/m"],
        ["--as", "authority"],
        ["--as", "kim", "--days", "0"],
        ["--days", "9"],
    ],
)
def test_wrong_arguments(authority: str, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["invite", "run.toml", *flags]) == 2
    error(capsys, "E-CLI-02")


# --- listing and revoking


def test_list_and_revoke(authority: str, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["invite", "run.toml", "--list"]) == 0
    assert "no invitations" in capsys.readouterr().err
    found, _ = invite(capsys)
    invite(capsys, name="lee")
    assert main(["invite", "run.toml", "--revoke", "kim"]) == 0
    assert str(keys / "revocations") in capsys.readouterr().err
    assert main(["invite", "run.toml", "--list"]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["kim", "revoked"], ["lee", "open"]]

    listed = read_revocations(keys / "revocations")
    assert listed is not None
    roster = Roster(run_id_of("sums", 7, authority), authority=found.authority, pins={})
    assert roster.revoke(listed)
    credential = bind(NodeKey.from_secret(found.secret), found.grant, NodeKey.generate().public)
    assert roster.admit(credential, now_s=time.time()) == Refusal("revoked")

    assert main(["invite", "run.toml", "--revoke", "kim"]) == 0
    assert "before" in capsys.readouterr().out
    assert main(["invite", "run.toml", "--revoke", "kmi"]) == 2
    assert "kim, lee" in error(capsys, "E-INVITE-08")
    invite(capsys)  # the name is free again


def test_it_answers_without_torch(authority: str, here: Path) -> None:
    code = (
        "import sys; from motet.cli.main import main; code = main(['invite', 'run.toml', '--as', 'kim']);"
        "print(code, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[1] == "0 False False"
