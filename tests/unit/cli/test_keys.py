from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from motet.cli.main import main
from motet.swarm.identity.certificates import describe
from motet.swarm.identity.keys import NodeKey, fingerprint

RUN_FILE = """
[run]
name = "sums"

[swarm]
transport = "zenoh"
{swarm}

[[node]]
name = "small"
model = "tiny:small"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOTET_HOME", str(tmp_path / "home"))
    write("")
    return tmp_path


@pytest.fixture
def keys(here: Path) -> Path:
    return here / "home/keys/sums"


def write(swarm: str) -> None:
    Path("run.toml").write_text(RUN_FILE.format(swarm=swarm), encoding="utf-8")


def error(capsys: pytest.CaptureFixture[str], code: str) -> str:
    """The one line of complaint."""
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith("error: ")
    assert lines[-2].endswith(f"[{code}]")
    return lines[-2]


def no_secret_in(text: str, folder: Path) -> None:
    """Nothing of any private key that lies in the folder stands in the text."""
    assert "PRIVATE KEY" not in text
    for path in folder.rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes():
            assert path.read_text().splitlines()[1] not in text


def test_ca_makes_both_keys_and_prints_the_line(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "ca", "run.toml"]) == 0
    out, err = capsys.readouterr()
    public = fingerprint(NodeKey.load(keys / "authority.pem").public)
    assert out == f'authority = "{public}"\n'
    assert describe(keys / "ca/ca.pem").common_name == "sums"
    assert "under [swarm] in run.toml" in err
    assert f"Back up {keys}" in err
    no_secret_in(out + err, keys)


def test_ca_replaces_nothing(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "ca", "run.toml"])
    line = capsys.readouterr().out
    before = {path: path.read_bytes() for path in keys.rglob("*.*") if path.is_file()}
    write(line)
    assert main(["keys", "ca", "run.toml"]) == 0
    out, err = capsys.readouterr()
    assert out == line
    assert err.count("(was there)") == 2
    assert "Put the line" not in err
    assert {path: path.read_bytes() for path in keys.rglob("*.*") if path.is_file()} == before


def test_ca_says_if_the_run_file_has_another_key(capsys: pytest.CaptureFixture[str]) -> None:
    other = fingerprint(NodeKey.generate().public)
    write(f'authority = "{other}"')
    assert main(["keys", "ca", "run.toml"]) == 2
    assert other in error(capsys, "E-KEY-03")


def test_issue_writes_a_folder_and_prints_the_line(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "ca", "run.toml"])
    capsys.readouterr()
    flags = ["--host", "192.0.2.7", "--host", "relay.example.org", "--days", "3"]
    assert main(["keys", "issue", "run.toml", "--name", "relay", *flags]) == 0
    out, err = capsys.readouterr()
    folder = keys / "tls/relay"
    assert out == f'tls = "{folder}"\n'
    info = describe(folder / "node.pem")
    assert (info.common_name, set(info.hosts)) == ("relay", {"192.0.2.7", "relay.example.org"})
    assert (info.not_after - info.not_before).days == 3
    assert "secret" in err
    no_secret_in(out + err, keys)


def test_issue_without_hosts_is_for_this_machine_and_says_so(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "ca", "run.toml"])
    assert main(["keys", "issue", "run.toml", "--name", "small"]) == 0
    assert "--host" in capsys.readouterr().err
    info = describe(keys / "tls/small/node.pem")
    assert set(info.hosts) == {"localhost", "127.0.0.1", "::1"}
    assert (info.not_after - info.not_before).days == 30


def test_issue_needs_an_authority(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "issue", "run.toml", "--name", "small"]) == 2
    assert "motet keys ca" in error(capsys, "E-CERT-01")


@pytest.mark.parametrize(
    "flags",
    [
        ["issue", "run.toml"],
        ["issue", "run.toml", "--name", "../x"],
        ["issue", "run.toml", "--name", "authority"],
        ["issue", "run.toml", "--name", "small", "--host", "tcp/x:1"],
        ["issue", "run.toml", "--name", "small", "--days", "0"],
        ["ca", "run.toml", "--days", "3"],
        ["verify"],
        ["sign"],
        [],
    ],
)
def test_wrong_arguments(flags: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *flags]) == 2
    error(capsys, "E-CLI-02")
    assert not (here / "home").exists()


def test_show_of_a_run_has_every_public_key_and_no_secret(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeKey.load_or_create(keys / "nodes" / "small.pem")
    main(["keys", "ca", "run.toml"])
    main(["keys", "issue", "run.toml", "--name", "small"])
    capsys.readouterr()
    assert main(["keys", "show", "run.toml"]) == 0
    out, err = capsys.readouterr()
    assert f"node small             {fingerprint(node.public)}\n" in out
    assert fingerprint(NodeKey.load(keys / "authority.pem").public) in out
    assert "certificate of small" in out
    assert str(keys) in out
    assert "Back up" in err
    no_secret_in(out + err, keys)


def test_show_makes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "show", "run.toml"]) == 0
    assert "None yet" in capsys.readouterr().err
    assert not (here / "home").exists()


def test_show_of_files(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeKey.load_or_create(keys / "nodes" / "small.pem")
    main(["keys", "ca", "run.toml"])
    main(["keys", "issue", "run.toml", "--name", "small"])
    capsys.readouterr()
    assert main(["keys", "show", str(keys / "nodes" / "small.pem")]) == 0
    assert fingerprint(node.public) in capsys.readouterr().out
    assert main(["keys", "show", str(keys / "tls/small")]) == 0
    out = capsys.readouterr().out
    assert 'node.pem: certificate "small" by "sums"' in out
    assert 'ca.pem: certificate authority "sums"' in out
    assert main(["keys", "show", str(keys / "tls")]) == 2
    error(capsys, "E-KEY-01")
    assert main(["keys", "show", "none.toml"]) == 2
    error(capsys, "E-CONFIG-01")


def test_show_says_if_the_run_file_has_another_key(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    NodeKey.load_or_create(keys / "authority.pem")
    other = fingerprint(NodeKey.generate().public)
    write(f'authority = "{other}"')
    assert main(["keys", "show", "run.toml"]) == 0
    assert other in capsys.readouterr().err


def test_verify_says_each_thing_and_what_to_do(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "ca", "run.toml"])
    for name, days in (("small", "30"), ("relay", "3")):
        main(["keys", "issue", "run.toml", "--name", name, "--days", days])
    capsys.readouterr()
    small, relay = str(keys / "tls/small"), str(keys / "tls/relay/node.pem")
    assert main(["keys", "verify", small, relay]) == 0
    out = capsys.readouterr().out
    assert "  bad" not in out
    assert out.count("  soon  ends on") == 1
    assert "motet keys issue FILE --name relay" in out

    (keys / "tls/relay/node.key").chmod(0o644)
    assert main(["keys", "verify", small, relay]) == 2
    captured = capsys.readouterr()
    assert captured.out.count("  bad ") == 1
    assert f"chmod 600 {keys / 'tls/relay/node.key'}" in captured.out
    assert "1 of 2 certificates cannot be used" in captured.err
    assert "[E-CERT-04]" in captured.err


def test_verify_by_a_named_authority_and_for_a_named_node(
    keys: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["keys", "ca", "run.toml"])
    main(["keys", "issue", "run.toml", "--name", "small"])
    leaf = str(keys / "tls/small")
    assert main(["keys", "verify", leaf, "--ca", str(keys / "ca/ca.pem"), "--name", "small"]) == 0
    assert main(["keys", "verify", leaf, "--name", "large"]) == 2
    error(capsys, "E-CERT-04")
    assert main(["keys", "verify", str(here / "none.pem")]) == 2
    error(capsys, "E-CERT-02")


def test_it_answers_without_torch(here: Path) -> None:
    code = (
        "import sys; from motet.cli.main import main; code = main(['keys', 'ca', 'run.toml']);"
        "print(code, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[1] == "0 False False"
