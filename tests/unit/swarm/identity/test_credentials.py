from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.swarm.identity.credentials import (
    MAX_REVOKED,
    Credential,
    Grant,
    Refusal,
    RevocationList,
    Roster,
    bind,
    issue_grant,
    issue_revocations,
    plain_credential,
)
from motet.swarm.identity.keys import NodeKey

RUN, OTHER_RUN = bytes(range(16)), bytes(16)
NOW, UNTIL = 1_000.0, 2_000


def key(number: int) -> NodeKey:
    return NodeKey.from_secret(number.to_bytes(32, "little"))


AUTHORITY, INVITE, KIM, EVE, LEE = (key(number) for number in range(1, 6))
GRANT = issue_grant(AUTHORITY, RUN, "kim", INVITE.public, UNTIL)
KIMS = bind(INVITE, GRANT, KIM.public)


def invited(**pins: bytes | None) -> Roster:
    return Roster(RUN, authority=AUTHORITY.public, pins=pins)


def refused(roster: Roster, credential: Credential, *, now_s: float = NOW) -> str:
    before = roster.to_dict()
    found = roster.admit(credential, now_s=now_s)
    assert isinstance(found, Refusal)
    assert roster.to_dict() == before
    return found.reason


# --- with an authority


def test_an_invited_node_is_let_in() -> None:
    roster = invited()
    assert not roster.is_member("kim")
    assert roster.admit(KIMS, now_s=NOW) == KIM.public
    assert roster.is_member("kim")
    assert roster.key_of("kim") == KIM.public
    assert roster.admit(KIMS, now_s=NOW) == KIM.public


def test_nobody_else_is() -> None:
    roster = invited(small=None, large=LEE.public)
    assert refused(roster, plain_credential("kim", KIM.public)) == "unknown_peer"
    assert refused(roster, plain_credential("small", KIM.public)) == "unknown_peer"
    assert roster.key_of("large") is None


@pytest.mark.parametrize(
    "credential",
    [
        bind(INVITE, issue_grant(EVE, RUN, "kim", INVITE.public, UNTIL), KIM.public),
        bind(INVITE, issue_grant(AUTHORITY, OTHER_RUN, "kim", INVITE.public, UNTIL), KIM.public),
        bind(EVE, GRANT, KIM.public),
        msgspec.structs.replace(KIMS, node_key=EVE.public),
        msgspec.structs.replace(KIMS, name="lee"),
        msgspec.structs.replace(KIMS, binding=b""),
        msgspec.structs.replace(KIMS, binding=bytes(64)),
        msgspec.structs.replace(KIMS, grant=msgspec.structs.replace(GRANT, not_after=UNTIL + 1)),
        msgspec.structs.replace(KIMS, grant=msgspec.structs.replace(GRANT, name="lee")),
        msgspec.structs.replace(KIMS, grant=msgspec.structs.replace(GRANT, invite_key=EVE.public)),
        msgspec.structs.replace(KIMS, name="lee", grant=msgspec.structs.replace(GRANT, name="lee")),
    ],
)
def test_forged_and_borrowed_credentials(credential: Credential) -> None:
    assert refused(invited(), credential) == "bad_signature"


def test_an_invitation_is_used_once() -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    assert refused(roster, bind(INVITE, GRANT, EVE.public)) == "invite_used_twice"
    assert roster.key_of("kim") == KIM.public


def test_an_invitation_comes_too_late_but_who_is_in_stays() -> None:
    assert refused(invited(), KIMS, now_s=UNTIL + 1) == "expired"
    roster = invited()
    assert roster.admit(KIMS, now_s=UNTIL) == KIM.public
    assert roster.admit(KIMS, now_s=UNTIL + 1e9) == KIM.public


def test_a_name_is_one_keys() -> None:
    """Another key with the name is an impersonation, with an invitation of its own or without."""
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    other = issue_grant(AUTHORITY, RUN, "kim", LEE.public, UNTIL)
    assert refused(roster, bind(LEE, other, EVE.public)) == "wrong_key"
    assert refused(roster, plain_credential("kim", EVE.public)) == "wrong_key"
    assert roster.admit(bind(LEE, other, KIM.public), now_s=NOW) == KIM.public  # a second invitation of its own


