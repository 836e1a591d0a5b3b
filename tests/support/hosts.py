"""Machines for tests: network namespaces on a bridge, with cables that can be pulled and made slow.

with lan(3) as hosts:
    process = hosts[0].start([sys.executable, "node.py"])
    hosts[0].unplug()
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_counter = itertools.count()


def why_no_hosts() -> str | None:
    """Why there can be none here; None if there can."""
    if shutil.which("ip") is None:
        return "needs the command ip (iproute2)"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    name = f"motet-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"needs network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


@dataclass(frozen=True, slots=True)
class Host:
    """One machine: `address` is its own, `name` that of its namespace; its cable ends at a port of the bridge."""

    name: str
    address: str
    bridge: str
    port: str

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program there. `ip netns exec` becomes the program, so the process can be signalled by its pid."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *argv], **options)

    def run(self, *argv: str) -> str:
        """Run a program there to its end; its output."""
        return _run("ip", "netns", "exec", self.name, *argv)

    def unplug(self) -> None:
        """Pull the cable: nothing arrives any more, and nobody is told."""
        _run("ip", "-n", self.bridge, "link", "set", self.port, "down")

    def plug(self) -> None:
        """Put the cable back."""
        _run("ip", "-n", self.bridge, "link", "set", self.port, "up")

    def limit_downlink(self, mbit_per_s: float) -> None:
        """Make what arrives slow, as at home."""
        rate = f"{mbit_per_s:g}mbit"
        shape = ("rate", rate, "burst", "64kbit", "latency", "400ms")
        _run("tc", "-n", self.bridge, "qdisc", "replace", "dev", self.port, "root", "tbf", *shape)

    def num_bytes(self) -> tuple[int, int]:
        """Bytes received and sent since the machine was made, with all headers from Ethernet up."""
        received, sent = (int(self.run("cat", f"/sys/class/net/eth0/statistics/{way}_bytes")) for way in ("rx", "tx"))
        return received, sent


@contextmanager
def lan(num_hosts: int) -> Iterator[list[Host]]:
    """Machines that reach one another. Their names carry the pid of this process; all are gone afterwards."""
    stem = f"motet-{os.getpid()}-{next(_counter)}"
    bridge = f"{stem}-lan"
    hosts = [Host(f"{stem}-{i}", f"10.77.0.{i + 2}", bridge, f"port{i}") for i in range(num_hosts)]
    try:
        _run("ip", "netns", "add", bridge)
        _run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", bridge, "addr", "add", "10.77.0.1/24", "dev", "br0")
        _run("ip", "-n", bridge, "link", "set", "br0", "up")
        for host in hosts:
            _run("ip", "netns", "add", host.name)
            _run("ip", "-n", host.name, "link", "set", "lo", "up")
            peer = ("type", "veth", "peer", "name", "eth0", "netns", host.name)
            _run("ip", "-n", bridge, "link", "add", host.port, *peer)
            _run("ip", "-n", bridge, "link", "set", host.port, "master", "br0", "up")
            _run("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _run("ip", "-n", host.name, "link", "set", "eth0", "up")
        yield hosts
    finally:
        for name in [*(host.name for host in hosts), bridge]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
    return done.stdout
