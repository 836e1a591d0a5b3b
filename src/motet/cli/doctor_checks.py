"""What `motet doctor` looks at on this machine, all of it quick: settings, keys, certificates, clock, packages, disk.

A check yields findings and raises nothing that its subject can cause; it changes nothing, and makes no key.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import msgspec

from motet import __version__
from motet.config import NodeSettings, RunFile
from motet.errors import MotetError
from motet.swarm.identity.keyring import Keyring, run_id_of

Verdict = Literal["ok", "warning", "problem"]

_GIB: Final = 2**30
_LITTLE_DISK: Final = _GIB
_EARLIEST: Final = datetime(2026, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2100, 1, 1, tzinfo=UTC)
_IN_THE_FUTURE_S: Final = 600.0
_SOON_S: Final = 3 * 86_400
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination.

    Attributes:
        verdict: "problem" if the run cannot work like this.
        subject: what was looked at, in a word or two.
        what: what was found.
        todo: what to do; empty if nothing.
    """

    verdict: Verdict
    subject: str
    what: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """What is examined.

    Attributes:
        run: the run file.
        nodes: those of its nodes that are meant to run on this machine.
        keyring: where the keys of the run lie.
    """

    run: RunFile
    nodes: tuple[NodeSettings, ...]
    keyring: Keyring

    @property
    def run_id(self) -> bytes:
        """What marks the run's messages."""
        return run_id_of(self.run.run.name, self.run.run.seed, self.run.swarm.authority)


Check = Callable[[Case], Iterable[Finding]]


def check_run_file(case: Case) -> Iterator[Finding]:
    """Its settings agree, or it would not have been read."""
    run = case.run
    here = ", ".join(node.name for node in case.nodes)
    size = (
        f"{run.run.rounds} rounds, {len(run.node)} node{'' if len(run.node) == 1 else 's'} over {run.swarm.transport}"
    )
    yield Finding("ok", "run file", f'run "{run.run.name}", {size}; here: {here}')
    if run.is_networked and not run.swarm.connect and not run.swarm.listen:
        yield Finding("ok", "addresses", "none: the nodes of this machine find each other, and nobody else does")
    bare = [text for text in (*run.swarm.connect, *run.swarm.listen) if _is_open(text)]
    if bare:
        yield Finding(
            "warning",
            "addresses",
            f"{bare[0]} is not encrypted: groups are signed, but everybody on the way can read them",
            "use tls/... with swarm.tls, unless the network is your own",
        )


def check_keys(case: Case) -> Iterator[Finding]:
    """The key of each node, and what lets it in."""
    if not case.run.is_networked:
        yield Finding("ok", "keys", f'not needed with swarm.transport = "{case.run.swarm.transport}"')
        return
    for node in case.nodes:
        yield from _node_key(case, node)
    yield from _authority(case)


def check_certificates(case: Case) -> Iterator[Finding]:
    """What mutual TLS needs, where there are addresses with TLS."""
    swarm = case.run.swarm
    encrypted = [text for text in (*swarm.connect, *swarm.listen) if text.startswith(("tls", "quic"))]
    if swarm.tls is None:
        if encrypted and swarm.transport == "zenoh":
            yield Finding(
                "problem",
                "certificates",
                f"{encrypted[0]} needs certificates, and swarm.tls is not set",
                "get a folder of them by `motet keys issue` or an invitation, and name it in swarm.tls",
            )
        return
    from motet.swarm.identity.certificate_check import verify_leaf

    folder = Path(swarm.tls)
    name = case.nodes[0].name if len(case.nodes) == 1 else None
    try:
        found = verify_leaf(folder / "ca.pem", folder / "node.pem", name=name)
    except MotetError as error:
        yield Finding("problem", "certificates", str(error))
        return
    bad = [finding for finding in found if finding.verdict != "ok"]
    for finding in bad:
        verdict: Verdict = "warning" if finding.verdict == "soon" else "problem"
        yield Finding(verdict, "certificates", f"{folder / 'node.pem'}: {finding.what}", finding.todo)
    if not bad:
        yield Finding("ok", "certificates", f"{folder}: " + "; ".join(finding.what for finding in found))


