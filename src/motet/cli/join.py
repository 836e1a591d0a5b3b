"""`motet join TOKEN`: from an invitation to a node that takes part, on the guest's machine. Asks nothing.

The second use of an invitation on the same machine goes on with the same membership: same key, same run file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from motet.cli.doctor_checks import Case, Finding
from motet.cli.options import new_folder
from motet.cli.strangers import plain
from motet.config import NodeSettings, RunFile, dump_run_file, load_run_file
from motet.config.settings import RunSettings
from motet.errors import EnvironmentFault, MotetError, SwarmRefused, SwarmUnreachable, UsageError
from motet.journal import RunDir
from motet.journal.peers import SwarmStatus, read_status, status_path
from motet.swarm.identity.credentials import Credential, bind
from motet.swarm.identity.invitation import Invitation, decode
from motet.swarm.identity.keyring import Keyring
from motet.swarm.identity.keys import NodeKey, fingerprint, write_secret

_EXPIRED: Final = "E-INVITE-02"
_FIRST_LINE: Final = "# Written by `motet join`; the same invitation, or `motet node` with this file, goes on with it."
_LOOK_EVERY_S: Final = 0.5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "join",
        description="Take part in a swarm by an invitation (`motet invite`): checks this machine, makes a key, writes "
        "a run file, and runs the node. Used again on the same machine, it goes on where it was; on a second machine "
        "an invitation is refused.",
    )
    parser.add_argument("token", metavar="TOKEN", nargs="+", help="the invitation: motet1. and what follows")
    parser.add_argument("--model", metavar="M", help="model to train [the first of the host's that fits this machine]")
    parser.add_argument(
        "--name-dir", metavar="D", type=new_folder, default=Path(), help="folder for the run file NAME.toml [this one]"
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, print the run file, write nothing")
    parser.add_argument("--clean", action="store_true", help="delete an earlier run of this node first")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    invitation = read_invitation(" ".join(args.token))
    told = f"invited as {invitation.name}; the swarm is {fingerprint(invitation.authority)} (ask your host if it is)"
    print(told, file=sys.stderr)
    with ExitStack() as stack:
        run_name = _host_file(invitation).run.name
        real = Keyring.of_run(run_name)
        keyring = real
        if args.dry_run:
            keyring = Keyring(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        key = take_membership(invitation, real, keyring)
        path = args.name_dir / f"{invitation.name}.toml"
        run_file = guest_run_file(invitation, keyring, model=args.model or _earlier_model(path))
        preflight(Case(run_file, run_file.node, keyring), invitation, key, has_keys=keyring == real)
        if args.dry_run:
            print(dump_run_file(run_file), end="")
            return 0
        write_run_file(path, run_file)
        print(f"wrote {path}; to go on after a stop: motet node {path} --name {invitation.name}", file=sys.stderr)
    return _take_part(run_file, invitation.name, clean=args.clean)


def read_invitation(text: str) -> Invitation:
    """The invitation in a token; one that has expired only where this machine has used it before.

    Raises:
        UsageError: E-INVITE-01 to E-INVITE-04, it is damaged, expired, of another version, or forged.
    """
    try:
        return decode(text)
    except UsageError as error:
        if error.code != _EXPIRED:
            raise
        invitation = decode(text, now_s=0.0)
        if _known(invitation, Keyring.of_run(_host_file(invitation).run.name)) is None:
            raise
        return invitation


def take_membership(invitation: Invitation, real: Keyring, keyring: Keyring) -> NodeKey:
    """Key, credential and certificates of the guest, written where they are missing.

    Args:
        invitation: what was given.
        real: where the keys of the run lie on this machine.
        keyring: where to write; another place than `real` in a dry run.

    Raises:
        UsageError: E-KEY-01, the key that is there cannot be used.
    """
    name = invitation.name
    if keyring != real and real.node_key(name).exists():
        key = NodeKey.load(real.node_key(name))
        keyring.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(keyring.node_key(name), key.to_pem(), replace=True)
    else:
        key = NodeKey.load_or_create(keyring.node_key(name))
    credential = _known(invitation, real)
    if credential is None or credential.node_key != key.public:
        credential = bind(NodeKey.from_secret(invitation.secret), invitation.grant, key.public)
    write_secret(keyring.credential(name), msgspec.msgpack.encode(credential), replace=True)
    if invitation.tls is not None:
        invitation.tls.write(keyring.tls(name))
    return key


def guest_run_file(invitation: Invitation, keyring: Keyring, *, model: str | None) -> RunFile:
    """The host's run file with the guest as its only node, which takes the share of a round that every node takes.

    Where results go, what listens and who is told of the run is not for a host to say.

    Args:
        invitation: what was given.
        keyring: where the guest's certificates lie.
        model: which model; None: the first of the host's that fits this machine.

    Raises:
        UsageError: E-JOIN-01, no model to take; or what there is to say of `model`.
        EnvironmentFault: what there is to say of `model`.
    """
    host = _host_file(invitation)
    vertical = host.swarm.collaboration == "vertical" and not host.trains_alone
    share = max(1, host.rollout.prompts_per_round // len(host.node)) if vertical else host.rollout.prompts_per_round
    tls = str(keyring.tls(invitation.name)) if invitation.tls is not None else None
    swarm = {"connect": invitation.addresses, "listen": (), "authority": fingerprint(invitation.authority), "tls": tls}
    run_file = host.model_copy(
        update={
            "run": host.run.model_copy(update={"dir": RunSettings.model_fields["dir"].default, "trackers": ()}),
            "rollout": host.rollout.model_copy(update={"prompts_per_round": share}),
            "swarm": host.swarm.model_copy(update=swarm),
        }
    )
    if model is not None:
        return _with_node(run_file, NodeSettings(name=invitation.name, model=model))
    return _with_node(run_file, _first_that_fits(run_file, invitation.name))


def preflight(case: Case, invitation: Invitation, key: NodeKey, *, has_keys: bool) -> None:
    """The checks of `motet doctor`, told on stderr.

    Args:
        case: the run, with the guest as its node.
        invitation: what was given.
        key: of the guest.
        has_keys: False in a dry run, in which there are none to look at.

    Raises:
        SwarmUnreachable: E-JOIN-03, none of the addresses answers.
        SwarmRefused: E-JOIN-04, another machine takes part with this invitation; E-JOIN-05, another task.
        EnvironmentFault: E-JOIN-02, something else here must be mended first.
    """
    from motet.cli.doctor import Printer, examine
    from motet.cli.doctor_checks import QUICK, check_keys
    from motet.cli.doctor_models import MODELS
    from motet.cli.doctor_network import ADDRESS, Ears, check_addresses, listen_for_peers

    printer = Printer(stderr=True)
    problems: list[Finding] = []

    def told(findings: Iterator[Finding]) -> None:
        for finding in findings:
            printer.show(finding)
            problems.extend([finding] if finding.verdict == "problem" else [])

    told(_code_of_the_task(case.run))
    told(examine(case, [check for check in (*QUICK, check_addresses) if has_keys or check is not check_keys]))
    if any(finding.subject == ADDRESS for finding in problems):
        raise SwarmUnreachable(
            f"none of the swarm's addresses answers: {', '.join(invitation.addresses)}; the lines above say why. "
            "Ask your host whether the swarm runs, and try again with the same invitation",
            code="E-JOIN-03",
        )
    ears = Ears(case)
    told(listen_for_peers(case, ears))
    _check_namesake(ears.peers.get(invitation.name), key)
    told(examine(case, MODELS))
    if problems:
        raise EnvironmentFault(
            f"{len(problems)} of the lines above say problem, the first about {problems[0].subject}; mend that, and "
            "use the same invitation again",
            code="E-JOIN-02",
        )
    _check_task(case.run, invitation)


def write_run_file(path: Path, run_file: RunFile) -> None:
    """Write the guest's run file.

    Raises:
        UsageError: E-JOIN-06, another file is there.
    """
    if path.exists() and not _is_ours(path):
        raise UsageError(
            f"{path}: a file that `motet join` did not write; move it, or say --name-dir with another folder",
            code="E-JOIN-06",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{_FIRST_LINE}\n{dump_run_file(run_file)}", encoding="utf-8")


def welcome(status: SwarmStatus, run_file: RunFile) -> str | None:
    """What the guest is told once it hears somebody; None before."""
    live = [peer.name for peer in status.peers if peer.state == "live"]
    if not live:
        return None
    round = 0 if status.swarm_round is None else status.swarm_round + 1
    names = plain(", ".join(live[:3])) + (", ..." if len(live) > 3 else "")
    return (
        f"you are in: {len(live)} {'peer' if len(live) == 1 else 'peers'} ({names}), round {round} of "
        f"{run_file.run.rounds}, you generate for {run_file.rollout.prompts_per_round} prompts a round"
    )


def _take_part(run_file: RunFile, name: str, *, clean: bool) -> int:
    from motet.cli.node import node_dir, run_node

    with _greeting(run_file, RunDir(node_dir(run_file, name)), name):
        try:
            return run_node(run_file, name, clean=clean)
        except SwarmRefused as error:
            raise SwarmRefused(
                f"{error}. An invitation lets in one machine, the first that uses it: if that was another one, "
                "ask your host for an invitation of your own",
                code=error.code,
            ) from error


@contextmanager
def _greeting(run_file: RunFile, run_dir: RunDir, name: str, *, said: threading.Event | None = None) -> Iterator[None]:
    """Says that the guest is in, once the status that its node writes says so, and then sets `said`."""
    ends, began_s = threading.Event(), time.time()

    def look() -> None:
        while not ends.wait(_LOOK_EVERY_S):
            status = read_status(status_path(run_dir, name))
            line = welcome(status, run_file) if status is not None and status.at_s >= began_s else None
            if line is not None:
                print(line, file=sys.stderr, flush=True)
                if said is not None:
                    said.set()
                return

    thread = threading.Thread(target=look, name="greeting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _host_file(invitation: Invitation) -> RunFile:
    """The run file in the invitation. Raises UsageError as for any run file: it may be of a newer motet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "invitation.toml"
        path.write_text(invitation.run_file, encoding="utf-8")
        try:
            return load_run_file(path)
        except UsageError as error:
            told = str(error).replace(str(path), "run file of the invitation")
            raise UsageError(told, code=error.code) from None


