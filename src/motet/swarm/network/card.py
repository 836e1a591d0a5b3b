"""The card of a run: what must agree between its nodes, line by line. Heartbeats carry its digest."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from motet.swarm.network.membership import DIGEST_BYTES

_MAX_SHOWN: Final = 60
_MAX_TOLD: Final = 2
_ENCODER: Final = msgspec.msgpack.Encoder()
_Text = Annotated[str, msgspec.Meta(max_length=65_536)]
_DECODER: Final = msgspec.msgpack.Decoder(Annotated[dict[_Text, _Text], msgspec.Meta(max_length=256)])


def encode_card(card: Mapping[str, str]) -> bytes:
    """The one encoding of a card."""
    return _ENCODER.encode({key: card[key] for key in sorted(card)})


def decode_card(body: bytes) -> dict[str, str] | None:
    """The card, or None for bytes that are none."""
    try:
        card = _DECODER.decode(body)
    except ValueError:
        return None
    return card if encode_card(card) == body else None


def card_digest(encoded: bytes) -> bytes:
    """By which cards are compared: 16 bytes."""
    return blake2b(encoded, digest_size=DIGEST_BYTES, person=b"motet.card").digest()


def tell_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    r"""What differs between two cards, for people: key, our value, theirs; what strangers wrote is escaped.

    >>> tell_difference({"task": "sums", "seed": "7"}, {"task": "sums\n", "seed": "7"})
    "task: here 'sums', there 'sums\\n'"
    """
    differing = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    lines = [f"{_shown(key)}: here {_value(ours, key)}, there {_value(theirs, key)}" for key in differing[:_MAX_TOLD]]
    more = len(differing) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")


def _value(card: Mapping[str, str], key: str) -> str:
    return f"'{_shown(card[key])}'" if key in card else "nothing"


def _shown(text: str) -> str:
    """At most 60 characters, all of them printable ASCII."""
    escaped = text[:_MAX_SHOWN].encode("unicode_escape").decode("ascii")
    return escaped if len(text) <= _MAX_SHOWN and len(escaped) <= _MAX_SHOWN else escaped[: _MAX_SHOWN - 3] + "..."
