"""One connection of a `NatsLink` to one server: made, used and thrown away. Runs on the link's event loop.

The client comes from outside, with the errors that it raises: only `nats_link` knows the package.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from motet.errors import MotetError
from motet.swarm.engines import nats_reasons
from motet.swarm.engines.links import Answer, Inbox, Neighbour
from motet.swarm.engines.nats_outbox import Outbox, Outgoing
from motet.swarm.engines.nats_streams import StreamTerms, ensure_stream
from motet.swarm.engines.nats_subjects import Subjects

_PING_S = 2.0
_MAX_UNANSWERED_PINGS = 2  # so a dead connection is noticed within 6 s
_WATCH_S = 1.0
_ACK_S = 5.0
_MAX_TRIES = 3
_MAX_IN_FLIGHT = 8
_MEND_S = 2.0
_CLOSE_S = 1.0
_BATCH = 256
_MAX_FETCH_BYTES = 64 * 2**20
_MAX_BACKLOG_BYTES = 64 * 2**20
_MAX_ASKS = 256
_MAX_TOPIC_BYTES = 512
_INBOXES = "_INBOX."
_END = "Motet-End"
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')

Take = Callable[[str, bytes], bool]
"""Takes (subject, message) of something fetched; False says that it is enough."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a session needs to know of its node and run.

    Attributes:
        name: of the node.
        subjects: of the run.
        tls: what to show and believe; None where the address alone decides.
        rounds: the stream of rounds and cards.
        beats: the stream of heartbeats.
        max_message_bytes: largest message that the run sends.
        inbox: takes what arrives.
        answer: gives this node's own messages; None for one that only listens.
        pushed: whether rounds are delivered unasked.
        count: takes the reason of each message that is dropped.
    """

    name: str
    subjects: Subjects
    tls: ssl.SSLContext | None
    rounds: StreamTerms
    beats: StreamTerms
    max_message_bytes: int
    inbox: Inbox
    answer: Answer | None
    pushed: bool
    count: Callable[[str], None]


class Session:
    """One connection to one server.

    Args:
        terms: of the node and its run.
        client: an unused client of nats-py.
        failures: what it raises.
        outbox: what waits to be sent; it outlives the session.
    """

    def __init__(self, terms: Terms, client: Any, failures: tuple[type[Exception], ...], outbox: Outbox) -> None:
        self._terms = terms
        self._client = client
        self._failures = failures
        self._outbox = outbox
        self._server = ""
        self._is_connecting = True
        self._is_ready = False
        self._first_error: Exception | None = None
        self._violations: deque[str] = deque(maxlen=64)
        self._window = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._mending = asyncio.Lock()
        self._mended_s = float("-inf")
        self.wake = asyncio.Event()
        self.gone = asyncio.Event()
        self.why = "the connection is lost"

    async def open(self, server: str, *, timeout_s: float) -> None:
        """Connect, see that the streams are there, and listen.

        Raises:
            MotetError: with the reason; also when `timeout_s` is over.
        """
        self._server = server
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect(server, timeout_s)
                await self._prepare(timeout_s)
        except self._failures as error:
            if self._violations:
                raise nats_reasons.not_permitted(server, self._violations[0]) from error
            raise nats_reasons.refusal(server, self._first_error or error, timeout_s) from error
        if self._violations:
            raise nats_reasons.not_permitted(server, self._violations[0])
        self._is_ready = True

    async def serve(self) -> None:
        """Send what waits, until the connection is gone."""
        watching = asyncio.create_task(self._watch())
        try:
            while not self.gone.is_set():
                outgoing = self._outbox.take()
                if outgoing is not None:
                    await self._send(outgoing)
                    continue
                self.wake.clear()
                await self.wake.wait()
        finally:
            watching.cancel()

    async def drain(self) -> None:
        """Send what still waits, and see it arrive."""
        while not self.gone.is_set() and (outgoing := self._outbox.take()) is not None:
            await self._send(outgoing)
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        with suppress(*self._failures):
            await self._client.flush()

    async def close(self) -> None:
        """Hang up. What was under way goes back to the outbox."""
        self.lose("closed")
        for task in self._in_flight:
            task.cancel()
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=_CLOSE_S)
        if (writer := self._writer()) is None:
            return  # it never came to a connection
        with suppress(*self._failures):
            await asyncio.wait_for(self._client.close(), _CLOSE_S)
        writer.transport.abort()  # what `close` of the client cannot get rid of when the other end hangs
        await asyncio.sleep(0)

    async def fetch(self, topic: str, found: dict[bytes, None], *, timeout_s: float, also_ask: bool) -> None:
        """Put the messages under a topic into `found`, from the stream; from their sender if it has none of them.

        Args:
            topic: of somebody else's.
            found: takes the messages, each once, in the order in which they were stored.
            timeout_s: for all of it, in seconds.
            also_ask: ask the sender in any case.
        """
        room = _MAX_FETCH_BYTES

        def take(_: str, message: bytes) -> bool:
            nonlocal room
            room -= len(message)
            if room >= 0:
                found[message] = None
            return room > 0

        kind, peer, *_ = topic.split("/")
        stream = self._terms.beats.name if kind == "beat" else self._terms.rounds.name
        with suppress(*self._failures):
            async with asyncio.timeout(timeout_s):
                await self._read(stream, self._terms.subjects.subject_of(topic), take, latest=kind != "roll")
                if also_ask or not found:
                    await self._request(self._terms.subjects.ask(peer), topic.encode(), take)

    def neighbour(self) -> Neighbour:
        """The server, with the name in its certificate."""
        return Neighbour(nats_reasons.address_of(self._server), _common_name(self._writer()), "server")

    async def _connect(self, server: str, timeout_s: float) -> None:
        terms, client = self._terms, self._client
        client.on_malformed = lambda: terms.count("malformed")
        await client.connect(
            servers=[server],
            name=f"motet {terms.name}",
            tls=terms.tls,
            allow_reconnect=False,
            connect_timeout=timeout_s,
            ping_interval=_PING_S,
            max_outstanding_pings=_MAX_UNANSWERED_PINGS,
            no_echo=True,
            inbox_prefix=terms.subjects.inboxes(terms.name),
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        self._is_connecting = False
        if not client.is_connected:
            raise client.last_error or ConnectionResetError("EOF")
        is_secret = (writer := self._writer()) is not None and writer.get_extra_info("ssl_object") is not None
        if not is_secret and (terms.tls is not None or urlsplit(server).scheme == "tls"):
            raise nats_reasons.no_tls(server)
        if terms.answer is not None and client.max_payload < terms.max_message_bytes:
            raise nats_reasons.payload_too_small(server, client.max_payload, terms.max_message_bytes)

    async def _prepare(self, timeout_s: float) -> None:
        terms, client = self._terms, self._client
        if terms.answer is None:
            await client.subscribe(terms.subjects.every_beat, cb=self._on_message)
            await client.flush()  # by then the server has said if that is not permitted
            return
        for stream in (terms.rounds, terms.beats):
            await ensure_stream(client, self._failures, self._server, stream, timeout_s=timeout_s)
        await client.subscribe(terms.subjects.every_beat, cb=self._on_message, pending_bytes_limit=_MAX_BACKLOG_BYTES)
        if terms.pushed:
            await client.subscribe(
                terms.subjects.every_roll, cb=self._on_message, pending_bytes_limit=_MAX_BACKLOG_BYTES
            )
        await client.subscribe(terms.subjects.ask(terms.name), cb=self._on_ask, pending_msgs_limit=_MAX_ASKS)

        def take(subject: str, message: bytes) -> bool:
            self._deliver(subject, message)
            return True

        await self._read(terms.beats.name, terms.subjects.every_beat, take)

    async def _send(self, outgoing: Outgoing) -> None:
        if len(outgoing.message) > self._client.max_payload:
            self._terms.count("too_large")
        elif outgoing.topic.startswith("beat/"):
            with suppress(*self._failures):
                await self._client.publish(self._terms.subjects.subject_of(outgoing.topic), outgoing.message)
        else:
            await self._window.acquire()
            task = asyncio.create_task(self._store(outgoing))
            self._in_flight.add(task)
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._window.release()

    async def _store(self, outgoing: Outgoing) -> None:
        """Publish for all who listen, and wait until the stream has it."""
        subject = self._terms.subjects.subject_of(outgoing.topic)
        try:
            answer = await self._client.request(subject, outgoing.message, timeout=_ACK_S)
            if b'"error"' in answer.data:
                self._terms.count("not_stored")
        except asyncio.CancelledError:
            self._outbox.put(outgoing)
            raise
        except self._failures:
            if any(subject.lower() in violation for violation in self._violations):
                return  # counted when the server said so
            if not self._client.is_connected:
                self._outbox.put(outgoing)
                self.lose(self.why)
                return
            await self._mend()
            again = Outgoing(outgoing.topic, outgoing.message, outgoing.num_tries + 1)
            if again.num_tries < _MAX_TRIES:
                self._outbox.put(again)
                self.wake.set()
            else:
                self._terms.count("not_stored")

    async def _mend(self) -> None:
        """Make streams anew that somebody has deleted; not more than every other second."""
        async with self._mending:
            now_s = asyncio.get_running_loop().time()
            if self.gone.is_set() or now_s - self._mended_s < _MEND_S:
                return
            with suppress(*self._failures, MotetError):
                for stream in (self._terms.rounds, self._terms.beats):
                    await ensure_stream(self._client, self._failures, self._server, stream, timeout_s=_ACK_S)
            self._mended_s = now_s

    async def _read(self, stream: str, subject: str, take: Take, *, latest: bool = False) -> None:
        """Read a stream's messages under a subject, oldest first.

        Servers from 2.11 on send them all at once and say when that was all; older ones send one per request.
        """
        api = f"$JS.API.DIRECT.GET.{stream}"
        start: int | None = 1
        while start is not None:
            request = {"seq": start, "next_by_subj": subject, "batch": _BATCH, "max_bytes": _MAX_FETCH_BYTES}
            body = {"last_by_subj": subject} if latest else request
            last = await self._request(api, json.dumps(body).encode(), take)
            start = last + 1 if last is not None and last >= start and not latest else None

    async def _request(self, subject: str, body: bytes, take: Take) -> int | None:
        """Ask, and take the answers until the last; returns a sequence number after which there may be more."""
        subscription = await self._client.subscribe(self._client.new_inbox(), pending_bytes_limit=2 * _MAX_FETCH_BYTES)
        last: int | None = None
        try:
            await self._client.publish(subject, body, reply=subscription.subject)
            while True:
                message = await subscription.next_msg(timeout=_ACK_S)
                headers = message.headers or {}
                if "Status" in headers or _END in headers:
                    return last if _number(headers, "Nats-Num-Pending") else None
                if not take(headers.get("Nats-Subject", ""), message.data):
                    return None
                last = _number(headers, "Nats-Sequence")
                if last is not None and "Nats-Num-Pending" not in headers:
                    return last
        finally:
            with suppress(*self._failures):
                await subscription.unsubscribe()

    async def _on_message(self, message: Any) -> None:
        self._deliver(message.subject, message.data)

    def _deliver(self, subject: str, message: bytes) -> None:
        topic = self._terms.subjects.topic_of(subject)
        if topic is None:
            self._terms.count("bad_subject")
        elif topic != f"beat/{self._terms.name}" or self._is_ready:
            self._terms.inbox(topic, message)

    async def _on_ask(self, message: Any) -> None:
        """Answer for this node's own messages. Only to an inbox: another subject would lend this node's rights."""
        assert self._terms.answer is not None
        if not message.reply.startswith(_INBOXES) or len(message.data) > _MAX_TOPIC_BYTES:
            self._terms.count("bad_subject")
            return
        topic = message.data.decode(errors="replace")
        with suppress(*self._failures):
            for own in self._terms.answer(topic):
                await self._client.publish(message.reply, own)
            await self._client.publish(message.reply, b"", headers={_END: "1"})

    async def _on_error(self, error: Exception) -> None:
        """What the client has to report; while connecting, the end of it."""
        if self._is_connecting:
            self._first_error = self._first_error or error
            raise error
        if (match := _VIOLATION.search(str(error))) is not None:
            self._violations.append(f'a {match[1]} to "{match[2]}"')
            self._terms.count("permission")
        elif type(error).__name__ == "SlowConsumerError":
            self._terms.count("slow_consumer")
        else:
            self.why = str(error).removeprefix("nats: ") or type(error).__name__

    async def _on_closed(self) -> None:
        self.lose(self.why)

    async def _watch(self) -> None:
        """Notice a client that is closed, or stuck in closing, and has not said so."""
        while not self.gone.is_set():
            await asyncio.sleep(_WATCH_S)
            if not self._client.is_connected:
                self.lose(self.why)

    def lose(self, why: str) -> None:
        """Say that the connection is of no more use."""
        if not self.gone.is_set():
            self.why = why
        self.gone.set()
        self.wake.set()

    def _writer(self) -> Any:
        """The stream beneath the client, which has no other way to tell of TLS or to hang up at once."""
        return getattr(getattr(self._client, "_transport", None), "_io_writer", None)


def _number(headers: Mapping[str, str], key: str) -> int | None:
    text = headers.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _common_name(writer: Any) -> str | None:
    certificate = writer.get_extra_info("peercert") if writer is not None else None
    for (key, value), *_ in (certificate or {}).get("subject", ()):
        if key == "commonName":
            return str(value)
    return None
