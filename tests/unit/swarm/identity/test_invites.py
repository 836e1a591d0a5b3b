from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from motet.errors import UsageError
from motet.swarm.identity.credentials import MAX_REVOKED, Grant, Roster, bind, issue_grant, issue_revocations
from motet.swarm.identity.invites import Inviter, read_ledger, read_revocations, write_revocations
from motet.swarm.identity.keyring import Keyring
from motet.swarm.identity.keys import NodeKey

RUN = bytes(16)
NOW, UNTIL = 1_000.0, 2_000
AUTHORITY = NodeKey.from_secret(bytes(32))


@pytest.fixture
def inviter(tmp_path: Path) -> Inviter:
    return Inviter(Keyring(tmp_path / "keys/sums"), AUTHORITY, RUN)


def grant(name: str, number: int) -> Grant:
    return issue_grant(AUTHORITY, RUN, name, NodeKey.from_secret(bytes([number]) * 32).public, UNTIL)


def revoked(inviter: Inviter) -> set[bytes]:
    found = read_revocations(inviter.keyring.revocations)
    assert found is not None
    assert found.is_signed_by(AUTHORITY.public)
    assert found.run_id == RUN
    return set(found.invite_keys)


def told(code: str, call: object, *arguments: object, **named: object) -> str:
    assert callable(call)
    with pytest.raises(UsageError) as caught:
        call(*arguments, **named)
    assert caught.value.code == code
    return str(caught.value)


def test_what_was_given_out_is_noted(inviter: Inviter) -> None:
    assert read_ledger(inviter.keyring.invites) == []
    inviter.note(grant("kim", 1), now_s=NOW)
    inviter.note(grant("lee", 2), now_s=NOW + 1)
    kim, lee = read_ledger(inviter.keyring.invites)
    assert (kim.name, kim.invite_key, kim.issued_s, kim.not_after) == (
        "kim",
        grant("kim", 1).invite_key.hex(),
        1000,
        2000,
    )
    assert (lee.name, lee.issued_s) == ("lee", 1001)
    assert (kim.state(UNTIL), kim.state(UNTIL + 1)) == ("open", "expired")


def test_a_name_has_one_open_invitation(inviter: Inviter) -> None:
    inviter.note(grant("kim", 1), now_s=NOW)
    assert "--revoke kim" in told("E-INVITE-08", inviter.note, grant("kim", 2), now_s=NOW)
    inviter.note(grant("kim", 2), now_s=UNTIL + 1)
    assert len(read_ledger(inviter.keyring.invites)) == 2


def test_those_who_invite_at_once_lose_nothing(inviter: Inviter) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: inviter.note(grant(f"n{number}", number), now_s=NOW), range(20)))
    assert {one.name for one in read_ledger(inviter.keyring.invites)} == {f"n{number}" for number in range(20)}


def test_revoking_shuts_out_all_that_the_name_was_given(inviter: Inviter) -> None:
    inviter.note(grant("kim", 1), now_s=NOW)
    inviter.note(grant("lee", 2), now_s=NOW)
    inviter.note(grant("kim", 3), now_s=UNTIL + 1)
    assert inviter.revoke("kim", now_s=NOW) == 2
    assert revoked(inviter) == {grant("kim", 1).invite_key, grant("kim", 3).invite_key}
    assert [one.state(NOW) for one in read_ledger(inviter.keyring.invites)] == ["revoked", "open", "revoked"]
    assert inviter.revoke("kim", now_s=NOW + 1) == 0
    inviter.note(grant("kim", 4), now_s=NOW + 2)
    assert inviter.revoke("lee", now_s=NOW + 3) == 1
    assert grant("kim", 4).invite_key not in revoked(inviter)
    assert len(revoked(inviter)) == 3


def test_a_roster_takes_each_list_over(inviter: Inviter) -> None:
    invite, node = NodeKey.from_secret(bytes([1]) * 32), NodeKey.generate()
    roster = Roster(RUN, authority=AUTHORITY.public, pins={})
    roster.admit(bind(invite, grant("kim", 1), node.public), now_s=NOW)
    inviter.note(grant("kim", 1), now_s=NOW)
    inviter.note(grant("lee", 2), now_s=NOW)
    for name in ("lee", "kim"):  # in one second
        inviter.revoke(name, now_s=NOW)
        found = read_revocations(inviter.keyring.revocations)
        assert found is not None
        assert roster.revoke(found)
    assert not roster.is_member("kim")


def test_a_lost_ledger_sets_nobody_free(inviter: Inviter) -> None:
    inviter.note(grant("kim", 1), now_s=NOW)
    inviter.revoke("kim", now_s=NOW)
    inviter.keyring.invites.unlink()
    inviter.note(grant("lee", 2), now_s=NOW)
    inviter.revoke("lee", now_s=NOW)
    assert revoked(inviter) == {grant("kim", 1).invite_key, grant("lee", 2).invite_key}


def test_a_lost_list_is_made_from_the_ledger(inviter: Inviter) -> None:
    for number, name in enumerate(["kim", "lee"]):
        inviter.note(grant(name, number), now_s=NOW)
    inviter.revoke("kim", now_s=NOW)
    inviter.keyring.revocations.unlink()
    inviter.revoke("lee", now_s=NOW + 10)
    assert len(revoked(inviter)) == 2


def test_a_name_that_nobody_was_invited_under(inviter: Inviter) -> None:
    assert "none was given out" in told("E-INVITE-08", inviter.revoke, "kim", now_s=NOW)
    inviter.note(grant("kim", 1), now_s=NOW)
    assert "names are kim" in told("E-INVITE-08", inviter.revoke, "kmi", now_s=NOW)
    assert read_revocations(inviter.keyring.revocations) is None


def test_more_than_a_list_can_hold(inviter: Inviter) -> None:
    full = issue_revocations(AUTHORITY, RUN, 1, [number.to_bytes(32, "big") for number in range(MAX_REVOKED)])
    write_revocations(inviter.keyring.revocations, full)
    inviter.note(grant("kim", 1), now_s=NOW)
    assert "1,000" in told("E-INVITE-08", inviter.revoke, "kim", now_s=NOW)
    assert read_ledger(inviter.keyring.invites)[0].state(NOW) == "open"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        json.dumps({"version": 2, "invites": []}).encode(),
        json.dumps({"version": 1}).encode(),
        json.dumps({"version": 1, "invites": [{"name": "kim"}]}).encode(),
        json.dumps(
            {"version": 1, "invites": [{"name": "kim", "invite_key": "x", "issued_s": 1, "not_after": 1}]}
        ).encode(),
    ],
)
def test_damaged_files_are_told(inviter: Inviter, content: bytes) -> None:
    inviter.note(grant("kim", 1), now_s=NOW)
    inviter.keyring.invites.write_bytes(content)
    inviter.keyring.revocations.write_bytes(content)
    assert str(inviter.keyring.invites) in told("E-INVITE-05", read_ledger, inviter.keyring.invites)
    assert str(inviter.keyring.revocations) in told("E-INVITE-05", read_revocations, inviter.keyring.revocations)
    told("E-INVITE-05", inviter.note, grant("lee", 2), now_s=NOW)
    assert inviter.keyring.invites.read_bytes() == content
