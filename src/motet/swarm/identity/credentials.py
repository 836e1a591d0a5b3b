"""Who may speak under which name: grants of an authority, credentials that nodes show, and the roster of those let in.

A swarm with an authority lets in whoever shows a grant signed by it. A grant names a node and an invitation key, whose
secret half is the invitation: its holder binds a key of its own to the name, once. A swarm without an authority lets in
the names of its run file, each under the key that is pinned there or that it shows first.

A credential alone proves nothing: that its node key speaks is proved by the envelope in which it comes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import msgspec

from motet.swarm.identity.envelope import PeerName, RunId
from motet.swarm.identity.keys import PUBLIC_BYTES, SIGNATURE_BYTES, NodeKey, verify

MAX_REVOKED: Final = 1000
"""Most invitations that a list can revoke; it travels in heartbeats."""

PublicKey = Annotated[bytes, msgspec.Meta(min_length=PUBLIC_BYTES, max_length=PUBLIC_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

Reason = Literal["unknown_peer", "wrong_key", "expired", "invite_used_twice", "revoked", "bad_signature"]

_GRANT_DOMAIN: Final = b"motet grant 1\0"
_BINDING_DOMAIN: Final = b"motet binding 1\0"
_REVOCATION_DOMAIN: Final = b"motet revocations 1\0"
_ENCODER: Final = msgspec.msgpack.Encoder()
_Record = TypeVar("_Record", bound=msgspec.Struct)


class Grant(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """The authority's word that whoever holds an invitation key may take part under a name.

    Attributes:
        run_id: of the one run for which it holds.
        name: of the node.
        invite_key: public half of the invitation key.
        not_after: unix time in s until which a node may come in with it; who is in by then stays.
        signature: of the authority over all that.
    """

    run_id: RunId
    name: PeerName
    invite_key: PublicKey
    not_after: _Natural
    signature: Signature

    def is_signed_by(self, authority: bytes) -> bool:
        """True if the authority of this public key signed it."""
        return verify(authority, _grant_data(self.run_id, self.name, self.invite_key, self.not_after), self.signature)


class Credential(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """What a node shows in its heartbeats.

    Attributes:
        name: under which it speaks.
        node_key: public key with which it signs.
        grant: None in a swarm without an authority.
        binding: signature of the invitation key over run, name and node key; empty without a grant.
    """

    name: PeerName
    node_key: PublicKey
    grant: Grant | None
    binding: Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)]


class RevocationList(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Invitations that hold no longer, by the authority's word; of several lists the one of the largest serial holds.

    Attributes:
        run_id: of the run.
        serial: grows with each list.
        invite_keys: public halves of the invitation keys, sorted.
        signature: of the authority over all that.
    """

    run_id: RunId
    serial: _Natural
    invite_keys: Annotated[tuple[PublicKey, ...], msgspec.Meta(max_length=MAX_REVOKED)]
    signature: Signature

    def is_signed_by(self, authority: bytes) -> bool:
        """True if the authority of this public key signed it."""
        return verify(authority, _revocation_data(self.run_id, self.serial, self.invite_keys), self.signature)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a credential does not let its holder in.

    Attributes:
        reason: "unknown_peer": no node of this run, or one without an invitation; "wrong_key": the name is another
            key's, so this is an impersonation; "expired": the invitation; "invite_used_twice": another key came in with
            it before; "revoked": the invitation; "bad_signature": a forged or damaged credential.
    """

    reason: Reason


def issue_grant(authority: NodeKey, run_id: bytes, name: str, invite_key: bytes, not_after: int) -> Grant:
    """Let whoever holds the secret half of `invite_key` take part under `name`.

    Args:
        authority: of the swarm.
        run_id: 16 bytes.
        name: of the node.
        invite_key: public half; a node's own public key makes a grant that is no bearer's but only that node's.
        not_after: unix time in s.

    Raises:
        ValueError: a field is out of its range.
    """
    signature = authority.sign(_grant_data(run_id, name, invite_key, not_after))
    return msgspec.convert((run_id, name, invite_key, not_after, signature), Grant)


def bind(invite: NodeKey, grant: Grant, node_key: bytes) -> Credential:
    """The credential of a node with this public key; `invite` is the key that came with the grant."""
    return Credential(grant.name, node_key, grant, invite.sign(_binding_data(grant.run_id, grant.name, node_key)))


def plain_credential(name: str, node_key: bytes) -> Credential:
    """The credential of a node in a swarm without an authority."""
    return Credential(name, node_key, None, b"")


def issue_revocations(authority: NodeKey, run_id: bytes, serial: int, invite_keys: Sequence[bytes]) -> RevocationList:
    """The list that revokes these invitations, and no others any more.

    Raises:
        ValueError: a field is out of its range, such as more than `MAX_REVOKED` invitations.
    """
    keys = tuple(sorted(set(invite_keys)))
    signature = authority.sign(_revocation_data(run_id, serial, keys))
    return msgspec.convert((run_id, serial, keys, signature), RevocationList)


class Roster:
    """Which key speaks under which name. Grows by names of the run file and by grants, never by what strangers say.

    `key_of` and `is_member` may be called from any thread, the others from one at a time.

    Args:
        run_id: of the run.
        authority: public key that signs grants; None for a swarm of the run file's nodes.
        pins: names of the run file, with the key that each must have, or None for the one that it shows first.
    """

    def __init__(self, run_id: bytes, *, authority: bytes | None, pins: Mapping[str, bytes | None]) -> None:
        self._run_id = run_id
        self._authority = authority
        self._pins = dict(pins)
        self._admitted: dict[str, Credential] = {}
        self._node_of_invite: dict[bytes, bytes] = {}
        self._revocations: RevocationList | None = None
        self._revoked: frozenset[bytes] = frozenset()

    @property
    def revocations(self) -> RevocationList | None:
        """The newest list that is known."""
        return self._revocations

    def admit(self, credential: Credential, *, now_s: float) -> bytes | Refusal:
        """Let in whoever shows this, or say why not.

        Args:
            credential: as it came from a peer, in an envelope that its node key has sealed.
            now_s: unix time in s.

        Returns:
            The key that speaks under `credential.name` from now on, or the refusal.
        """
        if self._admitted.get(credential.name) == credential:
            return credential.node_key
        reason = self._objection(credential, now_s)
        if reason is not None:
            return Refusal(reason)
        self._admitted[credential.name] = credential
        if credential.grant is not None and self._authority is not None:
            self._node_of_invite[credential.grant.invite_key] = credential.node_key
        return credential.node_key

    def key_of(self, name: str) -> bytes | None:
        """The key that speaks under a name; None while nobody may."""
        admitted = self._admitted.get(name)
        if admitted is not None:
            return admitted.node_key
        return self._pins.get(name) if self._authority is None else None

    def is_member(self, name: str) -> bool:
        """True if somebody may speak under this name."""
        return self.key_of(name) is not None

    def revoke(self, revocations: RevocationList) -> bool:
        """Take over a list if it is the authority's and newer; whoever is on it is out, and the name free again.

        Returns:
            True if it was taken over; False for an older, a foreign or a forged list.
        """
        keys, known = revocations.invite_keys, self._revocations
        if self._authority is None or revocations.run_id != self._run_id or tuple(sorted(set(keys))) != keys:
            return False
        if (known is not None and revocations.serial <= known.serial) or not revocations.is_signed_by(self._authority):
            return False
        self._revocations, self._revoked = revocations, frozenset(keys)
        for name, credential in list(self._admitted.items()):
            if self._is_revoked(credential):
                del self._admitted[name]
        return True

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` makes an equal roster of; of JSON's types."""
        return {
            "version": 1,
            "run_id": self._run_id.hex(),
            "credentials": [_to_text(self._admitted[name]) for name in sorted(self._admitted)],
            "used_invites": {invite.hex(): node.hex() for invite, node in sorted(self._node_of_invite.items())},
            "revocations": None if self._revocations is None else _to_text(self._revocations),
        }

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, run_id: bytes, authority: bytes | None, pins: Mapping[str, bytes | None]
    ) -> Self:
        """A roster as it was saved. Signatures are checked anew; who no longer belongs (other pins) is left out.

        Raises:
            ValueError: it is damaged, or of another run.
        """
        roster = cls(run_id, authority=authority, pins=pins)
        saved = msgspec.convert(data, _Saved)
        if saved.run_id != run_id.hex():
            raise ValueError("this roster is of another run")
        if saved.revocations is not None:
            roster.revoke(_from_text(saved.revocations, RevocationList))
        roster._node_of_invite = {_public_key(invite): _public_key(node) for invite, node in saved.used_invites.items()}
        for text in saved.credentials:
            roster.admit(_from_text(text, Credential), now_s=0.0)  # it was let in in time
        return roster

    def _objection(self, credential: Credential, now_s: float) -> Reason | None:
        holder = self.key_of(credential.name)
        pin = self._pins.get(credential.name)
        is_anothers = any(key is not None and key != credential.node_key for key in (holder, pin))
        if self._authority is None:
            if credential.name not in self._pins:
                return "unknown_peer"
            return "wrong_key" if is_anothers else None
        grant = credential.grant
        if grant is None:
            return "wrong_key" if is_anothers else "unknown_peer"
        if self._is_revoked(credential):
            return "revoked"
        if not self._is_genuine(grant, credential, self._authority):
            return "bad_signature"
        if self._node_of_invite.get(grant.invite_key, credential.node_key) != credential.node_key:
            return "invite_used_twice"
        if is_anothers:
            return "wrong_key"
        return "expired" if now_s > grant.not_after and holder is None else None

    def _is_genuine(self, grant: Grant, credential: Credential, authority: bytes) -> bool:
        """True if the authority gave the grant for this run and name, and its holder bound this key to it."""
        if grant.run_id != self._run_id or grant.name != credential.name:
            return False
        data = _binding_data(grant.run_id, grant.name, credential.node_key)
        return grant.is_signed_by(authority) and verify(grant.invite_key, data, credential.binding)

    def _is_revoked(self, credential: Credential) -> bool:
        return credential.grant is not None and credential.grant.invite_key in self._revoked


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    run_id: str
    credentials: list[str]
    used_invites: dict[str, str]
    revocations: str | None


def _grant_data(run_id: bytes, name: str, invite_key: bytes, not_after: int) -> bytes:
    return _GRANT_DOMAIN + _ENCODER.encode((run_id, name, invite_key, not_after))


def _binding_data(run_id: bytes, name: str, node_key: bytes) -> bytes:
    return _BINDING_DOMAIN + _ENCODER.encode((run_id, name, node_key))


def _revocation_data(run_id: bytes, serial: int, invite_keys: Sequence[bytes]) -> bytes:
    return _REVOCATION_DOMAIN + _ENCODER.encode((run_id, serial, invite_keys))


def _to_text(record: msgspec.Struct) -> str:
    return base64.b64encode(_ENCODER.encode(record)).decode("ascii")


def _from_text(text: str, kind: type[_Record]) -> _Record:
    return msgspec.msgpack.decode(base64.b64decode(text, validate=True), type=kind)


def _public_key(digits: str) -> bytes:
    return msgspec.convert(bytes.fromhex(digits), PublicKey)
