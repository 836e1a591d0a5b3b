"""`peers/<node>.json` of a run directory: how a networked node stands right now, rewritten about once a second.

The node writes it, `motet watch` reads it, and nothing else depends on it. Names and reasons in it may come from
strangers: whoever shows them escapes them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from motet.journal.run_dir import RunDir

STATUS_VERSION = 1

_MAX_BYTES = 4_000_000


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A peer, as the node that writes the file sees it.

    Attributes:
        name: as in its credential.
        key: first digits of its public key; empty if none is known.
        state: "unheard" (never heard), "live", "silent", "left", "refused".
        heard_s: seconds since its last valid message, when the file was written; None if there was none.
        round: latest round that it has published; -1 before.
        from_round: first round in which it takes part.
        lag: rounds by which it is behind the swarm; 0 if it keeps up.
        quarantined_until: round at which its quarantine ends; None if it has none.
        accepted: groups that the gate took.
        rejected: groups that the gate rejected, by reason.
        late: groups that came too late.
        kept: completions of its accepted groups that were learned from.
        dropped: those that the filter dropped, by reason.
        refused: messages that the exchange refused, by reason.
        bytes_in: bytes received from it.
    """

    name: str
    key: str = ""
    state: str = "unheard"
    heard_s: float | None = None
    round: int = -1
    from_round: int = 0
    lag: int = 0
    quarantined_until: int | None = None
    accepted: int = 0
    rejected: dict[str, int] = {}
    late: int = 0
    kept: int = 0
    dropped: dict[str, int] = {}
    refused: dict[str, int] = {}
    bytes_in: int = 0


class SwarmStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a swarm over the network, with the peers that it knows.

    Attributes:
        version: of this format.
        at_s: unix time at which it was written.
        node: name of the node.
        key: first digits of its public key.
        pid: of its process.
        boot: unix time in milliseconds at which that process started.
        phase: "loading", "joining", "generating", "training", "waiting", "examining", "stopped", "finished".
        phase_since_s: unix time at which the phase began.
        round: that the node is in; -1 before the first.
        num_rounds: of the run.
        swarm_round: round that the swarm has reached; None if nobody is there to say.
        alone: True if no peer is live.
        waiting_for: peers without whose groups the node does not go on.
        waiting_until_s: unix time at which it goes on without them; None if it does not wait.
        link: engine and address, such as "zenoh tcp/127.0.0.1:28200".
        link_fault: why the link does not work, for people; None while it does.
        neighbours: connections of the link that stand; None if the engine does not say.
        bytes_in: received from all, refused messages included.
        bytes_out: sent.
        dropped: messages lost at this node: not sent because the link was full, down or forbade them, or not taken in.
        dropped_by: the same by reason.
        repairs: groups that were fetched because they had not come by themselves.
        refused: messages that no known peer sent, by reason.
        peers: everybody but the node itself.
    """

    version: int = STATUS_VERSION
    at_s: float = 0.0
    node: str = ""
    key: str = ""
    pid: int = 0
    boot: int = 0
    phase: str = "loading"
    phase_since_s: float | None = None
    round: int = -1
    num_rounds: int = 0
    swarm_round: int | None = None
    alone: bool = False
    waiting_for: list[str] = []
    waiting_until_s: float | None = None
    link: str = ""
    link_fault: str | None = None
    neighbours: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    dropped: int = 0
    dropped_by: dict[str, int] = {}
    repairs: int = 0
    refused: dict[str, int] = {}
    peers: list[PeerStatus] = []


def status_path(run_dir: RunDir, node: str) -> Path:
    """Where a node of a run keeps its status."""
    return run_dir.path / "peers" / f"{node}.json"


def write_status(run_dir: RunDir, status: SwarmStatus) -> None:
    """Replace a node's status; a reader sees the old one or the new one, whole. The folder is made if it is missing."""
    path = status_path(run_dir, status.node)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(msgspec.json.encode(status) + b"\n")
    partial.replace(path)


def read_status(path: Path) -> SwarmStatus | None:
    """A status file; None if it is missing, damaged or of a newer version. Fields that it lacks have their defaults."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        status = msgspec.json.decode(path.read_bytes(), type=SwarmStatus)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return status if status.version <= STATUS_VERSION and status.node else None


def read_statuses(run_dir: RunDir) -> dict[str, SwarmStatus]:
    """The status of every node that has one, by name, in the order of their names."""
    found = (read_status(path) for path in sorted((run_dir.path / "peers").glob("*.json")))
    return {status.node: status for status in found if status is not None}