def _known(invitation: Invitation, keyring: Keyring) -> Credential | None:
    """What this machine made of this very invitation before."""
    try:
        credential = msgspec.msgpack.decode(keyring.credential(invitation.name).read_bytes(), type=Credential)
    except (OSError, ValueError):
        return None
    grant = credential.grant
    return credential if grant is not None and grant.invite_key == invitation.grant.invite_key else None


def _with_node(run_file: RunFile, node: NodeSettings) -> RunFile:
    """The run file with this node alone; settings that contradict each other are told."""
    content = run_file.model_dump(exclude_none=True) | {"node": [node.model_dump(exclude_none=True)]}
    return RunFile.model_validate(content)


def _first_that_fits(run_file: RunFile, name: str) -> NodeSettings:
    """The first model of the host's nodes that this machine has the memory for."""
    from motet.cli.doctor_models import fits, memory_of
    from motet.cli.guest_file import ELSEWHERE

    why_not = []
    for there in sorted(run_file.node, key=lambda there: there.name != name):  # under its own name first
        if there.model == ELSEWHERE:
            continue
        node = NodeSettings(name=name, model=there.model, revision=there.revision)
        try:
            estimate = memory_of(run_file, node)
        except MotetError as error:
            why_not.append(str(error))
            continue
        if fits(node, estimate):
            return node
        why_not.append(f"{node.model} needs {estimate.describe()}, more than is free")
    reasons = "; ".join(dict.fromkeys(why_not)) or "your host trains models that are only there"
    raise UsageError(
        f"no model to take: {reasons}. Say --model with one of your own, of the same tokenizer", code="E-JOIN-01"
    )


