"""A small certificate authority for mutual TLS: makes it, issues short-lived leaves, says what is wrong with one.

Keys are ECDSA P-256. A leaf has the node's name as its common name, the hosts at which others reach it, and may be
shown by both ends of a connection. There is no revocation list: a leaf that lasts 30 days is not renewed instead.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import msgspec

from motet.errors import UsageError
from motet.swarm.identity.keys import require_cryptography, write_secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

    _Extension = TypeVar("_Extension", bound=x509.ExtensionType)

CA_FILE, CA_KEY_FILE = "ca.pem", "ca.key"
LEAF_FILE, LEAF_KEY_FILE = "node.pem", "node.key"
DEFAULT_DAYS: Final = 30
CA_DAYS: Final = 3650
MAX_NAME_CHARS: Final = 64
"""Longest common name that X.509 allows."""

_CLOCKS_DIFFER_BY: Final = timedelta(hours=1)
_MAX_FILE_BYTES: Final = 65_536
_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\Z")
_MAX_HOST_CHARS: Final = 253


class TlsBundle(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """What mutual TLS needs of a node, as PEM. `node_key` is a secret.

    Attributes:
        ca: certificate of the authority.
        node: the node's certificate.
        node_key: the node's private key.
    """

    ca: str
    node: str
    node_key: str

    def __repr__(self) -> str:
        """Without the secret."""
        return "TlsBundle(...)"

    def write(self, folder: Path) -> None:
        """Write ca.pem, node.pem and node.key (0600) into a folder, which is made; what was there is replaced.

        Raises:
            OSError: they cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(folder / LEAF_KEY_FILE, self.node_key.encode("ascii"), replace=True)
        write_secret(folder / LEAF_FILE, self.node.encode("ascii"), replace=True)
        write_secret(folder / CA_FILE, self.ca.encode("ascii"), replace=True)


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """What a certificate says.

    Attributes:
        common_name: name of the node, or of the run for an authority; empty if there is none.
        issuer: common name of whoever signed it.
        not_before: first moment at which it holds, in UTC.
        not_after: last one.
        hosts: names and addresses at which others reach its holder.
        is_ca: it may sign others.
        has_both_usages: both ends of a connection may show it.
    """

    common_name: str
    issuer: str
    not_before: datetime
    not_after: datetime
    hosts: tuple[str, ...]
    is_ca: bool
    has_both_usages: bool


def create_ca(folder: Path, *, name: str) -> Path:
    """Make a certificate authority: `ca.pem`, and `ca.key` with mode 0600, in a folder that is made.

    Args:
        folder: where; a `ca.key` that is there is never replaced.
        name: of the run.

    Returns:
        The path of its certificate.

    Raises:
        UsageError: there is one already (E-CERT-02).
        EnvironmentFault: the package cryptography is missing (E-KEY-02).
        OSError: the files cannot be written.
    """
    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, name, key.public_key(), days=CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        write_secret(folder / CA_KEY_FILE, _key_pem(key).encode("ascii"), replace=False)
    except FileExistsError:
        raise UsageError(
            f"{folder / CA_KEY_FILE}: there is a certificate authority already; move the folder aside for a new one, "
            "which every node needs a new certificate of",
            code="E-CERT-02",
        ) from None
    write_secret(folder / CA_FILE, _pem(certificate).encode("ascii"), replace=True)
    return folder / CA_FILE


def issue_leaf(folder: Path, name: str, hosts: Sequence[str], days: int = DEFAULT_DAYS) -> TlsBundle:
    """Issue a certificate with a key of its own. It ends with the authority's at the latest.

    Args:
        folder: of the certificate authority.
        name: of the node; the common name.
        hosts: DNS names and IP addresses at which others reach the node; may be empty if none connect to it.
        days: from 1; for how long it holds.

    Raises:
        ValueError: a host that is neither, or a name that no certificate can hold.
        UsageError: no authority there (E-CERT-01), a damaged one (E-CERT-02), or one that has ended (E-CERT-03).
        EnvironmentFault: the package cryptography is missing (E-KEY-02).
    """
    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca, ca_key = _load_ca(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, _common_name(ca.subject), key.public_key(), days=days, ends=ca.not_valid_after_utc)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
        builder = builder.add_extension(names, critical=False)
    return TlsBundle(_pem(ca), _pem(builder.sign(ca_key, hashes.SHA256())), _key_pem(key))


