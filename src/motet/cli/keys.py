"""`motet keys ca | issue | show | verify`: the keys and certificates of a swarm. No secret is ever printed.

What a run file or a script takes stands on stdout, what people should know on stderr.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from motet.cli.options import add_run_file, at_least_one
from motet.config import load_run_file
from motet.config.dump import toml_value
from motet.errors import UsageError
from motet.swarm.identity.keyring import Keyring
from motet.swarm.identity.keys import NodeKey, fingerprint

HERE: Final = ("localhost", "127.0.0.1", "::1")
"""Hosts of a certificate for which none are named: this machine, as it calls itself."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_PEM_START: Final = b"-----BEGIN "
_AUTHORITY: Final = "authority"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "keys",
        description="Make, show and check the keys and certificates of a swarm. They lie under $MOTET_HOME/keys "
        "(~/.motet/keys without it), apart from run directories, which are copied and shared.",
    )
    kinds = parser.add_subparsers(title="what", metavar="WHAT", dest="what", required=True)
    ca = kinds.add_parser(
        "ca",
        allow_abbrev=False,
        help="make the key of the swarm, which signs invitations, and a certificate authority for mutual TLS",
        description="Make the key of the swarm, which signs invitations, and a certificate authority for mutual TLS, "
        "where there are none yet. Prints the line for [swarm] that makes invitations necessary.",
    )
    add_run_file(ca)
    issue = kinds.add_parser(
        "issue",
        allow_abbrev=False,
        help="issue a node's certificate for mutual TLS",
        description="Issue a node's or relay's certificate for mutual TLS, by the authority that `motet keys ca` made "
        "on this machine. Prints the line for [swarm]; on another machine, copy the folder there.",
    )
    add_run_file(issue)
    issue.add_argument("--name", metavar="N", type=node_name, required=True, help="of the node or relay")
    issue.add_argument(
        "--host",
        metavar="H",
        type=_host,
        action="append",
        help="name or IP address at which others reach it; repeatable [this machine only: localhost]",
    )
    issue.add_argument("--days", metavar="D", type=at_least_one, default=30, help="for how long it holds [30]")
    show = kinds.add_parser(
        "show",
        allow_abbrev=False,
        help="print public keys and where the secret ones lie",
        description="Print public keys, and where the secret halves lie: those of a run, or the key or certificate in "
        "a file.",
    )
    show.add_argument("path", metavar="FILE|PATH", type=Path, help="run file, key file, certificate, or folder of one")
    verify = kinds.add_parser(
        "verify",
        allow_abbrev=False,
        help="check certificates: authority, dates, name, usage, key",
        description="Check node certificates against their authority: signature, dates, name, usage and key. Exit "
        "code 2 if one cannot be used.",
    )
    verify.add_argument(
        "paths", metavar="PATH", type=Path, nargs="+", help="folder of a node's certificate, or node.pem"
    )
    verify.add_argument("--ca", metavar="PEM", type=Path, help="certificate of the authority [ca.pem beside each]")
    verify.add_argument("--name", metavar="N", type=node_name, help="that each must have")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    if args.what == "ca":
        return _ca(args.file)
    if args.what == "issue":
        return _issue(args)
    if args.what == "show":
        return _show(args.path)
    return _verify(args)


def node_name(text: str) -> str:
    """A type of arguments: the name of a node."""
    if _NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no name of a node: letters, digits, ".", "_", "-", the first a letter or digit; 32 at most'
        )
    if text.lower() == _AUTHORITY:
        raise argparse.ArgumentTypeError(f'"{text}" is kept for the key of the swarm; choose another name')
    return text


