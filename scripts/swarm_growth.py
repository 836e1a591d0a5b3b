"""How much a node of a swarm sends, receives and computes as the swarm grows: push against pull, without models.

    python scripts/swarm_growth.py                         # 4, 16, 64 and 256 nodes; a few minutes
    python scripts/swarm_growth.py --nodes 4 16 --rounds 5

All nodes live in this process, without threads: their steps are done in turn over `MemoryLink`, under a clock of ours
that counts a round as `--round-s` seconds. All sign, announce, send and answer as in a run. What a node costs is
measured at some of them, which also hear, verify, fetch and keep everything as in a run; the others are deaf, or this
machine would verify for hours what each of them would verify on a machine of its own.

Payloads are groups as they travel, of random tokens. On average a node sends as much as it receives.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from motet.records import Group, Rollout, SamplerInfo, encode_group
from motet.swarm.engines.memory_link import MemoryLink, MemoryNet
from motet.swarm.identity.credentials import Roster, plain_credential
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network import Clock, NetworkExchange, NetworkOptions

RUN_ID = bytes(range(16))
VOCAB_SIZE = 151_936
START_S = 1.7e9


@dataclass
class Time:
    """Seconds that pass when we say so."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self.now_s

    def unix(self) -> float:
        """Seconds since 1970."""
        return START_S + self.now_s


@dataclass(frozen=True)
class Cost:
    """What a node of a swarm costs, per round unless said otherwise.

    Attributes:
        num_nodes: in the swarm.
        kind: "push" or "pull".
        groups: of others that it got.
        received_bytes: of everything.
        beat_share: part of them that heartbeats and announcements are.
        cpu_s: of one core.
        held_bytes: by which the process grew for it from its start to the end, in all.
    """

    num_nodes: int
    kind: str
    groups: float
    received_bytes: float
    beat_share: float
    cpu_s: float
    held_bytes: float


class Deaf(MemoryLink):
    """A link on which nothing comes in."""

    def take_in(self, topic: str, message: bytes) -> None:
        """Do not hear."""
        del topic, message


def payloads_of(name: str, round: int, random: np.random.Generator, args: argparse.Namespace) -> list[bytes]:
    """Encoded groups of a node for a round, of random tokens."""
    sampler = SamplerInfo("Qwen/Qwen3-0.6B", round, 1.0, "9c1f00aa12de34f0")
    groups = []
    for number in range(args.groups):
        rollouts = [
            Rollout(
                random.integers(0, VOCAB_SIZE, args.tokens, dtype=np.uint32),
                -random.exponential(1.0, args.tokens).astype(np.float32),
                "length",
                float(random.integers(0, 2)),
            )
            for _ in range(args.group_size)
        ]
        groups.append(encode_group(Group(name, round, f"train/{number}", sampler, tuple(rollouts))))
    return groups


def build(
    names: Sequence[str], num_measured: int, net: MemoryNet, clock: Clock, limit: int | None
) -> tuple[list[NetworkExchange], list[MemoryLink]]:
    """Open exchanges, without threads, and their links; those behind the first `num_measured` are deaf."""
    nodes: list[NetworkExchange] = []
    links: list[MemoryLink] = []
    for number, name in enumerate(names):
        key = NodeKey.generate()
        is_deaf = number >= num_measured
        links.append(Deaf(net, name) if is_deaf else net.link(name))
        nodes.append(
            NetworkExchange(
                name,
                key=key,
                credential=plain_credential(name, key.public),
                roster=Roster(RUN_ID, authority=None, pins=dict.fromkeys(names)),
                run_id=RUN_ID,
                card={"task": "growth"},
                link=links[-1],
                options=NetworkOptions(
                    num_rounds=1_000_000,
                    max_foreign_groups=limit,
                    heartbeat_s=max(1.0, len(names) / 64) if is_deaf else 1.0,  # deaf, it cannot count the others
                ),
                threads=False,
                clock=clock,
            )
        )
        nodes[-1].open()
    return nodes, links


def settle(nodes: Sequence[NetworkExchange], num_measured: int) -> float:
    """Step all nodes until nothing moves; CPU seconds of those that are measured."""
    for node in nodes[num_measured:]:
        node.step()
    start_s, is_busy = time.process_time(), True
    while is_busy:
        is_busy = False
        for node in nodes[:num_measured]:
            is_busy |= node.step()
    return time.process_time() - start_s


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(num_nodes: int, *, limit: int | None, args: argparse.Namespace) -> Cost:
    """One swarm, for some rounds after all have met."""
    random = np.random.default_rng(7)
    names = [f"node{number:03d}" for number in range(num_nodes)]
    now = Time()
    net = MemoryNet(clock=now.monotonic)
    measured = min(args.measured, num_nodes)
    nodes, links = build(names, measured, net, Clock(now.monotonic, now.unix), limit)
    gc.collect()
    before_bytes = resident_bytes()
    while any(len(node.peers()) < num_nodes - 1 for node in nodes[:measured]):
        now.now_s += 1.0
        settle(nodes, measured)
    traffic = [link.traffic for link in links[:measured]]
    for one in traffic:
        one.received_bytes.clear()
    num_groups, cpu_s = 0, 0.0
    for round in range(args.rounds):
        made = {name: payloads_of(name, round, random, args) for name in names}
        for node in nodes[measured:]:
            node.publish(round, made[node.name])
        start_s = time.process_time()
        for node in nodes[:measured]:
            node.publish(round, made[node.name])
        for node in nodes[:measured]:
            num_groups += len(node.collect(round, deadline_s=600.0))
        cpu_s += time.process_time() - start_s
        for _ in range(int(args.round_s)):
            now.now_s += 1.0
            cpu_s += settle(nodes, measured)
    gc.collect()
    grown_bytes = resident_bytes() - before_bytes
    received = sum(sum(one.received_bytes.values()) for one in traffic)
    beats = sum(one.received_bytes["beat"] for one in traffic)
    for node in nodes:
        node._link.close()  # without goodbyes
    per = measured * args.rounds
    kind = "push" if limit is None else "pull"
    return Cost(
        num_nodes, kind, num_groups / per, received / per, beats / received, cpu_s / per, grown_bytes / measured
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--measured", type=int, default=8, help="nodes that are not deaf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-s", type=float, default=10.0, help="seconds that a round takes, for the heartbeats")
    parser.add_argument("--max-foreign-groups", type=int, default=64, help="of pull")
    parser.add_argument("--groups", type=int, default=8, help="of a node in a round")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24, help="of a completion")
    args = parser.parse_args()
    example = payloads_of("node000", 0, np.random.default_rng(7), args)
    print(f"Each node publishes {args.groups} groups of {args.group_size} x {args.tokens} tokens a round, "
          f"{sum(map(len, example)):,} bytes; a round takes {args.round_s:g} s.\n")  # fmt: skip
    print("| nodes | | groups got | received kB | of them heartbeats | CPU ms | memory MB |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for num_nodes in args.nodes:
        for limit in (None, args.max_foreign_groups):
            cost = measure(num_nodes, limit=limit, args=args)
            row = [f"{cost.num_nodes}", cost.kind, f"{cost.groups:.0f}", f"{cost.received_bytes / 1e3:.0f}",
                   f"{cost.beat_share:.0%}", f"{cost.cpu_s * 1e3:.0f}", f"{cost.held_bytes / 1e6:.1f}"]  # fmt: skip
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
