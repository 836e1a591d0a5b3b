from __future__ import annotations

import base64
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import UsageError
from motet.swarm.identity.certificates import TlsBundle
from motet.swarm.identity.credentials import Roster, bind, issue_grant
from motet.swarm.identity.envelope import PROTOCOL_VERSION
from motet.swarm.identity.invitation import Invitation, decode, encode
from motet.swarm.identity.keys import NodeKey

RUN = bytes(16)
AUTHORITY, INVITE, KIM, EVE = (NodeKey.from_secret(bytes([number]) * 32) for number in range(4))
UNTIL = 2_000


def invitation(**changes: Any) -> Invitation:
    made = Invitation(
        run_file='[run]\nname = "sums"\n' * 30,
        name="kim",
        addresses=("tls/relay.example.org:7447",),
        authority=AUTHORITY.public,
        grant=issue_grant(AUTHORITY, RUN, "kim", INVITE.public, UNTIL),
        secret=INVITE.secret,
        task="0123abcd",
        tls=TlsBundle("ca", "cert", "key"),
    )
    return msgspec.structs.replace(made, **changes)


def token_of(content: bytes, *, protocol: int = PROTOCOL_VERSION, signer: NodeKey = AUTHORITY) -> str:
    """A token with any content, well signed."""
    signature = signer.sign(b"motet invitation 1\0" + msgspec.msgpack.encode((protocol, content)))
    packed = zlib.compress(msgspec.msgpack.encode((protocol, content, signature)))
    return "motet1." + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def refusal(token: str, code: str, *, now_s: float = 0.0) -> str:
    with pytest.raises(UsageError) as caught:
        decode(token, now_s=now_s)
    assert caught.value.code == code, caught.value
    assert "\n" not in str(caught.value)
    return str(caught.value)


TOKEN = encode(invitation(), AUTHORITY)


def test_a_token_is_one_word_that_reads_back() -> None:
    assert TOKEN.startswith("motet1.")
    assert TOKEN.split() == [TOKEN]
    assert decode(TOKEN, now_s=UNTIL) == invitation()
    assert decode(encode(invitation(tls=None), AUTHORITY), now_s=0.0) == invitation(tls=None)


def test_its_holder_gets_in() -> None:
    found = decode(TOKEN, now_s=0.0)
    credential = bind(NodeKey.from_secret(found.secret), found.grant, KIM.public)
    assert Roster(RUN, authority=found.authority, pins={}).admit(credential, now_s=0.0) == KIM.public


@pytest.mark.parametrize(
    "text",
    [
        f"  {TOKEN}\n",
        f"motet join {TOKEN}",
        f"motet join\n{TOKEN}",
        "\r\n".join(TOKEN[start : start + 70] for start in range(0, len(TOKEN), 70)),
    ],
)
def test_a_line_that_a_mail_has_broken_reads(text: str) -> None:
    assert decode(text, now_s=0.0) == invitation()


def test_it_shows_no_secret() -> None:
    shown = repr(decode(TOKEN, now_s=0.0))
    assert "kim" in shown
    assert repr(INVITE.secret) not in shown
    assert INVITE.secret.hex() not in shown


def test_only_the_named_authority_signs() -> None:
    with pytest.raises(ValueError, match="authority"):
        encode(invitation(), EVE)


# --- damaged


@given(st.text(max_size=60))
def test_any_text_is_refused(text: str) -> None:
    refusal(text, "E-INVITE-01")
    refusal("motet1." + text, "E-INVITE-01")


@given(position=st.integers(7, len(TOKEN) - 1), new=st.sampled_from("ABCabc012-_ =\u00e9"))
def test_one_changed_character_is_noticed(position: int, new: str) -> None:
    changed = TOKEN[:position] + new + TOKEN[position + 1 :]
    if changed == TOKEN:
        return
    with pytest.raises(UsageError) as caught:
        decode(changed, now_s=0.0)
    assert caught.value.code == "E-INVITE-01"


