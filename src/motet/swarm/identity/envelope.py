"""The envelope of every message between nodes. Any bytes give an envelope or one `EnvelopeError`, nothing else.

    offset  size
    0       4       magic b"MOTS"
    4       2       protocol version, unsigned, little endian
    6       2       H = bytes of the header, likewise
    8       H       header: MessagePack of `_Header`, an array: run id, kind, peer, boot, seq, round, index, count
    8+H     ...     body
    -64     64      Ed25519 signature over b"motet envelope 1\\0" and all before

An envelope has exactly one encoding, so equal envelopes under one key are equal bytes. Opening does not verify: whose
key it must be is for the roster to say (`motet.swarm.identity.credentials`). Sizes are checked before anything is
parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, Literal

import msgspec

from motet.swarm.identity.keys import SIGNATURE_BYTES, NodeKey, verify

PROTOCOL_VERSION: Final = 1
RUN_ID_BYTES: Final = 16
MAX_COUNT: Final = 65_536
"""Most messages of one round, and most payloads of one message."""

EnvelopeFault = Literal["oversized", "malformed", "wrong_protocol"]

_MAGIC: Final = b"MOTS"
_PREFIX: Final = struct.Struct("<4sHH")
_DOMAIN: Final = b"motet envelope 1\0"
_MAX_HEADER_BYTES: Final = 128


class EnvelopeError(ValueError):
    """Bytes of a peer's that are no message of this protocol. Caught where messages arrive, and counted.

    Args:
        reason: what is wrong, by which it is counted.
    """

    def __init__(self, reason: EnvelopeFault) -> None:
        super().__init__(reason)
        self.reason: EnvelopeFault = reason


class Kind(IntEnum):
    """What the body is."""

    BEAT = 0
    """A heartbeat."""
    ROLL = 1
    """Encoded groups of a round (`pack_payloads`)."""
    CARD = 2
    """What must agree between nodes of a run."""


PeerName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z")]
"""A node's name: it becomes part of topics, file names and what is printed, so nothing else may stand in it."""
RunId = Annotated[bytes, msgspec.Meta(min_length=RUN_ID_BYTES, max_length=RUN_ID_BYTES)]
_LARGEST: Final = 2**63 - 1
_Natural = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    run_id: RunId
    kind: Kind
    peer: PeerName
    boot: _Natural
    seq: _Natural
    round: Annotated[int, msgspec.Meta(ge=-1, le=_LARGEST)]
    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]

    def agrees_with_itself(self) -> bool:
        """True if a round is named where there is one, and the index lies below the count."""
        return (self.kind == Kind.ROLL) == (self.round >= 0) and self.index < self.count


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Header)
_PAYLOADS: Final = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=MAX_COUNT)])


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message.

    Attributes:
        run_id: 16 bytes; a message of another run is none of ours.
        kind: what the body is.
        peer: name under which the sender speaks.
        boot: unix time in ms at which the sender's process started.
        seq: number of the message; grows by 1 with each of a boot.
        round: of a ROLL; -1 otherwise.
        index: the message is number `index`, from 0, of the `count` messages of its round.
        count: from 1.
        body: what is carried.
    """

    run_id: bytes
    kind: Kind
    peer: str
    boot: int
    seq: int
    round: int
    index: int
    count: int
    body: bytes


class Signed:
    """What stands in a message beside its envelope: who signed it can be asked."""

    __slots__ = ("_message",)

    def __init__(self, message: bytes) -> None:
        self._message = message

    def verify(self, public: bytes) -> bool:
        """True if the holder of this key sealed the message. Never raises."""
        signed, signature = self._message[:-SIGNATURE_BYTES], self._message[-SIGNATURE_BYTES:]
        return verify(public, _DOMAIN + signed, signature)


def seal(envelope: Envelope, key: NodeKey) -> bytes:
    """The signed message.

    Raises:
        ValueError: a field is out of its range; see `Envelope`.
    """
    header = _Header(
        envelope.run_id,
        envelope.kind,
        envelope.peer,
        envelope.boot,
        envelope.seq,
        envelope.round,
        envelope.index,
        envelope.count,
    )
    encoded = _ENCODER.encode(header)
    if _read_header(encoded) is None:
        raise ValueError(f"no envelope can say this: {header}")
    unsigned = b"".join((_PREFIX.pack(_MAGIC, PROTOCOL_VERSION, len(encoded)), encoded, envelope.body))
    return unsigned + key.sign(_DOMAIN + unsigned)


def open_envelope(message: bytes, *, max_bytes: int) -> tuple[Envelope, Signed]:
    """Take a message apart, without asking who signed it.

    Args:
        message: any bytes.
        max_bytes: longest message that is looked at.

    Raises:
        EnvelopeError: "oversized", "malformed" or "wrong_protocol" (of a motet with another protocol).
    """
    if len(message) > max_bytes:
        raise EnvelopeError("oversized")
    if len(message) < _PREFIX.size:
        raise EnvelopeError("malformed")
    magic, version, header_bytes = _PREFIX.unpack_from(message)
    if magic != _MAGIC:
        raise EnvelopeError("malformed")
    if version != PROTOCOL_VERSION:
        raise EnvelopeError("wrong_protocol")
    start, end = _PREFIX.size + header_bytes, len(message) - SIGNATURE_BYTES
    if header_bytes > _MAX_HEADER_BYTES or start > end:
        raise EnvelopeError("malformed")
    header = _read_header(message[_PREFIX.size : start])
    if header is None:
        raise EnvelopeError("malformed")
    envelope = Envelope(
        header.run_id,
        header.kind,
        header.peer,
        header.boot,
        header.seq,
        header.round,
        header.index,
        header.count,
        message[start:end],
    )
    return envelope, Signed(message)


def pack_payloads(payloads: Sequence[bytes]) -> bytes:
    """The body of a ROLL: encoded groups, one after the other.

    >>> unpack_payloads(pack_payloads([b"one", b"two"]), max_payloads=2)
    [b'one', b'two']
    """
    return _ENCODER.encode(list(payloads))


def unpack_payloads(body: bytes, *, max_payloads: int = MAX_COUNT) -> list[bytes]:
    """The encoded groups in the body of a ROLL; whether they are groups is for the gate to say.

    Raises:
        EnvelopeError: "malformed", or "oversized" for more than `max_payloads` (65,536 at most).
    """
    try:
        payloads = _PAYLOADS.decode(body)
    except ValueError:  # of msgspec, or of a text that is no UTF-8
        raise EnvelopeError("malformed") from None
    if _ENCODER.encode(payloads) != body:
        raise EnvelopeError("malformed")
    if len(payloads) > max_payloads:
        raise EnvelopeError("oversized")
    return payloads


def _read_header(encoded: bytes) -> _Header | None:
    """The header, if these bytes are its one encoding."""
    try:
        header = _DECODER.decode(encoded)
    except ValueError:
        return None
    return header if header.agrees_with_itself() and _ENCODER.encode(header) == encoded else None
