"""Bytes on the wire for a token that a node sends: groups, envelope, signature, heartbeats, TLS, TCP/IP and Ethernet.

    python scripts/swarm_wire.py            # Linux, as root: two machines are network namespaces

Two nodes exchange rounds of random groups through motet's own exchange over zenoh. What leaves each machine's network
card is read from the system, at packet sizes of a real network (segmentation offload off).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from hosts import Host, lan  # noqa: E402

from motet.bench.wire import draw_groups  # noqa: E402
from motet.records import encode_group  # noqa: E402
from motet.swarm.engines.zenoh_link import ZenohLink  # noqa: E402
from motet.swarm.identity.certificates import create_ca, issue_leaf  # noqa: E402
from motet.swarm.identity.credentials import Roster, plain_credential  # noqa: E402
from motet.swarm.identity.keys import NodeKey  # noqa: E402
from motet.swarm.network import NetworkExchange, NetworkOptions  # noqa: E402

NAMES = ("ann", "bob")
RUN_ID = bytes(range(16))
CASES = [(16, 12, 256), (16, 24, 1_024), (262_144, 200, 8_192), (262_144, 1_000, 65_536)]
"""Size of the vocabulary, tokens of a completion, tokens of a node in a round."""


def be_node(name: str, listen: str, connect: str, tls: str, case: int, rounds: int, round_s: float) -> None:
    """One node: `rounds` rounds, one each `round_s` seconds."""
    key = NodeKey.generate()
    scheme = "tls" if tls else "tcp"
    link = ZenohLink(
        name,
        RUN_ID.hex(),
        listen=[f"{scheme}/{listen}:7447"] if listen else [],
        connect=[f"{scheme}/{connect}:7447"] if connect else [],
        tls=Path(tls) if tls else None,
        open_timeout_s=30.0,
    )
    exchange = NetworkExchange(
        name,
        key=key,
        credential=plain_credential(name, key.public),
        roster=Roster(RUN_ID, authority=None, pins=dict.fromkeys(NAMES)),
        run_id=RUN_ID,
        card={"case": str(case)},
        link=link,
        options=NetworkOptions(num_rounds=rounds),
    )
    vocabulary, completion, tokens = CASES[case]
    groups = draw_groups(vocabulary, completion, num_tokens=tokens, seed=NAMES.index(name))
    payloads = [encode_group(group) for group in groups]
    num_tokens = sum(group.num_tokens for group in groups)
    exchange.open()
    exchange.begin(0)
    assert not exchange.gather(NAMES, deadline_s=60.0)
    before = sent_bytes()
    start, came = time.monotonic(), 0
    for round in range(rounds):
        exchange.publish(round, payloads)
        came += len(exchange.collect(round, deadline_s=60.0))
        time.sleep(max(0.0, start + (round + 1) * round_s - time.monotonic()))
    sent = sent_bytes() - before
    print(json.dumps({"sent": sent, "tokens": num_tokens * rounds, "groups": came, "of": len(payloads) * rounds}))
    exchange.close()


def sent_bytes() -> int:
    """Bytes that have left the network card of this machine."""
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def measure(case: int, *, tls: bool, rounds: int, round_s: float) -> tuple[float, float]:
    """Bytes for a token on the wire, and in the encoded groups alone."""
    with tempfile.TemporaryDirectory() as folder, lan(2) as hosts:
        for host in hosts:
            host.run("ip", "link", "set", "eth0", "gso_max_size", "1500", "gso_max_segs", "1")
        if tls:
            create_ca(Path(folder) / "ca", name="measure")
            for name, host in zip(NAMES, hosts, strict=True):
                issue_leaf(Path(folder) / "ca", name, [host.address]).write(Path(folder) / name)
        processes = [
            start(host, name, hosts, folder if tls else "", case, rounds, round_s)
            for name, host in zip(NAMES, hosts, strict=True)
        ]
        said = [json.loads(process.communicate()[0]) for process in processes]
    assert all(one["groups"] == one["of"] for one in said), said
    vocabulary, completion, tokens = CASES[case]
    groups = draw_groups(vocabulary, completion, num_tokens=tokens, seed=0)
    alone = sum(len(encode_group(group)) for group in groups) / sum(group.num_tokens for group in groups)
    return sum(one["sent"] for one in said) / sum(one["tokens"] for one in said), alone


def start(
    host: Host, name: str, hosts: list[Host], folder: str, case: int, rounds: int, round_s: float
) -> subprocess.Popen[str]:
    """The process of a node on its machine; the first one listens."""
    listen, connect = (host.address, "") if name == NAMES[0] else ("", hosts[0].address)
    tls = f"{folder}/{name}" if folder else ""
    arguments = ["--node", name, listen, connect, tls, str(case), str(rounds), str(round_s)]
    return host.start([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Print a table, or be one of its nodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--round-s", type=float, default=1.0, help="seconds of a round; heartbeats go on meanwhile")
    parser.add_argument("--node", nargs=7, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.node:
        name, listen, connect, tls, case, rounds, round_s = args.node
        be_node(name, listen, connect, tls, int(case), int(rounds), float(round_s))
        return
    print("| vocabulary | completion | tokens of a node in a round | groups alone | tcp | tls |")
    print("|---|---|---|---|---|---|")
    for case, (vocabulary, completion, tokens) in enumerate(CASES):
        tcp, alone = measure(case, tls=False, rounds=args.rounds, round_s=args.round_s)
        tls_, _ = measure(case, tls=True, rounds=args.rounds, round_s=args.round_s)
        print(f"| {vocabulary:,} | {completion} | {tokens:,} | {alone:.2f} | {tcp:.2f} | {tls_:.2f} |", flush=True)


if __name__ == "__main__":
    main()
