"""One picture of what a node knows of its swarm."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from motet.swarm.engines.links import Neighbour
from motet.swarm.identity.keys import short
from motet.swarm.network.knowledge import Knowledge
from motet.swarm.network.membership import Peer
from motet.swarm.network.options import Identity
from motet.swarm.network.publishing import Publisher
from motet.swarm.network.status import NeighbourStatus, PeerState, PeerStatus, SwarmStatus


def describe(
    identity: Identity,
    known: Knowledge,
    publisher: Publisher,
    *,
    now_s: float,
    waits: tuple[int, float] | None,
    link: tuple[str | None, Sequence[Neighbour]],
    link_dropped: Mapping[str, int],
    num_bytes: tuple[int, int],
) -> SwarmStatus:
    """The swarm as a node sees it.

    Args:
        identity: of the node.
        known: what it knows.
        publisher: what it has published.
        now_s: time, by the exchange's clock.
        waits: round in which it waits for others, and since when on the system's clock; None if it does not.
        link: its fault, and who is connected.
        link_dropped: what it has lost, by reason.
        num_bytes: that came and went.
    """
    refused = known.refusals.total()
    with known.changed:
        peers = [_peer(known, peer, refused.pop(peer.name, {}), now_s) for peer in known.membership.all()]
        missing = known.missing(waits[0]) if waits is not None else []
        return SwarmStatus(
            name=identity.name,
            key=short(identity.key.public),
            boot=identity.boot,
            round=publisher.round,
            current_round=known.current,
            swarm_round=known.swarm_round(),
            is_alone=not known.live(),
            waiting_for=missing,
            waiting_s=max(time.monotonic() - waits[1], 0.0) if waits is not None and missing else 0.0,
            duplicate_identity=known.has_double,
            link_fault=link[0],
            neighbours=[NeighbourStatus(one.address, one.certificate_name) for one in link[1]],
            peers=[*peers, *(_stranger(name, reasons) for name, reasons in refused.items())],
            bytes_in=num_bytes[0],
            bytes_out=num_bytes[1],
            dropped=dict(sorted((+Counter(publisher.dropped()) + Counter(link_dropped)).items())),
            num_repaired=known.num_repaired,
        )


def _peer(known: Knowledge, peer: Peer, refused: dict[str, int], now_s: float) -> PeerStatus:
    state: PeerState = "live"
    if not peer.is_same_run:
        state = "refused"
    elif peer.has_left:
        state = "left"
    elif not known.membership.is_fresh(peer, now_s):
        state = "silent"
    return PeerStatus(
        name=peer.name,
        key=short(peer.key),
        heard_s=now_s - peer.heard_s,
        round=peer.round,
        from_round=peer.from_round,
        lag=known.current - peer.round if peer.round >= 0 else 0,
        state=state,
        refused=refused,
        bytes_in=known.bytes_in[peer.name],
    )


def _stranger(name: str, refused: dict[str, int]) -> PeerStatus:
    return PeerStatus(
        name=name, key="", heard_s=None, round=-1, from_round=-1, lag=0, state="refused", refused=refused, bytes_in=0
    )