def test_a_cut_token_is_noticed_at_every_length() -> None:
    said = {refusal(TOKEN[:length], "E-INVITE-01") for length in range(len(TOKEN))}
    assert any("its end is missing" in line for line in said)
    assert all("motet invite" in line for line in said)


def test_trailing_characters_are_noticed() -> None:
    for surplus in ("A", "AAAA", "=", "motet1."):
        refusal(TOKEN + surplus, "E-INVITE-01")


def test_it_has_one_form() -> None:
    content = msgspec.msgpack.encode(invitation())
    assert decode(token_of(content), now_s=0.0) == invitation()
    refusal(token_of(content + b"\0"), "E-INVITE-01")
    refusal(token_of(b"\xdc\0\x08" + content[1:]), "E-INVITE-01")
    refusal(token_of(b"\xc0"), "E-INVITE-01")
    signature = bytes(64)
    for outer in (
        msgspec.msgpack.encode((PROTOCOL_VERSION, content, signature)) + b"\0",
        b"\xdc\0\x03" + msgspec.msgpack.encode((PROTOCOL_VERSION, content, signature))[1:],
        msgspec.msgpack.encode((PROTOCOL_VERSION, content)),
    ):
        refusal("motet1." + base64.urlsafe_b64encode(zlib.compress(outer)).rstrip(b"=").decode(), "E-INVITE-01")


def test_a_bomb_does_not_go_off() -> None:
    bomb = zlib.compress(bytes(50_000_000), 9)
    assert len(bomb) < 60_000
    assert "too long" in refusal("motet1." + base64.urlsafe_b64encode(bomb).rstrip(b"=").decode(), "E-INVITE-01")
    assert "too long" in refusal("motet1." + "A" * 200_000, "E-INVITE-01")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../kim"},
        {"addresses": ()},
        {"addresses": ("x" * 257,)},
        {"authority": bytes(31)},
        {"secret": bytes(31)},
        {"tls": ("ca", "cert")},
        {"run_file": 5},
    ],
)
def test_fields_out_of_range(changes: dict[str, Any]) -> None:
    fields = {name: getattr(invitation(), name) for name in Invitation.__struct_fields__} | changes
    refusal(token_of(msgspec.msgpack.encode(list(fields.values()))), "E-INVITE-01")


# --- not to be used


def test_an_expired_one_says_when_and_what_time_it_is_here() -> None:
    said = refusal(TOKEN, "E-INVITE-02", now_s=UNTIL + 61)
    assert "1970-01-01 00:33 UTC" in said
    assert "1970-01-01 00:34 UTC by this machine's clock" in said


def test_a_date_beyond_the_calendar() -> None:
    grant = issue_grant(AUTHORITY, RUN, "kim", INVITE.public, 2**63 - 1)
    assert decode(encode(invitation(grant=grant), AUTHORITY), now_s=1e18).grant == grant
    assert "beyond the calendar" in refusal(TOKEN, "E-INVITE-02", now_s=1e18)


@pytest.mark.parametrize("protocol", [0, PROTOCOL_VERSION + 1])
def test_another_protocol_is_told_whatever_the_rest_looks_like(protocol: int) -> None:
    said = refusal(token_of(b"\xc1 a layout of another time", protocol=protocol), "E-INVITE-03")
    assert f"protocol {protocol}" in said
    assert "install the version" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "lee"},
        {"secret": EVE.secret},
        {"authority": EVE.public},
        {"grant": issue_grant(EVE, RUN, "kim", INVITE.public, UNTIL)},
        {"grant": msgspec.structs.replace(invitation().grant, not_after=UNTIL + 1)},
    ],
)
def test_what_does_not_fit_together_is_a_forgery(changes: dict[str, Any]) -> None:
    content = msgspec.msgpack.encode(invitation(**changes))
    refusal(token_of(content), "E-INVITE-04")
    refusal(token_of(content, signer=EVE), "E-INVITE-04")


def test_a_changed_run_file_is_a_forgery() -> None:
    content = msgspec.msgpack.encode(invitation(run_file="[run]"))
    refusal(token_of(content, signer=EVE), "E-INVITE-04")
