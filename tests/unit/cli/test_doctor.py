"""What `motet doctor` finds: each fault planted on its own, and nothing where there is none."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from motet.cli import doctor, doctor_checks, doctor_models, doctor_network
from motet.cli.doctor_checks import Case
from motet.config import RunFile
from motet.errors import UsageError
from motet.swarm.engines.links import Neighbour
from motet.swarm.identity.certificates import create_ca, issue_leaf
from motet.swarm.identity.credentials import bind, issue_grant, issue_revocations, plain_credential
from motet.swarm.identity.envelope import Envelope, Kind, seal
from motet.swarm.identity.invites import write_revocations
from motet.swarm.identity.keyring import Keyring
from motet.swarm.identity.keys import NodeKey, fingerprint
from motet.swarm.network.membership import Beat, encode_beat


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def make_case(tmp_path):
    def make(*, node: dict[str, object] | None = None, name: str | None = "ann", **sections: dict[str, object]) -> Case:
        swarm = {"transport": "zenoh", **sections.pop("swarm", {})}
        run = {"name": "sums", "dir": str(tmp_path / "runs"), **sections.pop("run", {})}
        nodes = [{"name": "ann", "model": "tiny:small", **(node or {})}, {"name": "bob", "model": "tiny:large"}]
        return doctor.case_of(RunFile.model_validate({"run": run, "swarm": swarm, "node": nodes, **sections}), name)

    return make


def bad(findings) -> list[str]:
    return [f"{finding.verdict} {finding.subject}: {finding.what}" for finding in findings if finding.verdict != "ok"]


def only(findings):
    (finding,) = findings
    return finding


# --- methods ---------------------------------------------------------------------------------------------------------


def test_a_method_of_the_user_s_own_is_tried(make_case, tmp_path):
    assert list(doctor_models.check_method(make_case())) == []
    (tmp_path / "mine.py").write_text("def half(logp_old, logp_gen, known):\n    return known * 0.5\n\n\nnone = None\n")
    fine = only(doctor_models.check_method(make_case(method={"weights": "mine.py:half"})))
    assert (fine.verdict, fine.what) == ("ok", "mine.py:half can be called")
    missing = only(doctor_models.check_method(make_case(method={"weights": "mine.py:third"})))
    assert missing.verdict == "problem"
    assert "method.weights" in missing.what
    useless = only(doctor_models.check_method(make_case(method={"rule": "mine.py:half"})))
    assert useless.verdict == "problem"
    assert "method.rule: mine.py:half" in useless.what


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_that_is_still_to_be_made(make_case, home):
    case = make_case()
    assert bad(doctor_checks.check_keys(case)) == []
    assert not home.exists()  # looking makes none


def test_a_key_must_be_there_if_it_is_pinned(make_case):
    pinned = fingerprint(NodeKey.generate().public)
    assert bad(doctor_checks.check_keys(make_case(node={"key": pinned})))[0].startswith("problem key of ann")


def test_a_key_that_others_may_read(make_case):
    case = make_case()
    NodeKey.load_or_create(case.keyring.node_key("ann"))
    assert bad(doctor_checks.check_keys(case)) == []
    case.keyring.node_key("ann").chmod(0o640)
    assert "chmod 600" in bad(doctor_checks.check_keys(case))[0]


def test_a_key_that_is_not_the_pinned_one(make_case):
    key = NodeKey.load_or_create(Keyring.of_run("sums").node_key("ann"))
    assert bad(doctor_checks.check_keys(make_case(node={"key": fingerprint(key.public)}))) == []
    other = fingerprint(NodeKey.generate().public)
    assert "but node.key is" in bad(doctor_checks.check_keys(make_case(node={"key": other})))[0]


@pytest.fixture
def invited(make_case):
    """A case in which ann has a key and a grant, with the keys that made it."""

    def make(*, days: float = 30, signer: NodeKey | None = None, holder: NodeKey | None = None, name: str = "ann"):
        authority = NodeKey.generate()
        case = make_case(swarm={"authority": fingerprint(authority.public)})
        key = NodeKey.load_or_create(case.keyring.node_key("ann"))
        invite = NodeKey.generate()
        grant = issue_grant(signer or authority, case.run_id, name, invite.public, int(time.time() + days * 86_400))
        credential = bind(invite, grant, (holder or key).public)
        case.keyring.credential("ann").write_bytes(msgspec.msgpack.encode(credential))
        return SimpleNamespace(case=case, authority=authority, invite=invite, key=key)

    return make


def test_a_grant_that_holds(invited):
    assert bad(doctor_checks.check_keys(invited().case)) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"signer": NodeKey.generate()}, "not signed by this swarm"),
        ({"holder": NodeKey.generate()}, "belongs to another key"),
        ({"name": "eve"}, 'it is of node "eve"'),
        ({"days": -1}, "warning grant of ann: the invitation has ended"),
        ({"days": 1}, "warning grant of ann: holds for 24 h more"),
    ],
)
def test_a_grant_that_does_not_hold(invited, options, words):
    assert words in only(bad(doctor_checks.check_keys(invited(**options).case)))


def test_a_grant_that_was_revoked_or_damaged(invited):
    made = invited()
    keyring = made.case.keyring
    revoked = issue_revocations(made.authority, made.case.run_id, 1, [made.invite.public])
    write_revocations(keyring.revocations, revoked)
    assert "the invitation was revoked" in only(bad(doctor_checks.check_keys(made.case)))
    keyring.credential("ann").write_bytes(b"?")
    assert "is damaged" in only(bad(doctor_checks.check_keys(made.case)))


def test_a_swarm_of_invited_nodes_without_an_invitation(make_case):
    authority = NodeKey.generate()
    case = make_case(swarm={"authority": fingerprint(authority.public)})
    assert "takes invited nodes only" in only(bad(doctor_checks.check_keys(case)))
    here = NodeKey.load_or_create(case.keyring.authority)
    assert bad(doctor_checks.check_keys(make_case(swarm={"authority": fingerprint(here.public)}))) == []
    assert "but swarm.authority is" in only(bad(doctor_checks.check_keys(case)))


# --- certificates ----------------------------------------------------------------------------------------------------


@pytest.fixture
def certified(tmp_path):
    def make(name: str = "ann", *, days: int = 30, ca: str = "ca") -> str:
        if not (tmp_path / ca).exists():
            create_ca(tmp_path / ca, name="sums")
        issue_leaf(tmp_path / ca, name, ["127.0.0.1", "localhost"], days).write(tmp_path / f"tls-{ca}-{name}")
        return str(tmp_path / f"tls-{ca}-{name}")

    return make


def test_certificates(make_case, certified):
    address = {"connect": ["tls/127.0.0.1:7447"]}
    check = doctor_checks.check_certificates
    assert bad(check(make_case())) == []
    assert bad(check(make_case(swarm={**address, "tls": certified()}))) == []
    assert "swarm.tls is not set" in only(bad(check(make_case(swarm=address))))
    assert 'is of node "eve"' in only(bad(check(make_case(swarm={**address, "tls": certified("eve")}))))
    assert only(bad(check(make_case(swarm={**address, "tls": certified(days=2)})))).startswith("warning certificates")
    assert "cannot be read" in only(bad(check(make_case(swarm={**address, "tls": "nowhere"}))))


def test_an_address_that_everybody_can_read_is_a_warning(make_case):
    check = doctor_checks.check_run_file
    assert bad(check(make_case(swarm={"connect": ["tcp/127.0.0.1:1", "tls/192.0.2.1:1"]}))) == []
    assert "is not encrypted" in only(bad(check(make_case(swarm={"connect": ["tcp/192.0.2.1:1"]}))))


# --- clock, packages, disk -------------------------------------------------------------------------------------------


def test_an_absurd_date(make_case, monkeypatch):
    check = doctor_checks.check_clock
    assert bad(check(make_case())) == []
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert "1970-01-01" in only(bad(check(make_case())))
    written = Path(doctor_checks.__file__).stat().st_mtime
    monkeypatch.setattr(time, "time", lambda: written - 86_400)
    assert "files here were written at" in only(bad(check(make_case())))


def test_packages_that_the_run_needs(make_case, monkeypatch):
    check = doctor_checks.check_versions
    assert bad(check(make_case())) == []
    monkeypatch.setattr(doctor_checks.importlib.util, "find_spec", lambda _: None)
    assert bad(check(make_case())) == [
        "problem packages: cryptography is missing",
        "problem packages: eclipse-zenoh is missing",
    ]


def test_little_room_on_the_disk(make_case, monkeypatch):
    check = doctor_checks.check_disk
    assert bad(check(make_case())) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert only(bad(check(make_case()))).startswith("warning disk: 0.0 GiB free")
    assert any(line.startswith("problem disk: checkpoints") for line in bad(doctor_models.check_models(make_case())))


# --- network ---------------------------------------------------------------------------------------------------------


@contextmanager
def listening(greeting: bytes = b"", *, context: ssl.SSLContext | None = None):
    """Somebody who listens; with a context, somebody who speaks TLS."""
    ends = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not ends.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    try:
                        if context is not None:
                            with context.wrap_socket(connection, server_side=True) as secured:
                                secured.recv(1)
                        elif greeting:
                            connection.sendall(greeting)
                            connection.recv(1)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ends.set()
            thread.join()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.network
def test_ports_to_listen_on(make_case):
    check = doctor_network.check_ports
    assert bad(check(make_case(swarm={"listen": [f"tcp/127.0.0.1:{closed_port()}", "quic/0.0.0.0:0"]}))) == []
    with listening() as port:
        assert "in use" in only(bad(check(make_case(swarm={"listen": [f"tcp/127.0.0.1:{port}"]}))))
    assert "no such address" in only(bad(check(make_case(swarm={"listen": ["tcp/192.0.2.1:7447"]}))))
    assert "did you mean" in only(bad(check(make_case(swarm={"listen": ["127.0.0.1:7447"]}))))


@pytest.mark.network
def test_addresses_to_connect_to(make_case):
    check = doctor_network.check_addresses
    closed = f"tcp/127.0.0.1:{closed_port()}"
    assert "nothing listens there" in only(bad(check(make_case(swarm={"connect": [closed]}))))
    with listening() as port:
        reached = f"tcp/127.0.0.1:{port}"
        assert bad(check(make_case(swarm={"connect": [reached]}))) == []
        found = only(bad(check(make_case(swarm={"connect": [closed, reached]}))))
        assert found.startswith("warning connect")  # one is enough
    assert "is not an address" in only(bad(check(make_case(swarm={"connect": ["nonsense"]}))))
    own = make_case(swarm={"connect": ["tcp/127.0.0.1:7447"], "listen": ["tcp/0.0.0.0:7447"]})
    assert "this machine itself" in only(check(own)).what


@pytest.mark.network
def test_addresses_with_tls(make_case, certified):
    ours, theirs, foreign = certified("ann"), certified("bob"), certified("bob", ca="other")

    def server(folder: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=f"{folder}/ca.pem")
        context.load_cert_chain(f"{folder}/node.pem", f"{folder}/node.key")
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def look(port: int, tls: str | None = ours) -> list[str]:
        swarm = {"connect": [f"tls/127.0.0.1:{port}"], "tls": tls}
        return bad(doctor_network.check_addresses(make_case(swarm=swarm)))

    with listening(context=server(theirs)) as port:
        assert look(port) == []
        assert "certificate" in only(look(port, certified("ann", ca="other")))
    with listening(context=server(foreign)) as port:
        assert "of another CA" in only(look(port))
    with listening(context=server(theirs)) as port:
        assert "no certificates for TLS: get a folder of them by `motet keys issue`" in only(look(port, tls=None))
    with listening(b"HTTP/1.1 400\r\n\r\n") as port:
        assert "does not speak TLS" in only(look(port))


@pytest.mark.network
def test_nats_servers(make_case):
    def look(port: int) -> list[str]:
        swarm = {"transport": "nats", "connect": [f"nats://127.0.0.1:{port}"]}
        return bad(doctor_network.check_addresses(make_case(swarm=swarm)))

    with listening(b'INFO {"server_id":"x"}\r\n') as port:
        assert look(port) == []
    with listening(b"SSH-2.0-x\r\n") as port:
        assert "no NATS server" in only(look(port))
    assert "problem connect" in only(look(closed_port()))


def beat(case: Case, key: NodeKey, name: str = "bob", *, boot: int = 1, run_id: bytes | None = None, **more) -> bytes:
    credential = more.pop("credential", plain_credential(name, key.public))
    fields = {"round": 3, "from_round": 0, "held": (), "leaving": False, "clock_ms": int(time.time() * 1000)}
    body = encode_beat(Beat(credential=credential, digest=bytes(16), revocations=None, **{**fields, **more}))
    return seal(Envelope(run_id or case.run_id, Kind.BEAT, name, boot, 1, -1, 0, 1, body), key)


def test_only_what_the_run_believes_is_heard(make_case):
    case, key, eve = make_case(), NodeKey.generate(), NodeKey.generate()
    ears = doctor_network.Ears(case)
    ears.hear("roll/bob/1", beat(case, key))
    assert ears.peers == {}
    for message in (
        b"nonsense",
        beat(case, key)[:-1] + b"?",
        beat(case, key, run_id=bytes(16)),
        beat(case, eve, "stranger"),
        beat(case, eve, credential=plain_credential("bob", key.public)),
        beat(case, eve, credential=plain_credential("ann", eve.public)),
    ):
        ears.hear("beat/bob", message)
    assert ears.peers == {}
    assert ears.refused.total() == 6
    ears.hear("beat/bob", beat(case, key))
    assert list(ears.peers) == ["bob"]
    assert bad(doctor_network.what_was_heard(case, ears, [])) == [
        "warning peers: messages that nobody here would believe: bad_signature 2, malformed 3, unknown_peer 1"
    ]


def test_relays_and_nodes_at_the_other_end_are_told_apart(make_case):
    case = make_case()
    ends = [Neighbour("tcp/192.0.2.1:7447"), Neighbour("tls/192.0.2.2:7447", "hub", "relay")]
    found = doctor_network.what_was_heard(case, doctor_network.Ears(case), ends)
    assert [(one.subject, one.what) for one in found if one.verdict == "ok"] == [
        ("relay", "connected to tls/192.0.2.2:7447 (hub)"),
        ("node", "connected to tcp/192.0.2.1:7447"),
    ]


def test_somebody_under_the_name_of_a_node_of_this_machine(make_case):
    case = make_case()
    own = NodeKey.load_or_create(case.keyring.node_key("ann"))
    for key, words in ((own, "warning peers: ann runs already"), (NodeKey.generate(), "problem peers: somebody else")):
        ears = doctor_network.Ears(case)
        ears.hear("beat/ann", beat(case, key, "ann"))
        ears.hear("beat/bob", beat(case, NodeKey.generate()))
        assert only(bad(doctor_network.what_was_heard(case, ears, []))).startswith(words)


@pytest.mark.parametrize(
    ("gap_s", "words"), [(5, None), (120, "warning peers' clocks"), (-7200, "problem peers' clocks")]
)
def test_clocks_of_peers(make_case, gap_s, words):
    case = make_case()
    ears = doctor_network.Ears(case)
    ears.hear("beat/bob", beat(case, NodeKey.generate(), clock_ms=int(1000 * (time.time() + gap_s))))
    found = bad(doctor_network.what_was_heard(case, ears, []))
    assert found == [] if words is None else only(found).startswith(words)


@pytest.mark.network
def test_peers_over_zenoh(make_case):
    from motet.swarm.engines.zenoh_link import ZenohLink

    address = f"tcp/127.0.0.1:{closed_port()}"
    case, key = make_case(swarm={"connect": [address]}), NodeKey.generate()
    ends = threading.Event()
    peer = ZenohLink("bob", case.run_id.hex(), listen=[address])
    peer.open(inbox=lambda _topic, _message: None, answer=lambda _topic: [], pushed=False)

    def speak() -> None:
        while not ends.wait(0.2):
            peer.send("beat/bob", beat(case, key))

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        found = list(doctor_network.check_peers(case))
    finally:
        ends.set()
        speaker.join()
        peer.close()
    assert bad(found) == []
    assert any("1 heard: bob" in finding.what for finding in found)


# --- task and models -------------------------------------------------------------------------------------------------


def test_tasks(make_case):
    check = doctor_models.check_task
    assert "100000 to train on" in only(check(make_case())).what
    assert "no file none.jsonl" in only(bad(check(make_case(task={"name": "none.jsonl"}))))
    assert only(check(make_case(task={"name": "gsm8k"}))).verdict == "ok"


def test_models(make_case, monkeypatch):
    check = doctor_models.check_models
    found = list(check(make_case()))
    assert bad(found) == []
    assert [finding.subject for finding in found] == ["model of ann", "memory of ann", "disk"]
    assert [finding.subject for finding in check(make_case(name=None))][2:4] == ["model of bob", "memory of bob"]
    assert "no tiny model" in only(bad(check(make_case(node={"model": "tiny:huge"}))))
    assert "does not exist" in only(bad(check(make_case(node={"model": "./none"}))))
    assert "has no device" in only(bad(check(make_case(node={"device": "cuda:99"}))))
    hub = bad(check(make_case(node={"model": "no-such-owner/no-such-model"})))
    assert "is downloaded from the hub" in only(hub)
    monkeypatch.setattr("motet.models.memory.free_memory", lambda _: 1000)
    assert only(bad(check(make_case()))).startswith("problem memory of ann")


# --- the verb --------------------------------------------------------------------------------------------------------

RUN_FILE = """
[run]
name = "sums"
[[node]]
name = "ann"
model = "tiny:small"
device = "cpu"
"""


def run_verb(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    return doctor.run(parser.parse_args(["doctor", *arguments]))


def test_a_healthy_run(tmp_path, capsys):
    (tmp_path / "a.toml").write_text(RUN_FILE)
    assert run_verb("a.toml") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert last == f"{len(lines)} ok, 0 warning, 0 problem"


def test_a_problem_is_exit_code_3_and_every_mistake_a_line(tmp_path, capsys):
    (tmp_path / "a.toml").write_text(RUN_FILE.replace("tiny:small", "tiny:huge"))
    assert run_verb("a.toml", "--json") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["counts"]["problem"] == 1
    (tmp_path / "a.toml").write_text(RUN_FILE + "colour = 1\n[swarm]\npace = 3\n")
    assert run_verb("a.toml") == 3
    assert capsys.readouterr().out.count("problem  run file") == 2


def test_a_node_that_the_run_file_does_not_have(tmp_path, make_case):
    with pytest.raises(UsageError) as caught:
        make_case(name="kim")
    assert caught.value.code == "E-NODE-01"


def test_what_is_cheap_is_told_before_pytorch_is_imported(tmp_path):
    (tmp_path / "a.toml").write_text(RUN_FILE.replace("[[node]]", '[swarm]\ntransport = "zenoh"\n[[node]]', 1))
    script = (
        "import sys\n"
        "from motet.cli.doctor import examine_file\n"
        "from pathlib import Path\n"
        "for finding in examine_file(Path('a.toml'), [], None):\n"
        "    if finding.subject == 'disk':\n"
        "        break\n"
        "print('torch' in sys.modules, finding.subject)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.stdout == "False disk\n", ended.stderr
