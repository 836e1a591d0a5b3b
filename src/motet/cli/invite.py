"""`motet invite FILE --as NAME`: one line with which somebody else's machine joins a run over the network.

That line alone stands on stdout; it is a secret. What people should know stands on stderr.
"""

from __future__ import annotations

import argparse
import ipaddress
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

from motet.cli.guest_file import guest_file, needed_files
from motet.cli.keys import node_name
from motet.cli.options import add_run_file, add_set, at_least_one
from motet.config import RunFile, load_run_file
from motet.errors import UsageError
from motet.swarm.identity.certificates import CA_KEY_FILE, TlsBundle, issue_leaf
from motet.swarm.identity.credentials import issue_grant
from motet.swarm.identity.invitation import Invitation, encode
from motet.swarm.identity.invites import Inviter, read_ledger
from motet.swarm.identity.keyring import Keyring, run_id_of
from motet.swarm.identity.keys import NodeKey, fingerprint, parse_fingerprint

_DAY_S = 86_400
_MAX_DAYS = 3650
_NO_AUTHORITY, _BAD_ADDRESS = "E-INVITE-06", "E-INVITE-07"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "invite",
        description="Print one line with which somebody else's machine joins this run. The line is a secret; whoever "
        "uses it first takes part under NAME, and nobody else can use it then.",
    )
    add_run_file(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--as", metavar="NAME", dest="name", type=node_name, help="name under which the guest takes part")
    what.add_argument("--list", action="store_true", help="list the invitations that were given out")
    what.add_argument("--revoke", metavar="NAME", type=node_name, help="take back what was given to NAME, used or not")
    parser.add_argument("--days", metavar="D", type=_days, default=7, help="for how long it can be used [7]")
    parser.add_argument(
        "--address",
        metavar="A",
        action="append",
        help='where the guest connects, such as "tcp/192.0.2.7:7447"; repeatable [swarm.connect, else swarm.listen]',
    )
    parser.add_argument("--tls", action="store_true", help="also issue a certificate for NAME and put it in")
    add_set(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    run_file = load_run_file(args.file, args.set)
    keyring = Keyring.of_run(run_file.run.name)
    if args.list:
        return _list(keyring)
    inviter = _inviter(run_file, keyring, args.file)
    if args.revoke is not None:
        return _revoke(inviter, args.revoke)
    print("motet join " + _invite(run_file, inviter, args))
    return 0


def _days(text: str) -> int:
    days = at_least_one(text)
    if days > _MAX_DAYS:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: 1 to {_MAX_DAYS}")
    return days


def _inviter(run_file: RunFile, keyring: Keyring, file: object) -> Inviter:
    """Who signs: the key of the swarm, which must lie here.

    Raises:
        UsageError: the run file names none, or this machine does not have it (E-INVITE-06).
    """
    known = run_file.swarm.authority
    if known is None:
        raise UsageError(
            f"{file}: invitations need swarm.authority, and it is not set; `motet keys ca {file}` makes the key and "
            "prints the line to put under [swarm]",
            code=_NO_AUTHORITY,
        )
    if not keyring.authority.exists():
        raise UsageError(
            f"{keyring.authority} is not here: only the machine with the key of the swarm ({known}) can invite; invite "
            "there, or bring the key back from its backup",
            code=_NO_AUTHORITY,
        )
    authority = NodeKey.load(keyring.authority)
    if fingerprint(authority.public) != known:
        raise UsageError(
            f"{keyring.authority} is {fingerprint(authority.public)}, and swarm.authority in {file} is {known}; "
            "bring the right key back, or set swarm.authority to this one",
            code=_NO_AUTHORITY,
        )
    return Inviter(keyring, authority, run_id_of(run_file.run.name, run_file.run.seed, known))


def _invite(run_file: RunFile, inviter: Inviter, args: argparse.Namespace) -> str:
    from motet.tasks import load_task

    assert run_file.swarm.authority is not None
    if args.name in {node.name for node in run_file.node} and inviter.keyring.node_key(args.name).exists():
        raise UsageError(
            f'"{args.name}" has a key on this machine ({inviter.keyring.node_key(args.name)}), so it is a node of this '
            "machine; invite others under another name, or delete that file if the node runs elsewhere",
            code="E-INVITE-08",
        )
    now = time.time()
    addresses = _addresses(run_file, args.address)
    task = load_task(**run_file.task.model_dump()).fingerprint
    tls = _certificate(inviter.keyring, args.name, args.days) if args.tls else None
    invite = NodeKey.generate()
    not_after = int(now) + args.days * _DAY_S
    grant = issue_grant(inviter.authority, inviter.run_id, args.name, invite.public, not_after)
    invitation = Invitation(
        run_file=guest_file(run_file, addresses),
        name=args.name,
        addresses=tuple(addresses),
        authority=parse_fingerprint(run_file.swarm.authority),
        grant=grant,
        secret=invite.secret,
        task=task,
        tls=tls,
    )
    token = encode(invitation, inviter.authority)
    inviter.note(grant, now_s=now)
    _tell(
        f'The line below is a secret: whoever has it can take part as "{args.name}". Send it over a channel that only '
        f"they read. It can be used once, until {_moment(not_after)}; "
        f"`motet invite {args.file} --revoke {args.name}` takes it back."
    )
    _tell(f"The guest connects to {', '.join(addresses)}. Tell them that the swarm is {run_file.swarm.authority}.")
    for path in needed_files(run_file):
        _tell(f"The guest needs your {path} too: the invitation has only its fingerprint.")
    if tls is None and any(address.startswith(("tls", "quic")) for address in addresses):
        _tell("These addresses need a certificate of the guest's, and this invitation has none; --tls puts one in.")
    return token


def _certificate(keyring: Keyring, name: str, days: int) -> TlsBundle:
    """A certificate for a guest that connects to others; it lasts as long as the invitation, 30 days at least."""
    if not (keyring.ca / CA_KEY_FILE).exists():
        raise UsageError(
            f"--tls: {keyring.ca} has no certificate authority; `motet keys ca` makes one", code="E-CERT-01"
        )
    return issue_leaf(keyring.ca, name, (), max(days, 30))


def _addresses(run_file: RunFile, given: Sequence[str] | None) -> list[str]:
    """Where the guest connects.

    Raises:
        UsageError: none is known, or one that no other machine can reach (E-INVITE-07); no address (E-LINK-02, -10).
    """
    swarm = run_file.swarm
    where, texts = next(
        (
            (where, texts)
            for where, texts in (
                ("--address", given),
                ("swarm.connect", swarm.connect),
                ("swarm.listen", swarm.listen),
            )
            if texts
        ),
        ("", ()),
    )
    if not texts:
        raise UsageError(
            "no address for the guest: set swarm.listen or swarm.connect, or say --address tcp/HOST:7447 with the "
            "address at which others reach this machine or a relay",
            code=_BAD_ADDRESS,
        )
    return [_reachable(text, where, nats=swarm.transport == "nats") for text in dict.fromkeys(texts)]


def _reachable(text: str, where: str, *, nats: bool) -> str:
    """The address as it is put into an invitation."""
    if nats:
        from motet.swarm.engines.nats_reasons import address_of, check_servers

        check_servers([text])
        host, address = urlsplit(text).hostname or "", text if where == "--address" else address_of(text)
        if address != text:
            _tell(f"{where}: the name and password in it are yours, and stay out; --address puts the guest's in.")
    else:
        from motet.swarm.engines.addresses import parse_address

        parsed = parse_address(text, where=where)
        host, address = parsed.host, str(parsed)
    if _is_only_here(host):
        raise UsageError(
            f"{where}: a guest cannot reach {address}, which means its own machine there; say --address with the name "
            "or IP address at which others reach this machine or a relay",
            code=_BAD_ADDRESS,
        )
    if _is_private(host):
        _tell(f"{address} is an address of a local network: only a guest in the same network reaches it.")
    return address


def _is_only_here(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _is_private(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _list(keyring: Keyring) -> int:
    from rich.table import Table

    from motet.cli.console import make_console

    issued, now = read_ledger(keyring.invites), time.time()
    if not issued:
        _tell(f"no invitations were given out from this machine ({keyring.invites})")
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("name", "state", "given out", "can be used until", "invitation key"):
        table.add_column(title, no_wrap=True)
    for one in issued:
        table.add_row(one.name, one.state(now), _moment(one.issued_s), _moment(one.not_after), one.invite_key[:8])
    make_console().print(table)
    return 0


def _revoke(inviter: Inviter, name: str) -> int:
    number = inviter.revoke(name, now_s=time.time())
    print(f'"{name}": {number} revoked' if number else f'"{name}": revoked before')
    _tell(
        f"Signed list: {inviter.keyring.revocations}. Nodes of this machine pass it on with their next heartbeats; if "
        "none runs here, the others learn of it when one does."
    )
    return 0


def _moment(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
