"""A program with one `ZenohLink` or relay, driven by JSON lines, and what drives it: for tests of several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from patience import wait_until

DEADLINE_S = 40.0


class Program:
    """The other end: starts the program, here or on a host of `hosts.lan`, and talks to it."""

    def __init__(self, name: str, *, host: Any = None, run: str = "ab12", pushed: bool = True, **options: Any) -> None:
        self.name = name
        argv = [
            sys.executable,
            str(Path(__file__)),
            json.dumps({"name": name, "run": run, "pushed": pushed, **options}),
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(argv, **pipes) if host is None else host.start(argv, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Let it do something; its answer."""
        self.process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{self.name} has ended"
        return json.loads(line)

    def open(self, **arguments: Any) -> Self:
        """Open its link; an assertion if that fails."""
        answer = self.ask("open", **arguments)
        assert answer == "open", answer
        return self

    def send_until(self, receiver: Program, topic: str, *, size: int = 100, deadline_s: float = DEADLINE_S) -> float:
        """Send again and again until the other has it once more; seconds that took."""
        before, began = receiver.num_received(topic), time.monotonic()
        while receiver.num_received(topic) == before:
            assert time.monotonic() - began < deadline_s, f"{receiver.name} never got {topic}"
            self.ask("send", topic=topic, size=size)
            time.sleep(0.05)
        return time.monotonic() - began

    def num_received(self, topic: str) -> int:
        return self.ask("received").get(topic, 0)

    def wait_received(self, topic: str, count: int, *, deadline_s: float = DEADLINE_S) -> None:
        wait_until(lambda: self.num_received(topic) >= count, f"{self.name} got {count} of {topic}", deadline_s)

    def kill(self) -> None:
        """End it at once, as `kill -9` does. Harmless when repeated."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class _Node:
    def __init__(self, options: dict[str, Any]) -> None:
        from motet.swarm.engines.zenoh_link import ZenohLink

        self._name = options.pop("name")
        self._pushed = options.pop("pushed")
        tls = options.pop("tls", None)
        self._link = ZenohLink(self._name, options.pop("run"), tls=None if tls is None else Path(tls), **options)
        self._received: Counter[str] = Counter()
        self._held: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()

    def open(self) -> str:
        self._link.open(inbox=self._take, answer=lambda topic: self._held.get(topic, []), pushed=self._pushed)
        return "open"

    def send(self, topic: str, size: int) -> None:
        self._link.send(topic, os.urandom(size))

    def hold(self, topic: str, sizes: list[int]) -> None:
        self._held[topic] = [os.urandom(size) for size in sizes]

    def fetch(self, topic: str, timeout_s: float) -> list[int]:
        return sorted(map(len, self._link.fetch(topic, timeout_s=timeout_s)))

    def received(self) -> dict[str, int]:
        with self._lock:
            return dict(self._received)

    def neighbours(self) -> list[list[str | None]]:
        return [[neighbour.address, neighbour.certificate_name] for neighbour in self._link.neighbours()]

    def fault(self) -> str | None:
        return self._link.fault()

    def reopen(self) -> str:
        """As its supervisor does: close and open anew when there is a fault."""
        self._link.close()
        return self.open()

    def close(self) -> str:
        self._link.close()
        return "closed"

    def _take(self, topic: str, _: bytes) -> None:
        with self._lock:
            self._received[topic] += 1


class _Relay:
    def __init__(self, options: dict[str, Any]) -> None:
        from motet.swarm.engines.zenoh_relay import ZenohRelay

        for unused in ("name", "pushed", "relay"):
            options.pop(unused)
        tls = options.pop("tls", None)
        options["run_id_hex"] = options.pop("run")
        self._relay = ZenohRelay(options.pop("listen"), tls=None if tls is None else Path(tls), **options)

    def open(self) -> str:
        self._relay.open()
        return "open"

    def addresses(self) -> list[str]:
        return self._relay.addresses()

    def guests(self) -> list[list[Any]]:
        return [[guest.certificate_name, guest.is_relay] for guest in self._relay.guests()]

    def close(self) -> str:
        self._relay.close()
        return "closed"


def main() -> None:
    from motet.errors import MotetError

    options = json.loads(sys.argv[1])
    thing = _Relay(options) if options.get("relay") else _Node(options)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(thing, request.pop("verb"))(**request)
        except MotetError as error:
            answer = {"error": str(error), "code": error.code}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    thing.close()


if __name__ == "__main__":
    main()
