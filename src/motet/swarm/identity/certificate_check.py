"""What is wrong with a node's certificate, and what to do about each thing: the checks that a connection would fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from motet.errors import UsageError
from motet.swarm.identity.certificates import (
    LEAF_KEY_FILE,
    CertificateInfo,
    describe_certificate,
    has_key,
    is_issued_by,
    load_certificate,
)
from motet.swarm.identity.keys import is_readable_by_others

if TYPE_CHECKING:
    from cryptography import x509

Verdict = Literal["ok", "soon", "bad"]

_SOON: Final = timedelta(days=7)
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z")
_ANEW: Final = "issue it anew with `motet keys issue FILE --name {name}`"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        verdict: "bad" if connections fail because of it, "soon" if they are about to.
        what: what was found.
        todo: what to do; empty if nothing is.
    """

    verdict: Verdict
    what: str
    todo: str = ""


def verify_leaf(ca: Path, leaf: Path, *, name: str | None = None, now: datetime | None = None) -> list[Finding]:
    """Check a node's certificate against its authority: signature, dates, name, usage and, if it lies there, the key.

    Args:
        ca: certificate of the authority.
        leaf: certificate of the node; `node.key` beside it is checked too.
        name: that it must have; without it any name that a node can have.
        now: the moment to judge by; the present one without it.

    Returns:
        At least one finding for each thing, good ones too.

    Raises:
        UsageError: a file is missing, unreadable, or no certificate (E-CERT-02).
        EnvironmentFault: the package cryptography is missing (E-KEY-02).
    """
    authority, certificate = load_certificate(ca), load_certificate(leaf)
    info, moment = describe_certificate(certificate), datetime.now(UTC) if now is None else now
    anew = _ANEW.format(name=name or info.common_name or "NAME")
    return [
        *_authority(ca, describe_certificate(authority), moment),
        _signature(certificate, authority, info, anew),
        _dates(info, moment, anew),
        _name(info, name),
        _usage(info, anew),
        _hosts(info),
        *_key(certificate, leaf.with_name(LEAF_KEY_FILE), anew),
    ]


def _authority(path: Path, info: CertificateInfo, now: datetime) -> Iterator[Finding]:
    if not info.is_ca:
        yield Finding("bad", f"{path} may not sign certificates", "put the authority's ca.pem there")
    if now > info.not_after:
        what = f"the authority has ended on {_day(info.not_after)}"
        yield Finding("bad", what, "make a new one with `motet keys ca`, and issue every certificate anew")


def _signature(leaf: x509.Certificate, ca: x509.Certificate, info: CertificateInfo, anew: str) -> Finding:
    if is_issued_by(leaf, ca):
        return Finding("ok", f'signed by the authority "{info.issuer}"')
    return Finding("bad", "not signed by this authority", f"take ca.pem of whoever issued it, or {anew}")


def _dates(info: CertificateInfo, now: datetime, anew: str) -> Finding:
    if now < info.not_before:
        return Finding("bad", f"holds from {_moment(info.not_before)} only", "set this machine's clock")
    if now > info.not_after:
        return Finding("bad", f"has ended on {_moment(info.not_after)}", anew)
    if now > info.not_after - _SOON:
        return Finding("soon", f"ends on {_moment(info.not_after)}", anew)
    return Finding("ok", f"holds until {_moment(info.not_after)}")


def _name(info: CertificateInfo, name: str | None) -> Finding:
    found = info.common_name
    if name is not None and found != name:
        return Finding(
            "bad", f'is of node "{found}", not of "{name}"', f"use it for {found}, or {_ANEW}".format(name=name)
        )
    if not _NODE_NAME.match(found):
        return Finding("bad", f"its common name {found!r} is no name of a node", _ANEW.format(name="NAME"))
    return Finding("ok", f'is of node "{found}"')


def _usage(info: CertificateInfo, anew: str) -> Finding:
    if info.is_ca:
        return Finding("bad", "is an authority's certificate, not a node's", anew)
    if not info.has_both_usages:
        return Finding("bad", "may not be shown by both ends of a connection (server and client)", anew)
    return Finding("ok", "may be shown by both ends of a connection")


def _hosts(info: CertificateInfo) -> Finding:
    if info.hosts:
        return Finding("ok", "others may connect to it as " + ", ".join(info.hosts))
    return Finding("ok", "names no host: this node connects to others, and nobody to it")


def _key(certificate: x509.Certificate, path: Path, anew: str) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("bad", f"there is no {path.name} beside it", f"copy it from where it was issued, or {anew}")
        return
    try:
        fits = has_key(certificate, path)
        is_open = is_readable_by_others(path)
    except UsageError as error:
        yield Finding("bad", str(error), "change who may read it")
        return
    if not fits:
        yield Finding("bad", f"{path.name} is not its private key", f"copy both from where they were issued, or {anew}")
    elif is_open:
        yield Finding("bad", f"{path.name} may be read by others than its owner", f"say `chmod 600 {path}`")
    else:
        yield Finding("ok", f"{path.name} is its private key, and only its owner may read it")


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
