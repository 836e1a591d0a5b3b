"""Permissions and TLS at a real nats-server."""

from __future__ import annotations

from pathlib import Path

import pytest
from nats_server import (
    FETCH_S,
    NatsLinks,
    NatsServer,
    Received,
    answers,
    nats_marks,
    permissions,
)
from patience import wait_until

from motet.errors import SwarmUnreachable
from motet.swarm.identity.certificates import create_ca, issue_leaf

pytestmark = nats_marks()


def _tls_server(folder: Path, ca: Path, *, users: str = "", **options: object) -> NatsServer:
    issue_leaf(ca, "hub", ["127.0.0.1"]).write(folder / "tls")
    tls = folder / "tls"
    who = "verify_and_map: true" if users else "verify: true"
    config = f"""
        tls {{ cert_file: "{tls / "node.pem"}", key_file: "{tls / "node.key"}", ca_file: "{tls / "ca.pem"}", {who} }}
        {users}
    """
    return NatsServer(folder / "server", config=config, scheme="tls")


def _certificate(ca: Path, name: str, folder: Path) -> Path:
    issue_leaf(ca, name, []).write(folder / name)
    return folder / name


def test_a_violation_of_permissions_is_a_counted_drop(tmp_path: Path) -> None:
    users = ", ".join(
        f"{{ user: {name}, password: pw, permissions: {permissions(name)} }}" for name in ("ann", "bob.x")
    )
    users = users.replace("bob.x", "bob=2Ex").replace("user: bob=2Ex", 'user: "bob.x"')
    with NatsServer(tmp_path, config=f"authorization {{ users: [{users}] }}") as server, NatsLinks(server) as links:
        got, bob_got = Received(), Received()
        ann = links.open("ann", got, servers=[f"nats://ann:pw@127.0.0.1:{server.port}"], answer=answers(b"own"))
        bob = links.open("bob.x", bob_got, servers=[f"nats://bob.x:pw@127.0.0.1:{server.port}"], answer=answers(b"own"))
        ann.send("roll/bob.x/0", b"forged")
        ann.send("beat/bob.x", b"forged")
        wait_until(lambda: ann.dropped().get("permission") == 2)
        ann.send("roll/ann/0", b"honest")
        ann.send("beat/ann", b"honest")
        wait_until(lambda: len(bob_got.messages) == 2)
        assert {message for _, message in bob_got.messages} == {b"honest"}
        assert ann.fetch("roll/bob.x/0", timeout_s=FETCH_S) == [b"own"], "the forged one is not stored"
        assert bob.fetch("roll/ann/0", timeout_s=FETCH_S) == [b"honest"]
        assert bob.fetch("card/ann", timeout_s=FETCH_S) == [b"own"]
        assert ann.fetch("card/bob.x", timeout_s=FETCH_S) == [b"own"]
        assert (ann.fault(), bob.fault(), bob.dropped()) == (None, None, {})


def test_what_a_node_needs_and_may_not_do_is_told_at_once(tmp_path: Path) -> None:
    may_nothing = '{ publish: ["$JS.API.>"], subscribe: ["_INBOX.>"] }'
    config = f"authorization {{ users: [{{ user: ann, password: pw, permissions: {may_nothing} }}] }}"
    with NatsServer(tmp_path, config=config) as server, NatsLinks(server) as links:
        with pytest.raises(SwarmUnreachable, match="does not permit this node a subscription") as caught:
            links.open("ann", servers=[f"nats://ann:pw@127.0.0.1:{server.port}"])
        assert caught.value.code == "E-LINK-13"
        assert "pw" not in str(caught.value)
        with pytest.raises(SwarmUnreachable, match="no user") as caught:
            links.open("ann", servers=[f"nats://ann:wrong@127.0.0.1:{server.port}"])
        assert caught.value.code == "E-LINK-13"


def test_mutual_tls_lets_in_who_has_a_certificate_and_maps_it_to_permissions(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    create_ca(ca, name="sums")
    users = ", ".join(f'{{ user: "CN={name}", permissions: {permissions(name)} }}' for name in ("ann", "bob"))
    with _tls_server(tmp_path, ca, users=f"authorization {{ users: [{users}] }}") as server, NatsLinks(server) as links:
        got = Received()
        ann = links.open("ann", tls=_certificate(ca, "ann", tmp_path))
        links.open("bob", got, tls=_certificate(ca, "bob", tmp_path))
        assert [neighbour.certificate_name for neighbour in ann.neighbours()] == ["hub"]
        ann.send("roll/bob/0", b"forged")
        ann.send("roll/ann/0", b"honest")
        wait_until(lambda: got.messages)
        wait_until(lambda: ann.dropped() == {"permission": 1})
        assert got.messages == [("roll/ann/0", b"honest")]
        with pytest.raises(SwarmUnreachable, match="no user") as caught:
            links.open("eve", tls=_certificate(ca, "eve", tmp_path))
        assert caught.value.code == "E-LINK-13"


def test_certificates_of_another_authority_are_refused_on_both_sides(tmp_path: Path) -> None:
    ca, other = tmp_path / "ca", tmp_path / "other"
    create_ca(ca, name="sums")
    create_ca(other, name="other")
    with _tls_server(tmp_path, ca) as server, NatsLinks(server) as links:
        stranger = _certificate(other, "stranger", tmp_path)
        with pytest.raises(SwarmUnreachable, match="certificate is not accepted") as caught:
            links.open("stranger", tls=stranger)
        assert caught.value.code == "E-LINK-12"
        (stranger / "ca.pem").write_bytes((ca / "ca.pem").read_bytes())
        with pytest.raises(SwarmUnreachable, match=r"TLS failed|hung up") as caught:
            links.open("stranger", tls=stranger)
        assert caught.value.code == "E-LINK-12"
        with pytest.raises(SwarmUnreachable, match=r"certificate is not accepted|TLS failed|hung up") as caught:
            links.open("bare")
        assert caught.value.code == "E-LINK-12"
        assert links.open("ann", tls=_certificate(ca, "ann", tmp_path)).fault() is None


def test_a_server_whose_certificate_names_another_host_is_refused(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    create_ca(ca, name="sums")
    with _tls_server(tmp_path, ca) as server, NatsLinks(server) as links:
        with pytest.raises(SwarmUnreachable, match="certificate is not accepted") as caught:
            links.open("ann", servers=[f"tls://localhost:{server.port}"], tls=_certificate(ca, "ann", tmp_path))
        assert caught.value.code == "E-LINK-12"


def test_who_asks_for_tls_never_speaks_in_clear_text(server: NatsServer, links: NatsLinks, tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    create_ca(ca, name="sums")
    for options in (
        {"servers": [f"tls://127.0.0.1:{server.port}"]},
        {"tls": _certificate(ca, "ann", tmp_path)},
    ):
        with pytest.raises(SwarmUnreachable, match="does not require TLS") as caught:
            links.open("ann", **options)
        assert caught.value.code == "E-LINK-12"
