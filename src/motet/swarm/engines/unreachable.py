"""Why nobody answers at an address: found out with a plain connection and a TLS handshake of the standard library."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from motet.swarm.engines.addresses import Address
from motet.swarm.engines.zenoh_config import CA_FILE, CERTIFICATE_FILE, KEY_FILE

_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's numbers of what is wrong with a certificate
_WRONG_CA: Final = frozenset({2, 7, 18, 19, 20, 21})
_WRONG_HOST: Final = frozenset({62, 64})
_ALERTS: Final = {
    "certificate_required": "it wants a certificate of this node, and has seen none",
    "certificate_expired": "it says that this node's certificate has expired; issue a new one with `motet keys issue`",
    "unknown_ca": "it does not take this node's certificate: that is of another CA than its own",
    "decrypt_error": "it does not take this node's certificate: that is of another CA than its own",
    "bad_certificate": "it does not take this node's certificate",
    "certificate_unknown": "it does not take this node's certificate",
    "unsupported_certificate": "it does not take this node's certificate",
    "access_denied": "it does not take this node's certificate",
}
_ENDED: Final = "it ends the connection at once"
NO_CERTIFICATES: Final = (
    "this node has no certificates for TLS: get a folder of them by `motet keys issue` or an invitation, and name it "
    "in swarm.tls"
)


def why_unreachable(address: Address, tls: Path | None, *, timeout_s: float = 2.0) -> str:
    """The likely reason, in a few words, for which no session comes about at an address.

    Args:
        address: where it was tried.
        tls: folder with ca.pem, node.pem and node.key, if there is one.
        timeout_s: for each step of the search.
    """
    if address.protocol == "quic":
        return _why_no_quic(address)
    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s) as connection:
            if tls is None and address.is_encrypted:
                return NO_CERTIFICATES
            if tls is None:
                return _why_not_plain(connection)
            return _why_not_tls(connection, address, tls)
    except socket.gaierror:
        return f'no machine is known by the name "{address.host}"'
    except ConnectionRefusedError:
        return "nothing listens there: start the node or relay that should, or mend the port"
    except TimeoutError:
        return "no answer: the machine is off, or a firewall is in the way"
    except OSError as error:
        return f"no way there: {error.strerror or error}"


def _why_no_quic(address: Address) -> str:
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
    except socket.gaierror:
        return f'no machine is known by the name "{address.host}"'
    return "no answer over UDP: nothing listens there, a firewall is in the way, or it refuses the certificate"


def _why_not_plain(connection: socket.socket) -> str:
    """Somebody listens. Perhaps it speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection) as wrapped:
            wrapped.version()
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return "something listens there, but no node or relay of motet"
    except OSError:
        return "something listens there, but no node or relay of motet"
    return "it speaks TLS: write tls/ instead of tcp/, and set swarm.tls"


def _why_not_tls(connection: socket.socket, address: Address, tls: Path) -> str:
    try:
        context = ssl.create_default_context(cafile=str(tls / CA_FILE))
        context.load_cert_chain(tls / CERTIFICATE_FILE, tls / KEY_FILE)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
        return f"this node's certificate cannot be used: {why}; `motet keys verify` tells more"
    try:
        # One that is content says nothing for now; a refusal comes after the handshake.
        with context.wrap_socket(connection, server_hostname=address.host) as wrapped, suppress(TimeoutError):
            if not wrapped.recv(1):
                return _ENDED
    except ssl.SSLCertVerificationError as error:
        return _why_not_believed(error, address)
    except ssl.SSLError as error:
        return _alert(error)
    except TimeoutError:
        return "something listens there, but it does not answer TLS"
    except OSError:
        return _ENDED
    return "TLS is in order, but what answers is no node or relay of motet, or has no room for more"


def _why_not_believed(error: ssl.SSLCertVerificationError, address: Address) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "its certificate does not hold yet: is this machine's clock right?"
    if error.verify_code in _WRONG_CA:
        return f"its certificate is of another CA than {CA_FILE}"
    if error.verify_code in _WRONG_HOST:
        return f"its certificate does not name {address.host}"
    return f"its certificate is not accepted: {error.verify_message}"


def _alert(error: ssl.SSLError) -> str:
    reason = (error.reason or "").lower()
    for name, words in _ALERTS.items():
        if name in reason:
            return words
    if "wrong_version_number" in reason or "packet_length" in reason or "record_layer" in reason:
        return "it does not speak TLS: write tcp/ instead of tls/ and remove swarm.tls, or give it certificates"
    return f"TLS fails: {reason.replace('_', ' ') or error}"