def describe(path: Path) -> CertificateInfo:
    """What the certificate in a PEM file says.

    Raises:
        UsageError: missing, unreadable, or no certificate (E-CERT-02).
        EnvironmentFault: the package cryptography is missing (E-KEY-02).
    """
    return describe_certificate(load_certificate(path))


def describe_certificate(certificate: x509.Certificate) -> CertificateInfo:
    """What a certificate says."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    constraints = _extension(certificate, x509.BasicConstraints)
    usages = _extension(certificate, x509.ExtendedKeyUsage)
    names = _extension(certificate, x509.SubjectAlternativeName)
    hosts: list[str] = []
    if names is not None:
        hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return CertificateInfo(
        common_name=_common_name(certificate.subject),
        issuer=_common_name(certificate.issuer),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        hosts=tuple(hosts),
        is_ca=constraints is not None and constraints.ca,
        has_both_usages=usages is not None
        and {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= set(usages),
    )


def load_certificate(path: Path) -> x509.Certificate:
    """The certificate in a PEM file, the first if there are several.

    Raises:
        UsageError: missing, unreadable, or no certificate (E-CERT-02).
        EnvironmentFault: the package cryptography is missing (E-KEY-02).
    """
    require_cryptography()
    from cryptography import x509

    content = _read(path)
    try:
        certificate = x509.load_pem_x509_certificate(content)
        _ = (certificate.subject, certificate.issuer, list(certificate.extensions))  # parsed only when asked for
    except ValueError:
        _refuse(path, "is damaged or no certificate in PEM; issue it anew with `motet keys issue`")
    return certificate


def is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """True if the authority `ca` signed the certificate."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def has_key(certificate: x509.Certificate, path: Path) -> bool:
    """True if the unencrypted private key in this PEM file is the certificate's.

    Raises:
        UsageError: the file cannot be read (E-CERT-02).
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read(path)
    try:
        return load_pem_private_key(content, password=None).public_key() == certificate.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def is_host(text: str) -> bool:
    """True for a DNS name or an IP address.

    >>> is_host("relay.example.org"), is_host("::1"), is_host("tcp/relay:7447")
    (True, True, False)
    """
    return _ip(text) is not None or (len(text) <= _MAX_HOST_CHARS and _HOST.match(text) is not None)


def _load_ca(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not (folder / CA_KEY_FILE).exists():
        raise UsageError(
            f"{folder}: no certificate authority here; `motet keys ca FILE` makes one. Certificates are issued on the "
            "one machine that has it",
            code="E-CERT-01",
        )
    certificate = load_certificate(folder / CA_FILE)
    try:
        key = load_pem_private_key(_read(folder / CA_KEY_FILE), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        _refuse(folder / CA_KEY_FILE, "is damaged or no private key; restore it from a backup")
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        _refuse(folder / CA_KEY_FILE, f"does not belong to {CA_FILE} beside it; restore both from a backup")
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise UsageError(
            f"{folder / CA_FILE}: this certificate authority has ended on {certificate.not_valid_after_utc:%Y-%m-%d}; "
            "move the folder aside, make a new one with `motet keys ca FILE`, and issue every certificate anew",
            code="E-CERT-03",
        )
    return certificate, key


def _builder(
    name: str, issuer: str, public_key: EllipticCurvePublicKey, *, days: int, ends: datetime | None = None
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC).replace(microsecond=0)
    last = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(_x509_name(name))
        .issuer_name(_x509_name(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER_BY)
        .not_valid_after(last if ends is None else min(last, ends))
    )


def _x509_name(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    if not is_host(host):
        raise ValueError(f"{host} is neither a DNS name nor an IP address")
    address = _ip(host)
    return x509.DNSName(host) if address is None else x509.IPAddress(address)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return None if "%" in text else ipaddress.ip_address(text)  # no certificate can hold the zone of an address
    except ValueError:
        return None


def _common_name(name: x509.Name) -> str:
    from cryptography.x509.oid import NameOID

    return next((str(attribute.value) for attribute in name.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def _extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        _refuse(path, f"cannot be read: {error.strerror or error}")
    if len(content) > _MAX_FILE_BYTES:
        _refuse(path, "is too large for a key or a certificate")
    return content


def _refuse(path: Path, what: str) -> NoReturn:
    raise UsageError(f"{path}: {what}", code="E-CERT-02")