def test_a_pinned_key_holds_for_the_invited_too() -> None:
    assert refused(invited(kim=EVE.public), KIMS) == "wrong_key"
    assert invited(kim=KIM.public).admit(KIMS, now_s=NOW) == KIM.public


def test_a_grant_for_one_key_needs_no_invitation_key() -> None:
    grant = issue_grant(AUTHORITY, RUN, "kim", KIM.public, UNTIL)
    assert invited().admit(bind(KIM, grant, KIM.public), now_s=NOW) == KIM.public


# --- without one


def test_without_an_authority_the_first_key_has_the_name() -> None:
    roster = Roster(RUN, authority=None, pins={"kim": None, "lee": LEE.public})
    assert not roster.is_member("kim")
    assert roster.admit(plain_credential("kim", KIM.public), now_s=NOW) == KIM.public
    assert refused(roster, plain_credential("kim", EVE.public)) == "wrong_key"
    assert refused(roster, plain_credential("eve", EVE.public)) == "unknown_peer"
    assert refused(roster, plain_credential("lee", EVE.public)) == "wrong_key"
    assert roster.key_of("lee") == LEE.public
    assert roster.admit(plain_credential("lee", LEE.public), now_s=NOW) == LEE.public
    assert roster.key_of("eve") is None


def test_one_key_may_have_one_name_pinned_and_another_free() -> None:
    roster = Roster(RUN, authority=None, pins={"kim": KIM.public, "lee": None})
    assert roster.admit(plain_credential("lee", KIM.public), now_s=NOW) == KIM.public


# --- revoked


def test_whoever_is_revoked_is_out_and_the_name_is_free() -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    assert roster.revoke(issue_revocations(AUTHORITY, RUN, 1, [INVITE.public]))
    assert not roster.is_member("kim")
    assert refused(roster, KIMS) == "revoked"
    assert refused(roster, bind(INVITE, GRANT, EVE.public)) == "revoked"
    again = issue_grant(AUTHORITY, RUN, "kim", LEE.public, UNTIL)
    assert roster.admit(bind(LEE, again, EVE.public), now_s=NOW) == EVE.public


def test_others_stay() -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    assert roster.revoke(issue_revocations(AUTHORITY, RUN, 1, [EVE.public, LEE.public]))
    assert roster.is_member("kim")


def test_only_newer_lists_of_the_authority_count() -> None:
    roster = invited()
    first = issue_revocations(AUTHORITY, RUN, 5, [INVITE.public])
    assert roster.revoke(first)
    keys = tuple(sorted([INVITE.public, EVE.public], reverse=True))
    for other in [
        first,
        issue_revocations(AUTHORITY, RUN, 5, []),
        issue_revocations(AUTHORITY, RUN, 4, []),
        issue_revocations(EVE, RUN, 6, []),
        issue_revocations(AUTHORITY, OTHER_RUN, 6, []),
        msgspec.structs.replace(first, serial=6),
        msgspec.structs.replace(first, serial=6, invite_keys=()),
        msgspec.structs.replace(first, serial=6, invite_keys=keys),
        msgspec.structs.replace(first, serial=6, invite_keys=(INVITE.public, INVITE.public)),
    ]:
        assert not roster.revoke(other)
        assert roster.revocations == first
    assert roster.revoke(issue_revocations(AUTHORITY, RUN, 6, []))
    assert roster.admit(KIMS, now_s=NOW) == KIM.public
    assert not Roster(RUN, authority=None, pins={}).revoke(first)


def test_a_list_holds_each_key_once_and_only_so_many() -> None:
    made = issue_revocations(AUTHORITY, RUN, 1, [LEE.public, EVE.public, LEE.public])
    assert made.invite_keys == tuple(sorted([EVE.public, LEE.public]))
    with pytest.raises(ValueError, match="length"):
        issue_revocations(AUTHORITY, RUN, 1, [number.to_bytes(32, "big") for number in range(MAX_REVOKED + 1)])


# --- a flood of strangers


def test_made_up_names_leave_nothing_behind() -> None:
    roster = invited(small=None)
    size = len(json.dumps(roster.to_dict()))
    for number in range(500):
        grant = issue_grant(EVE, RUN, f"n{number}", INVITE.public, UNTIL)
        assert refused(roster, bind(INVITE, grant, EVE.public)) == "bad_signature"
    assert len(json.dumps(roster.to_dict())) == size


