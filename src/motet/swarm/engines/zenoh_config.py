"""What zenoh is told: sessions of nodes and relays as the dictionaries that its configuration is made from.

Everything that its defaults get wrong for a swarm is here: shared memory and multicast off, no listening that nobody
asked for, patience with slow links, little of it with dead ones, and messages that end at a size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from motet.errors import UsageError
from motet.swarm.engines.addresses import Address

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.pem", "node.pem", "node.key"
MAX_MESSAGE_BYTES: Final = 4_000_000
"""Longest message by default. A longer one is not sent; one that comes all the same is thrown away on arrival."""

_HEADER_BYTES: Final = 10_000
_LEASE_MS: Final = 4_000
_KEEP_ALIVES: Final = 4
_WAIT_BEFORE_DROP_US: Final = 200_000
_WAIT_BEFORE_DROP_LARGE_US: Final = 8_000_000
_WAIT_BEFORE_CLOSE_US: Final = 1_000_000
_RETRY_FIRST_MS, _RETRY_LONGEST_MS, _RETRY_FACTOR = 250, 2_000, 2
_MOST_SESSIONS: Final = 10_000

Mode = Literal["peer", "client", "gateway", "router"]
"""peer: others of its kind connect to it and it to them, each with each. client: hangs on one peer or relay of several.
gateway: hangs on a relay as a client does, and whoever connects to it hangs on it. router: a relay."""


def session_config(
    mode: Mode,
    *,
    listen: Sequence[Address],
    connect: Sequence[Address],
    tls: Path | None,
    timeout_s: float,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    access: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The configuration of one session.

    Args:
        mode: what it is to the others.
        listen: where others may connect; nowhere if empty.
        connect: whom to connect to.
        tls: folder with ca.pem, node.pem and node.key; with it nothing but mutual TLS is spoken.
        timeout_s: for the first connection.
        max_message_bytes: of what is received; longer messages are thrown away before they are in memory as a whole.
        access: from `access_rules`; without them whoever is connected may speak under any name.
    """
    is_client = mode in ("client", "gateway")
    retry = {
        "period_init_ms": _RETRY_FIRST_MS,
        "period_max_ms": _RETRY_LONGEST_MS,
        "period_increase_factor": _RETRY_FACTOR,
    }
    rx = {"max_message_size": max_message_bytes + _HEADER_BYTES}
    config: dict[str, Any] = {
        "mode": "client" if is_client else mode,
        "listen": {"endpoints": [str(address) for address in listen]},
        "connect": {
            "endpoints": [str(address) for address in connect],
            "timeout_ms": round(1000 * timeout_s) if is_client else -1,
            "exit_on_failure": is_client,
            "retry": retry,
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": True}},
        "transport": {
            "shared_memory": {"enabled": False},
            "unicast": {"max_sessions": _MOST_SESSIONS},
            "link": {"protocols": ["tcp"] if tls is None else ["tls", "quic"], "tx": _tx(), "rx": rx},
        },
    }
    if mode == "gateway":
        config["gateway"] = {"south": [{"filters": [{"modes": ["client", "peer"]}]}]}
    if tls is not None:
        config["transport"]["link"]["tls"] = _tls(tls)
    if access is not None:
        config["access_control"] = dict(access)
    return config


def check_tls(addresses: Sequence[Address], tls: Path | None, *, where: str) -> None:
    """See that what must be encrypted can be, and that nothing is sent in the clear by oversight.

    Raises:
        UsageError: E-LINK-03.
    """
    if tls is None:
        encrypted = next((address for address in addresses if address.is_encrypted), None)
        if encrypted is not None:
            raise UsageError(
                f'{where}: "{encrypted}" needs swarm.tls, the folder with {CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE} '
                "that `motet keys issue` writes",
                code="E-LINK-03",
            )
        return
    plain = next((address for address in addresses if not address.is_encrypted), None)
    if plain is not None:
        encrypted = Address("tls", plain.host, plain.port)
        raise UsageError(
            f'{where}: "{plain}" is not encrypted, but swarm.tls is set; write "{encrypted}", or remove swarm.tls',
            code="E-LINK-03",
        )
    for file in (CA_FILE, CERTIFICATE_FILE, KEY_FILE):
        try:
            (tls / file).read_bytes()
        except OSError as error:
            raise UsageError(
                f"{tls / file}: {error.strerror or error}; swarm.tls names a folder with {CA_FILE}, {CERTIFICATE_FILE} "
                f"and {KEY_FILE}, as `motet keys issue` writes it",
                code="E-LINK-03",
            ) from None


def _tx() -> dict[str, Any]:
    return {
        "lease": _LEASE_MS,
        "keep_alive": _KEEP_ALIVES,
        "queue": {
            "congestion_control": {
                "drop": {
                    "wait_before_drop": _WAIT_BEFORE_DROP_US,
                    "max_wait_before_drop_fragments": _WAIT_BEFORE_DROP_LARGE_US,
                },
                "block": {"wait_before_close": _WAIT_BEFORE_CLOSE_US},
            }
        },
    }


def _tls(folder: Path) -> dict[str, Any]:
    certificate, key = str(folder / CERTIFICATE_FILE), str(folder / KEY_FILE)
    return {
        "root_ca_certificate": str(folder / CA_FILE),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        "listen_certificate": certificate,
        "listen_private_key": key,
        "connect_certificate": certificate,
        "connect_private_key": key,
    }
