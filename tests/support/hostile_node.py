"""A program that is no node of motet but speaks like one: a stranger's process on a real link, and what it does.

    groups   takes part under a member's name, and publishes hostile groups of every kind, round after round
    bytes    sends broken, forged, foreign and replayed messages under everybody's topics
    flood    sends as fast as it can, for a while

What it knows, anybody could: the run file, and what goes over the network.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hostile import ATTACKS, Target
from patience import wait_until

from motet.records import Group, WireLimits, decode_group
from motet.swarm.assignment import Assignment
from motet.swarm.engines.zenoh_link import ZenohLink
from motet.swarm.identity.credentials import Roster, plain_credential
from motet.swarm.identity.envelope import Envelope, EnvelopeError, Kind, open_envelope, seal, unpack_payloads
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network import NetworkExchange, NetworkOptions
from motet.swarm.network.card import decode_card
from motet.swarm.network.membership import decode_beat, encode_beat

_MAX_BYTES = 10_000_000
_LIMITS = WireLimits(
    max_payload_bytes=_MAX_BYTES, max_group_size=1024, max_completion_tokens=10_000, max_name_bytes=1000
)
_A_ROUND = 6
_ASSIGNED = 2
_TARGET = Target("ann", "bob", unassigned="train/0", vocab_size=100_000, end=1, max_new_tokens=8)


@contextmanager
def hostile_node(what: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start it; it ends by itself, or with the block."""
    argv = [sys.executable, str(Path(__file__)), json.dumps({"what": what, **options})]
    folders = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": folders}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


