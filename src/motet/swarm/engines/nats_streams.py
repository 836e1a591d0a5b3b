"""The two streams of a run at a NATS server: what they must hold, and how they come to be there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet.swarm.engines import nats_reasons
from motet.swarm.engines.nats_subjects import Subjects

MAX_MESSAGES_PER_ROUND = 256
"""Messages of one peer for one round that the server keeps; of more, the oldest go first."""

BEAT_TTL_S = 5.0
"""How long the server keeps a heartbeat, in seconds: whoever comes within that time knows at once who is there."""

SECONDS_PER_ROUND = 1800
"""A round is expected to last no longer. After `keep_rounds` times as long the server forgets a message."""

WIDEST_ROUNDS_BYTES = 2**31
"""Most bytes of disk that the rounds of a run may take at the server."""

_NOT_FOUND = 404
_NUM_CLUSTERED_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """What a stream of a run must hold.

    Attributes:
        name: of the stream.
        subjects: what it stores.
        storage: "file" or "memory".
        max_msgs_per_subject: messages kept under one subject.
        max_bytes: of the whole stream; -1 for no limit of its own.
        max_age_s: how long a message is kept, in seconds.
        max_msg_size: largest message in bytes.
    """

    name: str
    subjects: tuple[str, ...]
    storage: str
    max_msgs_per_subject: int
    max_bytes: int
    max_age_s: float
    max_msg_size: int

    def request(self, *, num_replicas: int) -> dict[str, object]:
        """Body of the request that creates the stream. Nobody may delete single messages or wipe it by a header."""
        age_ns = int(self.max_age_s * 1e9)
        return {
            "name": self.name,
            "subjects": list(self.subjects),
            "retention": "limits",
            "discard": "old",
            "storage": self.storage,
            "num_replicas": num_replicas,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "max_bytes": self.max_bytes,
            "max_age": age_ns,
            "max_msg_size": self.max_msg_size,
            "duplicate_window": min(age_ns, 1_000_000_000),
            "allow_direct": True,
            "allow_rollup_hdrs": False,
            "deny_delete": True,
            "deny_purge": True,
        }

    def shortfall(self, config: Mapping[str, object]) -> str | None:
        """In what an existing stream of this name falls short of these terms; None if it will do.

        Args:
            config: its configuration as the server tells it.
        """
        if set(_texts(config.get("subjects"))) != set(self.subjects):
            return f"subjects {_texts(config.get('subjects'))}, not {list(self.subjects)}"
        for key, wanted in (("retention", "limits"), ("discard", "old"), ("allow_direct", True)):
            if config.get(key, False) != wanted:
                return f"{key} = {config.get(key, False)}, not {wanted}"
        if self.max_msgs_per_subject == 1 and config.get("max_msgs_per_subject") != 1:
            return f"max_msgs_per_subject = {config.get('max_msgs_per_subject')}, not 1"
        numbers = {
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "max_bytes": self.max_bytes,
            "max_age": int(self.max_age_s * 1e9),
            "max_msg_size": self.max_msg_size,
        }
        for key, number in numbers.items():
            if _limit(config.get(key)) < _limit(number):
                return f"{key} = {config.get(key)}, less than {number}"
        return None


def stream_terms(subjects: Subjects, *, keep_rounds: int, max_message_bytes: int) -> tuple[StreamTerms, StreamTerms]:
    """The streams of a run: rounds and cards, on disk, so that they survive the server; heartbeats, in memory."""
    rounds = StreamTerms(
        name=subjects.rounds_stream,
        subjects=(subjects.every_roll, subjects.every_card),
        storage="file",
        max_msgs_per_subject=MAX_MESSAGES_PER_ROUND,
        max_bytes=min(keep_rounds * MAX_MESSAGES_PER_ROUND * max_message_bytes, WIDEST_ROUNDS_BYTES),
        max_age_s=keep_rounds * SECONDS_PER_ROUND,
        max_msg_size=max_message_bytes,
    )
    beats = StreamTerms(
        name=subjects.beats_stream,
        subjects=(subjects.every_beat,),
        storage="memory",
        max_msgs_per_subject=1,
        max_bytes=-1,
        max_age_s=BEAT_TTL_S,
        max_msg_size=max_message_bytes,
    )
    return rounds, beats


async def ensure_stream(
    client: Any, failures: tuple[type[Exception], ...], server: str, terms: StreamTerms, *, timeout_s: float
) -> None:
    """See that a stream is there and holds what it must. In a cluster three servers keep it, where there are three.

    Args:
        client: connected, of nats-py.
        failures: what it raises.
        server: its address.
        terms: of the stream.
        timeout_s: for each request, in seconds.

    Raises:
        SwarmUnreachable: no JetStream (E-LINK-14), other limits (E-LINK-16), or no stream to be had (E-LINK-17).
    """
    answer = await _call(client, failures, server, f"STREAM.INFO.{terms.name}", {}, timeout_s)
    if (answer.get("error") or {}).get("code") == _NOT_FOUND:
        for num_replicas in (_NUM_CLUSTERED_REPLICAS, 1):
            request = terms.request(num_replicas=num_replicas)
            answer = await _call(client, failures, server, f"STREAM.CREATE.{terms.name}", request, timeout_s)
            if "error" not in answer:
                return
    if (error := answer.get("error")) is not None:
        text, err_code = str(error.get("description")), error.get("err_code")
        if "jetstream not enabled" in text.lower():
            raise nats_reasons.no_jetstream(server, text)
        raise nats_reasons.stream_refused(server, terms.name, text, err_code)
    if (shortfall := terms.shortfall(answer["config"])) is not None:
        raise nats_reasons.other_stream(server, terms.name, shortfall)


async def _call(
    client: Any,
    failures: tuple[type[Exception], ...],
    server: str,
    operation: str,
    body: Mapping[str, object],
    timeout_s: float,
) -> dict[str, Any]:
    """The answer of the JetStream API."""
    data = json.dumps(body).encode() if body else b""
    try:
        answer = await client.request(f"$JS.API.{operation}", data, timeout=timeout_s)
    except failures as error:
        if "no responders" in str(error):
            raise nats_reasons.no_jetstream(server, "nobody answers its requests") from error
        raise
    decoded = json.loads(answer.data)
    return decoded if isinstance(decoded, dict) else {}


def _texts(value: object) -> list[str]:
    return sorted(str(item) for item in value) if isinstance(value, list) else []


def _limit(value: object) -> float:
    """A limit of a stream; zero and negative mean none."""
    return value if isinstance(value, int) and value > 0 else float("inf")
