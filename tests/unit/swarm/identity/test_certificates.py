from __future__ import annotations

import ssl
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from motet.errors import UsageError
from motet.swarm.identity.certificates import TlsBundle, create_ca, describe, is_host, issue_leaf

HOSTS = ("relay.example.org", "192.0.2.7", "2001:db8::1", "localhost")


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "ca"
    create_ca(folder, name="sums")
    return folder


@pytest.fixture
def leaf(ca: Path, tmp_path: Path) -> Path:
    issue_leaf(ca, "kim", HOSTS).write(tmp_path / "tls/kim")
    return tmp_path / "tls/kim"


def test_an_authority_is_made_once(ca: Path) -> None:
    info = describe(ca / "ca.pem")
    assert (info.common_name, info.issuer, info.is_ca, info.hosts) == ("sums", "sums", True, ())
    assert stat.S_IMODE((ca / "ca.key").stat().st_mode) == 0o600
    before = (ca / "ca.key").read_bytes()
    with pytest.raises(UsageError, match="already") as caught:
        create_ca(ca, name="other")
    assert caught.value.code == "E-CERT-02"
    assert (ca / "ca.key").read_bytes() == before
    assert describe(ca / "ca.pem") == info


def test_a_leaf_says_who_and_where_and_for_how_long(leaf: Path) -> None:
    info = describe(leaf / "node.pem")
    assert (info.common_name, info.issuer, info.is_ca) == ("kim", "sums", False)
    assert set(info.hosts) == set(HOSTS)
    assert info.has_both_usages
    now = datetime.now(UTC)
    assert now + timedelta(days=29, hours=23) < info.not_after < now + timedelta(days=30, seconds=1)
    assert info.not_before < now - timedelta(minutes=50)
    assert {file.name for file in leaf.iterdir()} == {"ca.pem", "node.pem", "node.key"}
    assert stat.S_IMODE((leaf / "node.key").stat().st_mode) == 0o600


def test_openssl_believes_it(leaf: Path) -> None:
    for purpose in ("sslserver", "sslclient"):
        said = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", leaf / "ca.pem", leaf / "node.pem"],
            capture_output=True,
            text=True,
        )
        assert said.returncode == 0, said.stderr


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[str, str]:
    """Names that both ends prove to each other, in memory."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(incoming, outgoing, server_side=True),
        client.wrap_bio(outgoing, incoming, server_hostname=host),
    )
    unfinished = set(ends)
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                unfinished.discard(end)
            except ssl.SSLWantReadError:
                pass
    assert not unfinished
    names = [dict(pair[0] for pair in (end.getpeercert() or {})["subject"])["commonName"] for end in ends]
    return names[0], names[1]


def contexts(server: Path, client: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    made = []
    for folder, purpose in ((server, ssl.Purpose.CLIENT_AUTH), (client, ssl.Purpose.SERVER_AUTH)):
        context = ssl.create_default_context(purpose, cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "node.pem", folder / "node.key")
        context.verify_mode = ssl.CERT_REQUIRED
        made.append(context)
    return made[0], made[1]


def test_two_leaves_of_one_authority_meet(ca: Path, leaf: Path, tmp_path: Path) -> None:
    issue_leaf(ca, "lee", ()).write(tmp_path / "lee")
    for host in HOSTS:
        assert handshake(*contexts(leaf, tmp_path / "lee"), host) == ("lee", "kim")
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(*contexts(leaf, tmp_path / "lee"), "other.example.org")


def test_leaves_of_two_authorities_do_not(leaf: Path, tmp_path: Path) -> None:
    create_ca(tmp_path / "foreign", name="sums")
    issue_leaf(tmp_path / "foreign", "lee", ("localhost",)).write(tmp_path / "lee")
    (tmp_path / "lee/ca.pem").write_bytes((leaf / "ca.pem").read_bytes())  # the guest believes ours
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(leaf, tmp_path / "lee"), "localhost")


def test_a_leaf_is_written_anew_over_the_old_one(ca: Path, leaf: Path) -> None:
    before = describe(leaf / "node.pem")
    issue_leaf(ca, "kim", (), 60).write(leaf)
    assert describe(leaf / "node.pem").not_after > before.not_after


def test_a_leaf_does_not_outlive_its_authority(ca: Path, tmp_path: Path) -> None:
    issue_leaf(ca, "kim", (), 100_000).write(tmp_path)
    assert describe(tmp_path / "node.pem").not_after == describe(ca / "ca.pem").not_after


def test_names_and_hosts_that_no_certificate_can_hold(ca: Path) -> None:
    for host in ("", "a b", "tcp/relay:7447", "-x", "fe80::1%eth0", "*.example.org", "a" * 64, "x." * 127):
        assert not is_host(host)
        with pytest.raises(ValueError, match="neither"):
            issue_leaf(ca, "kim", (host,))
    with pytest.raises(ValueError, match=r"."):
        issue_leaf(ca, "k" * 65, ())


def test_what_is_wrong_with_an_authority_is_told(ca: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="motet keys ca") as caught:
        issue_leaf(tmp_path / "none", "kim", ())
    assert caught.value.code == "E-CERT-01"
    create_ca(tmp_path / "other", name="other")
    for key, word in [((tmp_path / "other/ca.key").read_bytes(), "does not belong"), (b"x", "damaged")]:
        (tmp_path / "ca").mkdir(exist_ok=True)
        (tmp_path / "ca/ca.pem").write_bytes((ca / "ca.pem").read_bytes())
        (tmp_path / "ca/ca.key").write_bytes(key)
        with pytest.raises(UsageError, match=word) as caught:
            issue_leaf(tmp_path / "ca", "kim", ())
        assert caught.value.code == "E-CERT-02"


def test_an_authority_that_has_ended_issues_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.swarm.identity.certificates.CA_DAYS", 0)
    create_ca(tmp_path, name="sums")
    with pytest.raises(UsageError, match="has ended on") as caught:
        issue_leaf(tmp_path, "kim", ())
    assert caught.value.code == "E-CERT-03"


@pytest.mark.parametrize(
    "content", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"x" * 70_000]
)
def test_what_is_no_certificate_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.pem"
    with pytest.raises(UsageError, match="cannot be read"):
        describe(path)
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        describe(path)
    assert caught.value.code == "E-CERT-02"
    assert str(path) in str(caught.value)


def test_a_bundle_shows_no_secret(ca: Path) -> None:
    bundle = issue_leaf(ca, "kim", ())
    assert isinstance(bundle, TlsBundle)
    assert "PRIVATE KEY" not in repr(bundle)