def check_clock(case: Case) -> Iterator[Finding]:
    """An absurd date. Peers' clocks are compared where peers are heard."""
    now_s = time.time()
    now = datetime.fromtimestamp(now_s, UTC)
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    written = [Path(__file__), Path(case.run.run.dir)]
    latest = max((path.stat().st_mtime for path in written if path.exists()), default=0.0)
    if not _EARLIEST <= now < _LATEST:
        yield Finding("problem", "clock", f"{shown} cannot be", "set this machine's clock (`timedatectl set-ntp true`)")
    elif latest > now_s + _IN_THE_FUTURE_S:
        last = f"{datetime.fromtimestamp(latest, UTC):%Y-%m-%d %H:%M} UTC"
        yield Finding(
            "warning", "clock", f"{shown}, but files here were written at {last}", "set it (`timedatectl set-ntp true`)"
        )
    else:
        yield Finding("ok", "clock", shown)


def check_versions(case: Case) -> Iterator[Finding]:
    """Versions of what others must agree with, and packages that the run needs."""
    from motet.records import WIRE_VERSION
    from motet.swarm.identity.envelope import PROTOCOL_VERSION

    numbers = [f"motet {__version__}", f"protocol {PROTOCOL_VERSION}", f"wire {WIRE_VERSION}"]
    packages = ["torch", "transformers"]
    yield Finding(
        "ok", "versions", ", ".join([*numbers, f"Python {platform.python_version()}", *map(_package, packages)])
    )
    for package, module, extra in _needed(case.run):
        if importlib.util.find_spec(module) is None:
            yield Finding("problem", "packages", f"{package} is missing", f"pip install 'motet[{extra}]'")
        else:
            yield Finding("ok", "packages", _package(package))


def check_disk(case: Case) -> Iterator[Finding]:
    """Whether results can be written, and what is free. What they need is told with the models."""
    folder = existing_folder(Path(case.run.run.dir))
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding("problem", "disk", f"{folder} may not be written (run.dir)", "set run.dir to a folder of yours")
        return
    free = shutil.disk_usage(folder).free
    shown = f"{free / _GIB:.1f} GiB free for {case.run.run.dir}"
    if free < _LITTLE_DISK:
        yield Finding("warning", "disk", shown, "free some, or set run.dir to another disk")
    else:
        yield Finding("ok", "disk", shown)


QUICK: Final[tuple[Check, ...]] = (
    check_run_file,
    check_keys,
    check_certificates,
    check_clock,
    check_versions,
    check_disk,
)
"""In the order in which they are told."""


def existing_folder(path: Path) -> Path:
    """The folder, or the nearest one around it that is there."""
    absolute = path.absolute()
    return next(folder for folder in (absolute, *absolute.parents) if folder.is_dir())


def _is_open(text: str) -> bool:
    """True for an address without TLS that is not of this machine alone."""
    host = text.rpartition(":")[0].rpartition("/")[2].strip("[]")
    return not text.startswith(("tls", "quic")) and host not in _LOCAL


def _node_key(case: Case, node: NodeSettings) -> Iterator[Finding]:
    from motet.swarm.identity.keys import NodeKey, fingerprint, short

    subject = f"key of {node.name}"
    path = case.keyring.node_key(node.name)
    if not path.exists():
        if node.key is not None:
            yield Finding(
                "problem",
                subject,
                f"{path} is not there, and node.key names the key that the swarm expects",
                "bring it from where it was made, or change node.key",
            )
        else:
            yield Finding("ok", subject, f"none yet; it is made at the first start, in {path}")
        yield from _grant(case, node, None)
        return
    try:
        key = NodeKey.load(path)
    except MotetError as error:
        yield Finding("problem", subject, str(error))
        return
    if node.key not in (None, fingerprint(key.public)):
        yield Finding(
            "problem",
            subject,
            f"{path} is {fingerprint(key.public)}, but node.key is {node.key}",
            "bring the right key back, or change node.key",
        )
    else:
        pinned = ", as node.key says" if node.key else ""
        yield Finding("ok", subject, f"{path} ({short(key.public)}{pinned}); keep a copy, nobody can make it again")
    yield from _grant(case, node, key.public)


