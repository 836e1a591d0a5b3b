"""Heartbeats of a swarm, read by those who only listen: `motet doctor` for some seconds, `motet watch` for long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from motet.config import RunFile
from motet.swarm.identity.credentials import Roster
from motet.swarm.identity.envelope import EnvelopeError, Kind, open_envelope
from motet.swarm.identity.keys import parse_fingerprint
from motet.swarm.network.membership import Beat, decode_beat

_MAX_BEAT_BYTES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One that is signed by the key that it names; whether that key may speak under the name is for a roster to say.

    Attributes:
        run_id: of its run.
        peer: who speaks.
        boot: unix time in ms at which the sender's process began.
        seq: number of the message.
        beat: what it says.
    """

    run_id: bytes
    peer: str
    boot: int
    seq: int
    beat: Beat


def read_heartbeat(message: bytes) -> Heartbeat | str:
    """The heartbeat, or the reason for which any bytes are none."""
    try:
        envelope, signed = open_envelope(message, max_bytes=_MAX_BEAT_BYTES)
    except EnvelopeError as error:
        return error.reason
    beat = decode_beat(envelope.body) if envelope.kind == Kind.BEAT else None
    if beat is None or beat.credential.name != envelope.peer:
        return "malformed"
    if not signed.verify(beat.credential.node_key):
        return "bad_signature"
    return Heartbeat(envelope.run_id, envelope.peer, envelope.boot, envelope.seq, beat)


def roster_of(run: RunFile, run_id: bytes) -> Roster:
    """Whom the run's rules let in."""
    authority = None if run.swarm.authority is None else parse_fingerprint(run.swarm.authority)
    pins = {node.name: None if node.key is None else parse_fingerprint(node.key) for node in run.node}
    return Roster(run_id, authority=authority, pins=pins)