def _earlier_model(path: Path) -> str | None:
    """The model of the run file that an earlier join wrote here."""
    return load_run_file(path).node[0].model if path.is_file() and _is_ours(path) else None


def _is_ours(path: Path) -> bool:
    try:
        return path.read_text(encoding="utf-8").startswith(_FIRST_LINE)
    except (OSError, UnicodeDecodeError):
        return False


def _code_of_the_task(run_file: RunFile) -> Iterator[Finding]:
    """A guest should know which code the host's run file calls; it is none that came with the invitation."""
    task = run_file.task
    named = [text for text in (task.name, task.ood, task.reward) if text is not None and _is_code(text)]
    if named:
        what = f"the run calls code of this machine: {', '.join(named)}"
        yield Finding("warning", "task", what, "go on only if you know what it is")


def _is_code(text: str) -> bool:
    return ":" in text and not text.startswith(("gym:", "gsm8k:", "math500:"))


def _check_namesake(other: Credential | None, key: NodeKey) -> None:
    if other is not None and other.node_key != key.public:
        raise SwarmRefused(
            f"another machine takes part as {other.name} already: an invitation lets in one machine, the first that "
            "uses it. Go on there, or ask your host to revoke it and to give you another",
            code="E-JOIN-04",
        )


def _check_task(run_file: RunFile, invitation: Invitation) -> None:
    from motet.tasks import load_task

    found = load_task(**run_file.task.model_dump()).fingerprint
    if found != invitation.task:
        raise SwarmRefused(
            f"task {run_file.task.name} is another one here (fingerprint {found[:12]}) than in the swarm "
            f"({plain(invitation.task, 12)}): ask your host for the same files and versions",
            code="E-JOIN-05",
        )
