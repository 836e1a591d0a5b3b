"""The way into a swarm over the network: who the node is, whom it believes, and the engine that carries its groups."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from motet.config import RunFile
from motet.errors import SwarmRefused, UsageError
from motet.swarm.engines.links import Link
from motet.swarm.identity.credentials import Credential, Roster, bind, issue_grant, plain_credential
from motet.swarm.identity.keyring import Keyring, run_id_of
from motet.swarm.identity.keys import NodeKey, fingerprint, parse_fingerprint, write_secret
from motet.swarm.network import NetworkExchange, NetworkOptions

_DAY_S = 86_400
_OWN_GRANT_S = 3650 * _DAY_S


@dataclass(frozen=True, slots=True)
class Seat:
    """One node of a run file, as it takes part by itself.

    Attributes:
        run: the run file with this node alone, and the prompts of a round that are its own.
        name: of the node.
        others: the other nodes of the run file, each with its pinned key or None.
    """

    run: RunFile
    name: str
    others: Mapping[str, str | None]


def seat_of(run: RunFile, name: str) -> Seat:
    """The seat of a node.

    Raises:
        UsageError: E-NODE-01, the run file has no node of this name; E-NODE-02, its nodes do not meet over a network.
    """
    names = [node.name for node in run.node]
    if name not in names:
        raise UsageError(f'--name: the run file has no node "{name}"; it has {", ".join(names)}', code="E-NODE-01")
    if not run.is_networked:
        raise UsageError(
            f'swarm.transport is "{run.swarm.transport}", with which all nodes run on one machine (`motet swarm`); '
            'set transport = "zenoh" or "nats"',
            code="E-NODE-02",
        )
    own = next(node for node in run.node if node.name == name)
    rollout = run.rollout
    if run.swarm.collaboration == "vertical" and not run.trains_alone:
        share = max(1, rollout.prompts_per_round // len(names))
        rollout = rollout.model_copy(update={"prompts_per_round": share})
    alone = run.model_copy(update={"node": (own,), "rollout": rollout})
    return Seat(alone, name, others_of(run, name))


def others_of(run: RunFile, name: str) -> dict[str, str | None]:
    """The other nodes of a run file, each with its pinned key or None."""
    return {node.name: node.key for node in run.node if node.name != name}


def network_of(
    run: RunFile, name: str, *, others: Mapping[str, str | None], card: Mapping[str, str], roster_file: Path
) -> NetworkExchange:
    """The exchange of a networked node, not open yet.

    Args:
        run: the settings.
        name: of the node.
        others: other nodes that take part by being named, each with its pinned key or None.
        card: what must be the same for all nodes of the run, as lines for people.
        roster_file: whose key is whose, as an earlier part of the run learned it; it need not be there.

    Raises:
        UsageError: keys, certificates or addresses that cannot be used; E-NODE-07, a damaged roster.
        SwarmRefused: E-NODE-03, the swarm needs an invitation that this node does not have.
    """
    swarm = run.swarm
    keyring = Keyring.of_run(run.run.name)
    key = NodeKey.load_or_create(keyring.node_key(name))
    run_id = run_id_of(run.run.name, run.run.seed, swarm.authority)
    pins = {**others, name: next(node.key for node in run.node if node.name == name)}
    if pins[name] not in (None, fingerprint(key.public)):
        raise UsageError(
            f"node.key: this machine's key of node {name} is {fingerprint(key.public)}, not {pins[name]}; bring "
            f"{keyring.node_key(name)} back, or change node.key",
            code="E-NODE-04",
        )
    pinned = {peer: None if text is None else parse_fingerprint(text) for peer, text in pins.items()}
    authority = None if swarm.authority is None else parse_fingerprint(swarm.authority)
    max_lag = swarm.max_lag if swarm.pace == "free" else None
    return NetworkExchange(
        name,
        key=key,
        credential=_credential(run, name, key, run_id, keyring),
        roster=_roster(roster_file, run_id, authority, pinned),
        run_id=run_id,
        card=card,
        link=_link(run, name, run_id.hex()),
        options=NetworkOptions(
            max_message_bytes=run.message_bytes,
            max_bytes_per_round=run.admission.max_bytes_per_round,
            max_lag=max_lag,
            keep_rounds=run.kept_rounds,
            max_foreign_groups=swarm.max_foreign_groups,
            seed=run.run.seed,
            num_rounds=run.run.rounds,
        ),
    )


def _roster(path: Path, run_id: bytes, authority: bytes | None, pins: Mapping[str, bytes | None]) -> Roster:
    """Whose key is whose. What was learned before holds: otherwise a restart would let a name change hands."""
    if not path.exists():
        return Roster(run_id, authority=authority, pins=pins)
    try:
        return Roster.from_dict(json.loads(path.read_bytes()), run_id=run_id, authority=authority, pins=pins)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: damaged or of another run ({error}); restore it, or delete it to believe each name's next key",
            code="E-NODE-07",
        ) from error


def _credential(run: RunFile, name: str, key: NodeKey, run_id: bytes, keyring: Keyring) -> Credential:
    """What the node shows: its invitation, or one that it writes itself where the key of the swarm lies here."""
    if run.swarm.authority is None:
        return plain_credential(name, key.public)
    path = keyring.credential(name)
    if path.exists():
        try:
            credential = msgspec.msgpack.decode(path.read_bytes(), type=Credential)
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{path}: damaged ({error}); `motet join` writes it anew", code="E-NODE-05") from error
        if (credential.name, credential.node_key) != (name, key.public):
            raise UsageError(
                f"{path}: speaks for another key than {keyring.node_key(name)}; bring that key back, or ask for a new "
                "invitation",
                code="E-NODE-05",
            )
        return credential
    if not keyring.authority.exists():
        raise SwarmRefused(
            f"node {name}: this swarm takes invited nodes only (swarm.authority), and {path} is not there; ask its "
            f"owner for `motet invite {run.run.name}.toml --as {name}` and run the line that it prints",
            code="E-NODE-03",
        )
    authority = NodeKey.load(keyring.authority)
    if fingerprint(authority.public) != run.swarm.authority:
        raise UsageError(
            f"swarm.authority: {keyring.authority} holds another key, {fingerprint(authority.public)}; set authority "
            "to it, or bring the right key back",
            code="E-NODE-06",
        )
    invite = NodeKey.generate()
    grant = issue_grant(authority, run_id, name, invite.public, int(time.time()) + _OWN_GRANT_S)
    credential = bind(invite, grant, key.public)
    write_secret(path, msgspec.msgpack.encode(credential), replace=True)
    return credential


def _link(run: RunFile, name: str, run_id: str) -> Link:
    swarm = run.swarm
    tls = None if swarm.tls is None else Path(swarm.tls)
    if swarm.transport == "nats":
        from motet.swarm.engines.nats_link import NatsLink

        return NatsLink(
            name,
            run_id,
            servers=swarm.connect,
            tls=tls,
            keep_rounds=run.kept_rounds,
            max_message_bytes=run.message_bytes,
        )
    from motet.swarm.engines.zenoh_link import ZenohLink

    return ZenohLink(
        name,
        run_id,
        listen=swarm.listen,
        connect=swarm.connect,
        embedded_port=run.embedded_port,
        tls=tls,
        max_message_bytes=run.message_bytes,
    )