def _grant(case: Case, node: NodeSettings, public: bytes | None) -> Iterator[Finding]:
    """The invitation, in a swarm that asks for one."""
    from motet.swarm.identity.credentials import Credential

    authority = case.run.swarm.authority
    if authority is None:
        return
    subject, path = f"grant of {node.name}", case.keyring.credential(node.name)
    if not path.exists():
        if case.keyring.authority.exists():
            yield Finding("ok", subject, "the key of the swarm is here: the node writes its own at the first start")
        else:
            ask = (
                f"ask the swarm's owner for `motet invite {case.run.run.name}.toml --as {node.name}`, and join with it"
            )
            yield Finding("problem", subject, f"{path} is not there, and the swarm takes invited nodes only", ask)
        return
    try:
        credential = msgspec.msgpack.decode(path.read_bytes(), type=Credential)
    except (OSError, ValueError) as error:
        yield Finding("problem", subject, f"{path} is damaged ({error})", "join anew with the invitation")
        return
    reason = _objection(case, node.name, credential, public)
    if reason:
        yield Finding("problem", subject, f"{path}: {reason}", "ask the swarm's owner for a new invitation")
        return
    left_s = credential.grant.not_after - time.time() if credential.grant is not None else 0.0
    if left_s < 0:
        what = "the invitation has ended; the node stays in only where others know it already"
        yield Finding("warning", subject, what, "ask for a new one if it is refused")
    elif left_s < _SOON_S:
        yield Finding(
            "warning", subject, f"holds for {left_s / 3600:.0f} h more", "come in before, or ask for a new one"
        )
    else:
        yield Finding("ok", subject, f"signed by the swarm, for {left_s / 86_400:.0f} days more")


def _objection(case: Case, name: str, credential: object, public: bytes | None) -> str:
    """Why the swarm would not let in whoever shows this."""
    from motet.swarm.identity.credentials import Credential, Refusal, Roster
    from motet.swarm.identity.invites import read_revocations
    from motet.swarm.identity.keys import parse_fingerprint

    assert isinstance(credential, Credential)
    if credential.name != name:
        return f'it is of node "{credential.name}"'
    if public is not None and credential.node_key != public:
        return "it belongs to another key than this node has"
    roster = Roster(case.run_id, authority=parse_fingerprint(case.run.swarm.authority or ""), pins={})
    revocations = read_revocations(case.keyring.revocations)
    if revocations is not None:
        roster.revoke(revocations)
    told = roster.admit(credential, now_s=0.0)
    return _REASONS.get(told.reason, told.reason) if isinstance(told, Refusal) else ""


_REASONS: Final = {
    "bad_signature": "it is not signed by this swarm (swarm.authority), or is of another run",
    "unknown_peer": "it holds no invitation",
    "revoked": "the invitation was revoked",
}


def _authority(case: Case) -> Iterator[Finding]:
    from motet.swarm.identity.keys import NodeKey, fingerprint

    path, wanted = case.keyring.authority, case.run.swarm.authority
    if wanted is None:
        pinned = sum(node.key is not None for node in case.run.node)
        if pinned < len(case.run.node):
            what = (
                f"{len(case.run.node) - pinned} of {len(case.run.node)} nodes are believed by the key they show first"
            )
            yield Finding("ok", "swarm key", f"none; {what}")
        return
    if not path.exists():
        yield Finding("ok", "swarm key", "on another machine; this one cannot invite")
        return
    try:
        found = fingerprint(NodeKey.load(path).public)
    except MotetError as error:
        yield Finding("problem", "swarm key", str(error))
        return
    if found != wanted:
        what = f"{path} is {found}, but swarm.authority is {wanted}"
        yield Finding("problem", "swarm key", what, "set authority to it, or bring the right key back")
    else:
        yield Finding("ok", "swarm key", f"{path}; this machine can invite")


def _needed(run: RunFile) -> Iterator[tuple[str, str, str]]:
    """Package, module and extra of what the run cannot do without."""
    if run.is_networked:
        yield "cryptography", "cryptography", "swarm"
    if run.swarm.transport == "zenoh":
        yield "eclipse-zenoh", "zenoh", "swarm"
    if run.swarm.transport == "nats":
        yield "nats-py", "nats", "nats"
    if any(node.lora is not None or node.peft is not None for node in run.node):
        yield "peft", "peft", "lora"


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} missing"
