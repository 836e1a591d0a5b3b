from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from motet.errors import UsageError
from motet.swarm.identity.certificate_check import Finding, verify_leaf
from motet.swarm.identity.certificates import create_ca, issue_leaf

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "ca"
    create_ca(folder, name="sums")
    return folder


@pytest.fixture
def leaf(ca: Path, tmp_path: Path) -> Path:
    issue_leaf(ca, "kim", ("192.0.2.7",)).write(tmp_path)
    return tmp_path / "node.pem"


def check(leaf: Path, ca: Path | None = None, *, name: str | None = None, days: float = 0) -> list[Finding]:
    return verify_leaf(ca or leaf.with_name("ca.pem"), leaf, name=name, now=NOW + timedelta(days=days))


def the_one(verdict: str, findings: list[Finding]) -> Finding:
    """The one finding that is not good, which says what to do."""
    (found,) = [finding for finding in findings if finding.verdict != "ok"]
    assert found.verdict == verdict
    assert found.todo
    return found


def test_a_good_one_has_no_complaint(leaf: Path) -> None:
    findings = check(leaf, name="kim")
    assert {finding.verdict for finding in findings} == {"ok"}
    assert not any(finding.todo for finding in findings)
    assert any("192.0.2.7" in finding.what for finding in findings)


def test_dates(leaf: Path) -> None:
    assert "ends on" in the_one("soon", check(leaf, days=24)).what
    ended = the_one("bad", check(leaf, days=31))
    assert "has ended" in ended.what
    assert "motet keys issue FILE --name kim" in ended.todo
    assert "clock" in the_one("bad", check(leaf, days=-1)).todo


def test_an_ended_authority_is_told_too(leaf: Path) -> None:
    told = [finding.what for finding in check(leaf, days=3651) if finding.verdict == "bad"]
    assert any("authority has ended" in what for what in told)


def test_another_authority(leaf: Path, tmp_path: Path) -> None:
    create_ca(tmp_path / "foreign", name="sums")
    assert "not signed by this authority" in the_one("bad", check(leaf, tmp_path / "foreign/ca.pem")).what
    told = [finding.what for finding in check(leaf, leaf) if finding.verdict == "bad"]
    assert any("may not sign" in what for what in told)


def test_another_name(leaf: Path, ca: Path, tmp_path: Path) -> None:
    assert 'of node "kim", not of "lee"' in the_one("bad", check(leaf, name="lee")).what
    issue_leaf(ca, "k m", ()).write(tmp_path / "other")
    assert "no name of a node" in the_one("bad", check(tmp_path / "other/node.pem")).what


def test_an_authority_is_no_node(ca: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes((ca / "ca.pem").read_bytes())
    told = [finding.what for finding in check(tmp_path / "ca.pem") if finding.verdict == "bad"]
    assert told == ["is an authority's certificate, not a node's", "there is no node.key beside it"]


def test_the_key_beside_it(leaf: Path, ca: Path, tmp_path: Path) -> None:
    key = leaf.with_name("node.key")
    good = key.read_bytes()
    key.chmod(0o644)
    assert f"chmod 600 {key}" in the_one("bad", check(leaf)).todo
    key.chmod(0o600)
    for wrong in (b"x", issue_leaf(ca, "kim", ()).node_key.encode()):
        key.write_bytes(wrong)
        assert "not its private key" in the_one("bad", check(leaf)).what
    key.unlink()
    assert "no node.key" in the_one("bad", check(leaf)).what
    key.mkdir()
    assert "cannot be read" in the_one("bad", check(leaf)).what
    assert good


def test_a_leaf_for_those_who_only_connect_is_good(ca: Path, tmp_path: Path) -> None:
    issue_leaf(ca, "kim", ()).write(tmp_path)
    findings = check(tmp_path / "node.pem")
    assert {finding.verdict for finding in findings} == {"ok"}
    assert any("nobody to it" in finding.what for finding in findings)


def test_missing_files_are_an_error(leaf: Path, tmp_path: Path) -> None:
    for ca, node in [(tmp_path / "none.pem", leaf), (leaf, tmp_path / "none.pem")]:
        with pytest.raises(UsageError, match=r"none\.pem") as caught:
            verify_leaf(ca, node)
        assert caught.value.code == "E-CERT-02"