# --- saved and restored


def restored(roster: Roster, data: dict[str, Any] | None = None, **pins: bytes | None) -> Roster:
    saved = json.loads(json.dumps(roster.to_dict() if data is None else data))
    return Roster.from_dict(saved, run_id=RUN, authority=AUTHORITY.public, pins=pins)


def test_a_roster_survives_a_restart() -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    roster.revoke(issue_revocations(AUTHORITY, RUN, 5, [LEE.public]))
    again = restored(roster)
    assert again.to_dict() == roster.to_dict()
    assert again.key_of("kim") == KIM.public
    assert again.admit(KIMS, now_s=UNTIL + 1) == KIM.public
    assert refused(again, bind(INVITE, GRANT, EVE.public)) == "invite_used_twice"
    assert not again.revoke(issue_revocations(AUTHORITY, RUN, 5, []))


def test_the_first_key_of_a_name_is_remembered() -> None:
    roster = Roster(RUN, authority=None, pins={"kim": None})
    roster.admit(plain_credential("kim", KIM.public), now_s=NOW)
    again = Roster.from_dict(roster.to_dict(), run_id=RUN, authority=None, pins={"kim": None})
    assert refused(again, plain_credential("kim", EVE.public)) == "wrong_key"


def test_an_invitation_that_a_newer_one_has_replaced_stays_used() -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    newer = bind(LEE, issue_grant(AUTHORITY, RUN, "kim", LEE.public, UNTIL), KIM.public)
    roster.admit(newer, now_s=NOW)
    again = restored(roster)
    assert again.revoke(issue_revocations(AUTHORITY, RUN, 1, [LEE.public]))
    assert refused(again, bind(INVITE, GRANT, EVE.public)) == "invite_used_twice"


def test_who_no_longer_belongs_is_left_out() -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    assert not restored(roster, kim=EVE.public).is_member("kim")
    other = Roster.from_dict(roster.to_dict(), run_id=RUN, authority=EVE.public, pins={})
    assert not other.is_member("kim")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"run_id": OTHER_RUN.hex()},
        {"run_id": 5},
        {"credentials": ["?"]},
        {"credentials": ["AAAA"]},
        {"credentials": [5]},
        {"credentials": None},
        {"used_invites": {"00": "00"}},
        {"used_invites": {"zz" * 32: "00" * 32}},
        {"revocations": "AAAA"},
        {"surplus": 1},
    ],
)
def test_a_damaged_roster_is_told(changes: dict[str, Any]) -> None:
    roster = invited()
    roster.admit(KIMS, now_s=NOW)
    with pytest.raises(ValueError, match=r"."):
        restored(roster, roster.to_dict() | changes)
    for name in roster.to_dict():
        with pytest.raises(ValueError, match=r"."):
            restored(roster, {key: value for key, value in roster.to_dict().items() if key != name})


# --- as bytes


@pytest.mark.parametrize("record", [GRANT, KIMS, issue_revocations(AUTHORITY, RUN, 1, [EVE.public])])
def test_records_read_back(record: msgspec.Struct) -> None:
    encoded = msgspec.msgpack.encode(record)
    assert msgspec.msgpack.decode(encoded, type=type(record)) == record


@given(st.binary(max_size=100))
def test_any_bytes_are_records_or_refused(data: bytes) -> None:
    for kind in (Grant, Credential, RevocationList):
        with pytest.raises(ValueError, match=r"."):
            msgspec.msgpack.decode(data, type=kind)


@pytest.mark.parametrize(
    ("run_id", "name", "invite_key", "not_after"),
    [
        (bytes(15), "kim", bytes(32), 1),
        (RUN, "k/m", bytes(32), 1),
        (RUN, "kim", bytes(31), 1),
        (RUN, "kim", bytes(32), -1),
    ],
)
def test_no_grant_is_issued_that_nobody_could_read(run_id: bytes, name: str, invite_key: bytes, not_after: int) -> None:
    with pytest.raises(ValueError, match=r"Expected|Object"):
        issue_grant(AUTHORITY, run_id, name, invite_key, not_after)