class Ear:
    """What goes over the network."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._lock = threading.Lock()

    def __call__(self, topic: str, message: bytes) -> None:
        with self._lock:
            self.heard = [*self.heard[-400:], (topic, message)]

    def envelopes(self, kind: Kind) -> list[Envelope]:
        """The messages of a kind."""
        opened = (open_envelope(message, max_bytes=_MAX_BYTES)[0] for _, message in list(self.heard))
        return [envelope for envelope in opened if envelope.kind == kind]

    def groups(self) -> list[Group]:
        """Groups of others."""
        found = []
        for envelope in self.envelopes(Kind.ROLL):
            with suppress(EnvelopeError, ValueError):
                found += [decode_group(payload, _LIMITS) for payload in unpack_payloads(envelope.body)]
        return found


class Hostile:
    """The process.

    Args:
        port: at which the nodes of the machine meet.
        run_id: in hex.
        name: under which it takes part.
        victim: a node that is there.
        count: messages.
        seconds: of the flood.
        num_prompts: of the task, for training.
    """

    def __init__(
        self,
        *,
        port: int,
        run_id: str,
        name: str,
        victim: str,
        count: int = 0,
        seconds: float = 0.0,
        num_prompts: int = 0,
    ) -> None:
        self._port, self._run_id, self._name, self._victim = port, run_id, name, victim
        self._count, self._seconds, self._num_prompts = count, seconds, num_prompts
        self._random = random.Random(5)
        self._key = NodeKey.generate()
        self._ear = Ear()
        self._link = ZenohLink(f"{name}-ear", run_id, embedded_port=port)
        self._link.open(inbox=self._ear, answer=lambda _: [], pushed=True)

    def groups(self) -> dict[str, int]:
        """Publish hostile groups under its own name; how many of each kind."""
        wait_until(lambda: len(self._ear.groups()) >= 4, "groups of others")
        honest = [dataclasses.replace(group, peer=self._name) for group in self._ear.groups()]
        messages = self._link.fetch(f"card/{self._victim}", timeout_s=10.0)
        card = decode_card(open_envelope(messages[0], max_bytes=_MAX_BYTES)[0].body)
        assert card is not None
        run_id = bytes.fromhex(self._run_id)
        node = NetworkExchange(
            self._name,
            key=self._key,
            credential=plain_credential(self._name, self._key.public),
            roster=Roster(run_id, authority=None, pins={self._victim: None}),
            run_id=run_id,
            card=card,
            link=ZenohLink(self._name, self._run_id, embedded_port=self._port),
            options=NetworkOptions(num_rounds=10**6, keep_rounds=250, max_message_bytes=_MAX_BYTES),
        )
        node.open()
        wait_until(lambda: self._victim in node.peers(), "the victim")
        assignment = Assignment(0, [self._name], _ASSIGNED, 4, self._num_prompts, is_open=True)
        kinds = [kind for kind in ATTACKS if kind != "too-large"]
        order = [kinds[number % len(kinds)] for number in range(self._count)]
        self._random.shuffle(order)
        first = max(envelope.round for envelope in self._ear.envelopes(Kind.ROLL)) + 2
        node.begin(first)
        for start in range(0, self._count, _A_ROUND):
            round = first + start // _A_ROUND
            prompts = [ask.prompt_id for ask in assignment.plan(self._name, round)]
            groups = [
                dataclasses.replace(self._random.choice(honest), round=round, prompt_id=self._random.choice(prompts))
                for _ in order[start : start + _A_ROUND]
            ]
            payloads = [
                ATTACKS[kind].payload(group, _TARGET)
                for kind, group in zip(order[start : start + _A_ROUND], groups, strict=True)
            ]
            node.publish(round, payloads)
        last = first + self._count // _A_ROUND
        wait_until(
            lambda: max(envelope.round for envelope in self._ear.envelopes(Kind.ROLL)) > last, "the rounds gone by", 200
        )
        node.close()
        return {kind: order.count(kind) for kind in kinds}

    def bytes(self) -> dict[str, int]:
        """Send messages that are none, or not the sender's to send; how many of each kind."""
        wait_until(lambda: len(self._ear.heard) >= 20, "messages of others")
        wait_until(lambda: self._ear.envelopes(Kind.BEAT), "heartbeats")
        kinds = [name.removeprefix("_send_") for name in dir(self) if name.startswith("_send_")]
        sent = dict.fromkeys(kinds, 0)
        for number in range(self._count):
            kind = kinds[number % len(kinds)]
            topic, message = self._random.choice(self._ear.heard)
            self._link.send(*getattr(self, f"_send_{kind}")(topic, message))
            sent[kind] += 1
            time.sleep(0.002)  # an outbox drops what comes too fast
        return sent

    def flood(self) -> dict[str, int]:
        """Send as fast as it can."""
        wait_until(lambda: len(self._ear.heard) >= 20, "messages of others")
        junk = os.urandom(50_000)
        until_s, number = time.monotonic() + self._seconds, 0
        while time.monotonic() < until_s:
            name = self._random.choice([self._name, self._victim, "nobody"])
            topic, message = self._random.choice(
                [
                    (f"beat/{name}", junk[: self._random.randrange(1000)]),
                    (f"roll/{name}/{number}", junk),
                    self._random.choice(self._ear.heard),
                ]
            )
            self._link.send(topic, message)
            number += 1
            if number % 16 == 0:
                time.sleep(0.001)
        return {"messages": number}

    def close(self) -> None:
        """Leave."""
        self._link.close()

    def _send_noise(self, topic: str, message: bytes) -> tuple[str, bytes]:
        return topic, self._random.randbytes(len(message))

    def _send_cut(self, topic: str, message: bytes) -> tuple[str, bytes]:
        return topic, message[: self._random.randrange(len(message))]

    def _send_flipped(self, topic: str, message: bytes) -> tuple[str, bytes]:
        position = self._random.randrange(len(message))
        return topic, message[:position] + bytes([message[position] ^ 1]) + message[position + 1 :]

    def _send_longer(self, topic: str, message: bytes) -> tuple[str, bytes]:
        return topic, message + b"\0" * 7

    def _send_large(self, topic: str, message: bytes) -> tuple[str, bytes]:
        return topic, message[:8] + bytes(1_500_000)

    def _send_replayed(self, topic: str, message: bytes) -> tuple[str, bytes]:
        return topic, message

    def _send_moved(self, topic: str, message: bytes) -> tuple[str, bytes]:
        other = {"ann": "bob", "bob": "cid", "cid": "ann"}
        kind, peer, *rest = topic.split("/")
        return "/".join([kind, other.get(peer, peer), *rest]), message

    def _send_protocol(self, topic: str, message: bytes) -> tuple[str, bytes]:
        return topic, message[:4] + b"\x02\x00" + message[6:]

    def _send_odd_topic(self, _: str, message: bytes) -> tuple[str, bytes]:
        odd = [f"roll/{self._victim}/-1", f"roll/{self._victim}/1e9", f"roll/{self._victim}/{'9' * 40}", "beat/%00"]
        return self._random.choice(odd), message

    def _send_forged(self, topic: str, message: bytes) -> tuple[str, bytes]:
        envelope = open_envelope(message, max_bytes=_MAX_BYTES)[0]
        return topic, seal(dataclasses.replace(envelope, seq=envelope.seq + 1000), self._key)

    def _send_taken_over(self, *_: object) -> tuple[str, bytes]:
        envelope = self._random.choice(self._ear.envelopes(Kind.BEAT))
        beat = decode_beat(envelope.body)
        assert beat is not None
        fields = {name: getattr(beat, name) for name in beat.__struct_fields__}
        credential = plain_credential(envelope.peer, self._key.public)
        body = encode_beat(type(beat)(**{**fields, "credential": credential, "leaving": True}))
        return f"beat/{envelope.peer}", seal(dataclasses.replace(envelope, seq=10**9, body=body), self._key)

    def _send_stranger(self, *_: object) -> tuple[str, bytes]:
        envelope = self._random.choice(self._ear.envelopes(Kind.BEAT))
        name = f"x{self._random.randrange(10**6)}"
        beat = decode_beat(envelope.body)
        assert beat is not None
        fields = {field: getattr(beat, field) for field in beat.__struct_fields__}
        body = encode_beat(type(beat)(**{**fields, "credential": plain_credential(name, self._key.public)}))
        return f"beat/{name}", seal(dataclasses.replace(envelope, peer=name, body=body), self._key)

    def _send_foreign_run(self, topic: str, message: bytes) -> tuple[str, bytes]:
        envelope = open_envelope(message, max_bytes=_MAX_BYTES)[0]
        return topic, seal(dataclasses.replace(envelope, run_id=secrets.token_bytes(16)), self._key)


def main() -> None:
    options = json.loads(sys.argv[1])
    what = options.pop("what")
    process = Hostile(**options)
    sent = getattr(process, what)()
    sys.stdout.write(json.dumps(sent) + "\n")
    sys.stdout.flush()
    process.close()


if __name__ == "__main__":
    main()
