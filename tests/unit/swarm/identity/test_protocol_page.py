"""The page of the protocol repeats numbers and bytes that the code knows; here they are compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from motet.swarm.identity import credentials, envelope
from motet.swarm.identity.credentials import plain_credential
from motet.swarm.identity.envelope import Envelope, Kind, open_envelope, seal
from motet.swarm.identity.keyring import run_id_of
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network import inbox, membership
from motet.swarm.network.card import card_digest, encode_card
from motet.swarm.network.membership import Beat, Held, decode_beat, encode_beat

PAGE = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text(encoding="utf-8")
KEY = NodeKey.from_secret(bytes(range(32)))
CARD = {"run.rounds": "60", "wire version": "3"}


def blocks() -> list[str]:
    return re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def named(name: str) -> bytes:
    (digits,) = re.findall(rf"^{re.escape(name)} +([0-9a-f]+)$", blocks()[0], re.MULTILINE)
    return bytes.fromhex(digits)


def message() -> bytes:
    """The bytes of the example: on each line, the words before two blanks that are not at its start."""
    lines = [re.split(r"(?<=\S) {2,}", line)[0] for line in blocks()[1].splitlines()]
    return bytes.fromhex("".join(lines).replace(" ", ""))


def beat() -> Beat:
    return Beat(
        credential=plain_credential("ann", KEY.public),
        digest=card_digest(encode_card(CARD)),
        round=5,
        from_round=0,
        held=(Held(4, 1, 8), Held(5, 1, 8)),
        leaving=False,
        clock_ms=1_800_000_000_000,
        revocations=None,
        refuses=(),
    )


def test_the_example_s_values_follow_from_what_the_page_says() -> None:
    assert named("public key") == KEY.public
    assert named("run id") == run_id_of("team", 0, None)
    assert named("card") == encode_card(CARD)
    assert named("digest of card") == card_digest(encode_card(CARD))


def test_the_example_is_what_a_node_sends() -> None:
    run_id = run_id_of("team", 0, None)
    said = Envelope(run_id, Kind.BEAT, "ann", 1_799_999_000_000, 17, -1, 0, 1, encode_beat(beat()))
    assert seal(said, KEY) == message()
    assert f"in {len(message())} bytes" in PAGE


def test_the_example_is_read_as_the_page_says() -> None:
    opened, signed = open_envelope(message(), max_bytes=1000)
    assert decode_beat(opened.body) == beat()
    assert signed.verify(KEY.public)
    changed = bytearray(message())
    changed[-1] ^= 1
    assert not open_envelope(bytes(changed), max_bytes=1000)[1].verify(KEY.public)


def test_the_page_names_the_versions_kinds_and_limits_of_the_code() -> None:
    assert f"Protocol version {envelope.PROTOCOL_VERSION}," in PAGE
    for kind, word in zip(Kind, ("Heartbeat", "Roll", "Card"), strict=True):
        assert f"## {word} (kind {kind.value})" in PAGE
    assert f"index < count <= {envelope.MAX_COUNT:,}" in PAGE
    assert f"{credentials.MAX_REVOKED:,} at most" in PAGE
    assert f"groups]`, {membership.MAX_HELD} at most" in PAGE
    assert f"up to {membership.MAX_REFUSED} marks: the first {membership.MARK_BYTES} bytes" in PAGE


def test_the_page_explains_every_reason() -> None:
    table = PAGE.partition("## Why a message is refused")[2].partition("## Limits")[0]
    explained = set(re.findall(r"`([a-z_]+)`", table))
    reasons = {*get_args(envelope.EnvelopeFault), *get_args(credentials.Reason)}
    source = Path(inbox.__file__).parent
    for file in ("reception.py", "inbox.py", "shelf.py"):
        text = (source / file).read_text(encoding="utf-8")
        reasons |= set(re.findall(r'(?:_refuse|count)\([a-z_.]+, "([a-z_]+)"\)', text))
        reasons |= set(re.findall(r'return "([a-z_]+)"$', text, re.MULTILINE))
    assert {"flood", "clock", "replay", "other_run", "foreign_run"} <= reasons
    assert reasons - explained == set()
