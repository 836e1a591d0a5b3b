"""The token of `motet invite`: all that a guest needs to take part, in one line that is a secret.

    motet1.<base64url, unpadded, of zlib of>  [protocol version, content, signature]

`content` is MessagePack of `Invitation`. The signature is the authority's, over b"motet invitation 1\\0", the version
and the content. Whoever reads a token sees the run file, the addresses, and the key with which a node may come in once:
it should go over a channel that only the guest reads. The signature shows that nothing was changed on the way; whether
the authority is the right one is for the guest to ask its owner (`motet.swarm.identity.keys.fingerprint`).
"""

from __future__ import annotations

import base64
import re
import time
import zlib
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from motet.errors import UsageError
from motet.swarm.identity.certificates import TlsBundle
from motet.swarm.identity.credentials import Grant, PublicKey, Signature
from motet.swarm.identity.envelope import PROTOCOL_VERSION, PeerName
from motet.swarm.identity.keys import SECRET_BYTES, NodeKey, verify

_PREFIX: Final = "motet1."
_DOMAIN: Final = b"motet invitation 1\0"
_MAX_TOKEN_CHARS: Final = 100_000
_MAX_BYTES: Final = 500_000
_DAMAGED, _EXPIRED, _OTHER_PROTOCOL, _FORGED = "E-INVITE-01", "E-INVITE-02", "E-INVITE-03", "E-INVITE-04"
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*\Z")
_Short = Annotated[str, msgspec.Meta(max_length=256)]


class Invitation(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """What a token says.

    Attributes:
        run_file: TOML text of the run, without what is only the inviter's.
        name: under which the guest takes part.
        addresses: where to connect, each as in swarm.connect.
        authority: public key of the swarm.
        grant: for the holder of `secret`, until `grant.not_after`.
        secret: of the invitation key.
        task: fingerprint of the task, as the inviter has it.
        tls: certificate of the guest for mutual TLS.
    """

    run_file: str
    name: PeerName
    addresses: Annotated[tuple[_Short, ...], msgspec.Meta(min_length=1, max_length=16)]
    authority: PublicKey
    grant: Grant
    secret: Annotated[bytes, msgspec.Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
    task: _Short
    tls: TlsBundle | None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"Invitation(name={self.name!r}, addresses={self.addresses!r})"


class _Token(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    protocol: int
    content: bytes
    signature: Signature


_ENCODER: Final = msgspec.msgpack.Encoder()
_TOKENS: Final = msgspec.msgpack.Decoder(_Token)
_INVITATIONS: Final = msgspec.msgpack.Decoder(Invitation)


def encode(invitation: Invitation, authority: NodeKey) -> str:
    """The token, signed by the authority.

    Raises:
        ValueError: the authority is not the one that the invitation names.
    """
    if authority.public != invitation.authority:
        raise ValueError("an invitation is signed by the authority that it names")
    content = _ENCODER.encode(invitation)
    signature = authority.sign(_signed(PROTOCOL_VERSION, content))
    packed = zlib.compress(_ENCODER.encode(_Token(PROTOCOL_VERSION, content, signature)), level=9)
    return _PREFIX + base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def decode(text: str, *, now_s: float | None = None) -> Invitation:
    """The invitation in a token.

    Args:
        text: the token; line breaks and blanks in it, and `motet join` before it, are passed over.
        now_s: unix time in s to judge by; this machine's clock without it.

    Raises:
        UsageError: it is damaged (E-INVITE-01), has expired (E-INVITE-02), is of another protocol version
            (E-INVITE-03), or its signatures do not hold (E-INVITE-04).
    """
    token = _unpack(text)
    if token.protocol != PROTOCOL_VERSION:
        raise UsageError(
            f"this invitation is of a motet that speaks protocol {token.protocol}, and this one speaks "
            f"{PROTOCOL_VERSION}; install the version of whoever invited you",
            code=_OTHER_PROTOCOL,
        )
    try:
        invitation = _INVITATIONS.decode(token.content)
    except ValueError:
        raise _damaged("its content cannot be read") from None
    if _ENCODER.encode(invitation) != token.content:
        raise _damaged("its content is written in another way than motet writes it")
    if not _is_genuine(invitation, token):
        raise UsageError(
            "this invitation was changed after it was signed, or is a forgery; ask for another one, over another way",
            code=_FORGED,
        )
    now = time.time() if now_s is None else now_s
    if now > invitation.grant.not_after:
        raise UsageError(
            f"this invitation has expired at {_moment(invitation.grant.not_after)}, and it is {_moment(now)} by this "
            "machine's clock; ask for another one",
            code=_EXPIRED,
        )
    return invitation


def _unpack(text: str) -> _Token:
    words = text.split()
    if words[:2] == ["motet", "join"]:
        words = words[2:]
    token = "".join(words)
    if not token.startswith(_PREFIX):
        raise _damaged(f'an invitation begins with "{_PREFIX}"')
    encoded = token.removeprefix(_PREFIX)
    if len(encoded) > _MAX_TOKEN_CHARS:
        raise _damaged("it is too long")
    packed = _from_base64(encoded)
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(packed, _MAX_BYTES)
    except zlib.error:
        raise _damaged("some of its characters were changed") from None
    if not stream.eof and not stream.unconsumed_tail:
        raise _damaged("its end is missing")
    if not stream.eof or stream.unused_data:
        raise _damaged("it is too long")
    try:
        found = _TOKENS.decode(content)
    except ValueError:
        raise _damaged("its content cannot be read") from None
    if _ENCODER.encode(found) != content:
        raise _damaged("its content is written in another way than motet writes it")
    return found


def _from_base64(encoded: str) -> bytes:
    if not _ALPHABET.match(encoded):
        raise _damaged("it has characters that no invitation has")
    try:
        packed = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        raise _damaged("its end is missing") from None
    if base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii") != encoded:
        raise _damaged("some of its characters were changed")
    return packed


def _is_genuine(invitation: Invitation, token: _Token) -> bool:
    """True if the authority signed all of it, and the secret is the grant's."""
    grant = invitation.grant
    return (
        verify(invitation.authority, _signed(token.protocol, token.content), token.signature)
        and grant.is_signed_by(invitation.authority)
        and grant.name == invitation.name
        and NodeKey.from_secret(invitation.secret).public == grant.invite_key
    )


def _signed(protocol: int, content: bytes) -> bytes:
    return _DOMAIN + _ENCODER.encode((protocol, content))


def _damaged(what: str) -> UsageError:
    return UsageError(
        f"this invitation is damaged: {what}; copy the whole line that `motet invite` printed", code=_DAMAGED
    )


def _moment(unix_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return "a time beyond the calendar"
