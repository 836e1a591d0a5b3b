"""Where a person's keys lie: `$MOTET_HOME/keys/<run name>/`, `~/.motet` without MOTET_HOME. Only paths; knows no keys.

nodes/<node>.pem          the key of a node
nodes/<node>.credential   what an invited node shows for itself
tls/<node>/               ca.pem, node.pem and node.key of a node, for mutual TLS
authority.pem             the key of the swarm: whoever has it invites
ca/                       the certificate authority for mutual TLS
invites.json              who was invited, and who is no longer welcome
revocations               the signed list of the latter, which this machine's nodes publish
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from motet.swarm.identity.envelope import RUN_ID_BYTES


@dataclass(frozen=True, slots=True)
class Keyring:
    """The folder of a run's keys.

    Attributes:
        folder: where they lie.
    """

    folder: Path

    @classmethod
    def of_run(cls, run_name: str) -> Keyring:
        """The keys of a run, in this person's home."""
        home = os.environ.get("MOTET_HOME")
        return cls((Path(home) if home else Path.home() / ".motet") / "keys" / run_name)

    def node_key(self, node: str) -> Path:
        """The key of a node."""
        return self.folder / "nodes" / f"{node}.pem"

    def credential(self, node: str) -> Path:
        """What an invited node shows for itself."""
        return self.folder / "nodes" / f"{node}.credential"

    def tls(self, node: str) -> Path:
        """Folder of a node's certificate."""
        return self.folder / "tls" / node

    @property
    def authority(self) -> Path:
        """The key of the swarm."""
        return self.folder / "authority.pem"

    @property
    def ca(self) -> Path:
        """The certificate authority."""
        return self.folder / "ca"

    @property
    def invites(self) -> Path:
        """Who was invited."""
        return self.folder / "invites.json"

    @property
    def revocations(self) -> Path:
        """Who is no longer welcome, signed."""
        return self.folder / "revocations"


def run_id_of(run_name: str, seed: int, authority: str | None) -> bytes:
    """The 16 bytes that mark the messages of a run: nodes of runs that differ in one of these never meet.

    >>> len(run_id_of("sums", 7, None))
    16
    """
    text = f"motet run 1\n{run_name}\n{seed}\n{authority or ''}"
    return blake2b(text.encode(), digest_size=RUN_ID_BYTES).digest()