def _host(text: str) -> str:
    from motet.swarm.identity.certificates import is_host

    if not is_host(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no name and no IP address; write relay.example.org or 192.0.2.7')
    return text


def _ca(file: Path) -> int:
    from motet.swarm.identity.certificates import CA_KEY_FILE, create_ca, describe

    run_file = load_run_file(file)
    keyring = Keyring.of_run(run_file.run.name)
    had_authority, had_ca = keyring.authority.exists(), (keyring.ca / CA_KEY_FILE).exists()
    public = fingerprint(NodeKey.load_or_create(keyring.authority).public)
    if not had_ca:
        create_ca(keyring.ca, name=run_file.run.name)
    print(f"authority = {toml_value(public)}")
    _tell(f"key of the swarm        {keyring.authority}{' (was there)' if had_authority else ''}")
    info = describe(keyring.ca / "ca.pem")
    _tell(f"certificate authority   {keyring.ca}, until {info.not_after:%Y-%m-%d}{' (was there)' if had_ca else ''}")
    known = run_file.swarm.authority
    if known is None:
        _tell(f"Put the line above under [swarm] in {file}: only nodes with an invitation take part then.")
    elif known != public:
        raise UsageError(
            f"swarm.authority in {file} is {known}, another key than this machine's; use the line above, or bring the "
            f"right key to {keyring.authority}",
            code="E-KEY-03",
        )
    _tell(_backup(keyring))
    return 0


def _issue(args: argparse.Namespace) -> int:
    from motet.swarm.identity.certificates import describe, issue_leaf

    run_file = load_run_file(args.file)
    keyring = Keyring.of_run(run_file.run.name)
    folder = keyring.tls(args.name)
    issue_leaf(keyring.ca, args.name, args.host or HERE, args.days).write(folder)
    info = describe(folder / "node.pem")
    print(f"tls = {toml_value(str(folder.absolute()))}")
    _tell(f'certificate of "{args.name}" until {info.not_after:%Y-%m-%d %H:%M} UTC, as {", ".join(info.hosts)}')
    if not args.host:
        _tell("Nodes of other machines cannot connect to it by these; if they should, name its address with --host.")
    _tell(
        f"{folder / 'node.key'} is a secret: to use it on another machine, copy the folder over a channel that nobody "
        "else can read."
    )
    return 0


def _show(path: Path) -> int:
    if path.is_dir():
        return _show_files(sorted(path.glob("*.pem")), path)
    if _is_pem(path):
        return _show_files([path], path)
    run_file = load_run_file(path)
    keyring = Keyring.of_run(run_file.run.name)
    print(f"keys of run {run_file.run.name}: {keyring.folder}")
    rows = list(_rows(keyring))
    if not rows:
        _tell("None yet: `motet node` makes a node's key when it starts, `motet keys ca` the key of the swarm.")
        return 0
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        print(f"{label:<{width}}  {text}")
    known = run_file.swarm.authority
    if known is not None and keyring.authority.exists() and known != _public(keyring.authority):
        _tell(f"swarm.authority in {path} is another key: {known}")
    _tell(_backup(keyring))
    return 0


def _rows(keyring: Keyring) -> Iterator[tuple[str, str]]:
    """What lies in the folder of a run: a label and a public text for each."""
    from motet.swarm.identity.certificates import describe

    if keyring.authority.exists():
        yield "key of the swarm", _public(keyring.authority)
    for key in sorted(keyring.node_key("x").parent.glob("*.pem")):
        yield f"node {key.stem}", _public(key)
    for certificate in [keyring.ca / "ca.pem", *sorted(keyring.tls("x").parent.glob("*/node.pem"))]:
        if certificate.exists():
            info = describe(certificate)
            label = "certificate authority" if info.is_ca else f"certificate of {info.common_name}"
            yield label, f"until {info.not_after:%Y-%m-%d %H:%M} UTC"


def _public(path: Path) -> str:
    return fingerprint(NodeKey.load(path).public)


def _show_files(paths: list[Path], asked: Path) -> int:
    from motet.swarm.identity.certificates import describe

    if not paths:
        raise UsageError(f"{asked}: no key and no certificate (*.pem) in this folder", code="E-KEY-01")
    for path in paths:
        if b"PRIVATE KEY" in path.read_bytes()[:200]:
            print(f"{path}: {_public(path)}")
            continue
        info = describe(path)
        kind = "certificate authority" if info.is_ca else "certificate"
        hosts = f", as {', '.join(info.hosts)}" if info.hosts else ""
        print(
            f'{path}: {kind} "{info.common_name}" by "{info.issuer}", until {info.not_after:%Y-%m-%d %H:%M} UTC{hosts}'
        )
    return 0


def _verify(args: argparse.Namespace) -> int:
    from motet.swarm.identity.certificate_check import verify_leaf

    num_bad = 0
    for path in args.paths:
        leaf = path / "node.pem" if path.is_dir() else path
        findings = verify_leaf(args.ca or leaf.with_name("ca.pem"), leaf, name=args.name)
        print(leaf)
        for finding in findings:
            print(f"  {finding.verdict:<4}  {finding.what}" + (f"; {finding.todo}" if finding.todo else ""))
        num_bad += any(finding.verdict == "bad" for finding in findings)
    if num_bad:
        raise UsageError(
            f"{num_bad} of {len(args.paths)} certificates cannot be used; the lines marked bad say what to do",
            code="E-CERT-04",
        )
    return 0


def _is_pem(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _PEM_START in file.read(4096)
    except OSError:
        return False  # reading it as a run file says what is wrong


def _backup(keyring: Keyring) -> str:
    return (
        f"Back up {keyring.folder}, where nobody else reads it: a lost key is a new node, and a lost key of the swarm "
        "a new swarm."
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
