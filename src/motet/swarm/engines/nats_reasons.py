"""Why a NATS server cannot be used, in words for people. Knows nothing of the client but how its errors read."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from motet.errors import EnvironmentFault, MotetError, SwarmUnreachable, UsageError

_NO_ROOM = 10047  # the server's code for "insufficient storage resources available"


def address_of(server: str) -> str:
    """The address without the name and password that it may have.

    >>> address_of("tls://kim:secret@hub.example.org:4222")
    'tls://hub.example.org:4222'
    """
    parts = urlsplit(server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def check_servers(servers: Sequence[str]) -> None:
    """Refuse addresses that the client could not even try.

    Raises:
        UsageError: no address, or one that is none (E-LINK-10).
    """
    if not servers:
        raise UsageError(
            'swarm.connect: NATS needs the address of a server, such as "nats://10.0.0.5:4222"', code="E-LINK-10"
        )
    for server in servers:
        try:
            parts = urlsplit(server)
            if parts.scheme in ("nats", "tls") and parts.hostname and parts.port != 0 and parts.path in ("", "/"):
                continue
        except ValueError:
            pass
        raise UsageError(
            f'swarm.connect: {server!r} is no address of a NATS server; write "nats://HOST:PORT", or "tls://HOST:PORT"',
            code="E-LINK-10",
        )


def load_tls(folder: Path) -> ssl.SSLContext:
    """What the client shows and believes: ca.pem, and node.pem with node.key.

    Raises:
        UsageError: a file is missing, cannot be read, or is none (E-LINK-11).
    """
    try:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "node.pem", folder / "node.key")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        missing = [name for name in ("ca.pem", "node.pem", "node.key") if not (folder / name).is_file()]
        why = f"{missing[0]} is missing" if missing else str(getattr(error, "reason", None) or error)
        raise UsageError(
            f"swarm.tls: {folder} must hold ca.pem, node.pem and node.key that belong together: {why}; "
            "`motet keys issue` writes such a folder",
            code="E-LINK-11",
        ) from error
    return context


def not_installed() -> EnvironmentFault:
    """The client is not installed."""
    return EnvironmentFault(
        "swarm.transport = \"nats\" needs the package nats-py, which is not installed: pip install 'motet[nats]'",
        code="E-LINK-18",
    )


def no_tls(server: str) -> SwarmUnreachable:
    """The server would have gone on in clear text."""
    return SwarmUnreachable(
        f"{address_of(server)}: the server does not require TLS, but swarm.tls or tls:// asks for it; "
        "give the server its tls section, or look who answers there",
        code="E-LINK-12",
    )


def not_permitted(server: str, what: str) -> SwarmUnreachable:
    """The server let this node in and forbids what it needs."""
    return SwarmUnreachable(
        f"{address_of(server)}: the server does not permit this node {what}; docs/nats.md lists what a node needs",
        code="E-LINK-13",
    )


def payload_too_small(server: str, max_payload: int, max_message_bytes: int) -> SwarmUnreachable:
    """The server takes no messages of the size of this run's."""
    return SwarmUnreachable(
        f"{address_of(server)}: the server takes messages of {max_payload} bytes, this run sends up to "
        f"{max_message_bytes}; set max_payload: {max_message_bytes} in the server's configuration",
        code="E-LINK-15",
    )


def other_stream(server: str, stream: str, shortfall: str) -> SwarmUnreachable:
    """The stream is there, and does not hold what the run needs."""
    return SwarmUnreachable(
        f"{address_of(server)}: the stream {stream} exists with other limits: {shortfall}; delete it at the server if "
        "no node of this run is at work, it will be made anew",
        code="E-LINK-16",
    )


def stream_refused(server: str, stream: str, description: str, err_code: int | None) -> SwarmUnreachable:
    """The server does not make the stream."""
    hint = "give JetStream more room (max_file_store), or delete streams of old runs" if err_code == _NO_ROOM else ""
    return SwarmUnreachable(
        f"{address_of(server)}: the server does not make the stream {stream}: {description}"
        + (f"; {hint}" if hint else ""),
        code="E-LINK-17",
    )


def no_jetstream(server: str, description: str) -> SwarmUnreachable:
    """The server has no JetStream, or not for this node's account."""
    return SwarmUnreachable(
        f"{address_of(server)}: the server has no JetStream for this node ({description}); start it with -js or a "
        "jetstream section, and allow it to this node's account",
        code="E-LINK-14",
    )


def no_answer(server: str, timeout_s: float) -> SwarmUnreachable:
    """Nothing came within the time."""
    return SwarmUnreachable(
        f"{address_of(server)}: no answer within {timeout_s:g} s; wrong address, a firewall that swallows the "
        "connection, or a server that hangs",
        code="E-LINK-01",
    )


def refusal(server: str, error: BaseException, timeout_s: float) -> MotetError:
    """Why the server did not let this node in, told from what the client raised."""
    where = address_of(server)
    text = str(error).strip() or type(error).__name__
    if isinstance(error, MotetError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        why = getattr(error, "verify_message", text)
        return SwarmUnreachable(
            f"{where}: the server's certificate is not accepted: {why}; is ca.pem that of the CA which issued it, and "
            "does it name this host?",
            code="E-LINK-12",
        )
    if isinstance(error, ssl.SSLError):
        why = getattr(error, "reason", None) or text
        return SwarmUnreachable(
            f"{where}: TLS failed: {why}; the server wants a certificate of its own CA, within its dates (swarm.tls)",
            code="E-LINK-12",
        )
    if "authorization" in text.lower() or "authentication" in text.lower():
        return SwarmUnreachable(
            f"{where}: the server knows no user for this node's certificate, name or password: {text}",
            code="E-LINK-13",
        )
    if isinstance(error, TimeoutError):
        return no_answer(server, timeout_s)
    if isinstance(error, socket.gaierror):
        return SwarmUnreachable(f"{where}: no such host: {error.strerror}", code="E-LINK-01")
    if isinstance(error, ConnectionRefusedError) or "connect call failed" in text.lower():
        return SwarmUnreachable(
            f"{where}: the connection is refused; is nats-server running there, on that port?", code="E-LINK-01"
        )
    if "expecting INFO" in text:
        return SwarmUnreachable(f"{where}: what answers there is no NATS server", code="E-LINK-01")
    if isinstance(error, ConnectionError) or "EOF" in text:
        return SwarmUnreachable(
            f"{where}: the server hung up ({text}); does it want TLS or a certificate that this node does not show?",
            code="E-LINK-12",
        )
    return SwarmUnreachable(f"{where}: {text}", code="E-LINK-01")


def all_refused(refusals: Sequence[MotetError]) -> MotetError:
    """One error for all addresses that were tried; a single one as it is.

    The code is that of the first that says more than that nobody answers.
    """
    if len(refusals) == 1:
        return refusals[0]
    codes = [error.code for error in refusals]
    code = next((code for code in codes if code != "E-LINK-01"), "E-LINK-01")
    return SwarmUnreachable("no NATS server lets this node in: " + "; ".join(map(str, refusals)), code=code)
