"""What an inviter keeps: which invitations were given out, and the signed list of those that hold no longer.

The ledger (`invites.json`) is for its owner to look at and has no secrets. The list (`revocations`) is what nodes of
this machine publish; it is made anew from both, so that losing the ledger alone sets no revoked guest free.
"""

from __future__ import annotations

import base64
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from motet.errors import UsageError
from motet.journal import write_json
from motet.swarm.identity.credentials import MAX_REVOKED, Grant, RevocationList, issue_revocations
from motet.swarm.identity.envelope import PeerName
from motet.swarm.identity.keyring import Keyring
from motet.swarm.identity.keys import NodeKey, write_secret

_DAMAGED, _BAD_NAME = "E-INVITE-05", "E-INVITE-08"
_VERSION: Final = 1
_HexKey = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Second = Annotated[int, msgspec.Meta(ge=0)]


class Issued(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An invitation that was given out.

    Attributes:
        name: of the node.
        invite_key: public half of its key, in hex.
        issued_s: unix time in s.
        not_after: unix time in s until which it can be used.
        revoked_s: unix time in s at which it was revoked; None while it was not.
    """

    name: PeerName
    invite_key: _HexKey
    issued_s: _Second
    not_after: _Second
    revoked_s: _Second | None = None

    def state(self, now_s: float) -> str:
        """ "revoked", "expired" (nobody comes in with it any more; who is in stays) or "open" (used or not)."""
        if self.revoked_s is not None:
            return "revoked"
        return "expired" if now_s > self.not_after else "open"


class _Ledger(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    invites: list[Issued]


@dataclass(frozen=True, slots=True)
class Inviter:
    """Gives out invitations and takes them back, in the keyring of one run.

    Attributes:
        keyring: of the run.
        authority: the key that signs.
        run_id: 16 bytes.
    """

    keyring: Keyring
    authority: NodeKey
    run_id: bytes

    def note(self, grant: Grant, *, now_s: float) -> None:
        """Write down that an invitation is given out.

        Raises:
            UsageError: the name has an open one (E-INVITE-08), or the ledger is damaged (E-INVITE-05).
        """
        with _locked(self.keyring.invites):
            issued = read_ledger(self.keyring.invites)
            for earlier in issued:
                if earlier.name == grant.name and earlier.state(now_s) == "open":
                    raise UsageError(
                        f'"{grant.name}" has an open invitation; take that back first (--revoke {grant.name}), or '
                        "choose another name",
                        code=_BAD_NAME,
                    )
            issued.append(Issued(grant.name, grant.invite_key.hex(), int(now_s), grant.not_after))
            _write_ledger(self.keyring.invites, issued)

    def revoke(self, name: str, *, now_s: float) -> int:
        """Take back all invitations under a name, used ones too; the name is then free for a new one.

        Returns:
            How many were taken back now.

        Raises:
            UsageError: none was given out under it (E-INVITE-08), the files are damaged (E-INVITE-05), or more than
                `MAX_REVOKED` would be revoked (E-INVITE-08).
        """
        with _locked(self.keyring.invites):
            issued = read_ledger(self.keyring.invites)
            names = sorted({one.name for one in issued})
            if name not in names:
                known = f"names are {', '.join(names)}" if names else "none was given out at all"
                raise UsageError(f'no invitation was given out under "{name}" here; {known}', code=_BAD_NAME)
            open_ones = [one for one in issued if one.name == name and one.revoked_s is None]
            self._publish([one.invite_key for one in issued if one.name == name or one.revoked_s is not None], now_s)
            after = [msgspec.structs.replace(one, revoked_s=int(now_s)) if one in open_ones else one for one in issued]
            _write_ledger(self.keyring.invites, after)
            return len(open_ones)

    def _publish(self, keys: list[str], now_s: float) -> None:
        before = read_revocations(self.keyring.revocations)
        serial = int(now_s) if before is None else max(before.serial + 1, int(now_s))
        revoked = {bytes.fromhex(key) for key in keys} | set(() if before is None else before.invite_keys)
        if len(revoked) > MAX_REVOKED:
            raise UsageError(
                f"{MAX_REVOKED:,} invitations of this run are revoked, and a list holds no more; make another "
                "authority key, in a run of another name",
                code=_BAD_NAME,
            )
        write_revocations(
            self.keyring.revocations, issue_revocations(self.authority, self.run_id, serial, sorted(revoked))
        )


def read_ledger(path: Path) -> list[Issued]:
    """All invitations that were given out, in order; none if there is no file.

    Raises:
        UsageError: it is damaged (E-INVITE-05).
    """
    try:
        ledger = msgspec.json.decode(path.read_bytes(), type=_Ledger)
    except FileNotFoundError:
        return []
    except ValueError:
        raise _damage(path) from None
    if ledger.version != _VERSION:
        raise _damage(path)
    return ledger.invites


def read_revocations(path: Path) -> RevocationList | None:
    """The signed list that this machine publishes; None if there is no file. The signature is not checked here.

    Raises:
        UsageError: it is damaged (E-INVITE-05).
    """
    try:
        return msgspec.msgpack.decode(base64.b64decode(path.read_bytes().strip(), validate=True), type=RevocationList)
    except FileNotFoundError:
        return None
    except ValueError:
        raise _damage(path) from None


def write_revocations(path: Path, revocations: RevocationList) -> None:
    """Write the list that this machine publishes; whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_secret(path, base64.b64encode(msgspec.msgpack.encode(revocations)) + b"\n", replace=True)


def _write_ledger(path: Path, issued: list[Issued]) -> None:
    write_json(path, {"version": _VERSION, "invites": msgspec.to_builtins(issued)})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing the ledger inside the block; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_name(f".{path.name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _damage(path: Path) -> UsageError:
    return UsageError(
        f"{path}: damaged, or of another version of motet; restore it from a backup, or delete it (what it says of "
        "earlier invitations is lost then)",
        code=_DAMAGED,
    )
