"""The link over NATS: live delivery by plain subscriptions, history in JetStream. The one door to the package nats.

A round's message is published once: those who listen get it at once, and the stream `motet_<run>` keeps it, so that
`fetch` finds it after its sender has died. Heartbeats go to one that forgets them within seconds. What the
stream does not have, `fetch` asks of its sender. There are no push consumers: they resume late after a restart.

`NatsLink` faces the threads of a node; a `Session` is one connection to one server, on the event loop of a thread of
its own. A session that breaks is thrown away, and another one takes its place.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from motet.errors import MotetError
from motet.swarm.engines import nats_reasons
from motet.swarm.engines.links import Answer, Inbox, Neighbour
from motet.swarm.engines.nats_outbox import Outbox, Outgoing
from motet.swarm.engines.nats_session import Session, Terms
from motet.swarm.engines.nats_streams import stream_terms
from motet.swarm.engines.nats_subjects import Subjects

_T = TypeVar("_T")

_MAX_WAITING_BYTES = 64 * 2**20
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_DRAIN_S = 1.0
_JOIN_S = 5.0
_NUM_REMEMBERED = 256


class NatsLink:
    """A node's connection to a NATS server with JetStream; implements `Link`.

    It connects again by itself, to any of the servers, for as long as it is open.

    Args:
        name: of this node.
        run_id_hex: the run's id, lower-case hexadecimal; runs with different ids do not hear each other. `ANY_RUN`
            for a link that only listens, to heartbeats of all runs.
        servers: addresses, tried in this order: "nats://host:port" or "tls://host:port".
        tls: folder with ca.pem, node.pem and node.key; TLS is then required.
        keep_rounds: rounds of each peer for which the server is to have room.
        max_message_bytes: largest message; the server must take it.
        open_timeout_s: after which `open` gives up, in seconds.

    Raises:
        UsageError: an address or the folder of certificates cannot be used (E-LINK-10, E-LINK-11).
        ValueError: the run id is not hexadecimal.
    """

    def __init__(
        self,
        name: str,
        run_id_hex: str,
        *,
        servers: Sequence[str],
        tls: Path | None,
        keep_rounds: int,
        max_message_bytes: int,
        open_timeout_s: float = 5.0,
    ) -> None:
        nats_reasons.check_servers(servers)
        self._name = name
        self._subjects = Subjects(run_id_hex)
        self._servers = tuple(servers)
        self._tls = None if tls is None else nats_reasons.load_tls(tls)
        self._streams = stream_terms(self._subjects, keep_rounds=keep_rounds, max_message_bytes=max_message_bytes)
        self._max_message_bytes = max_message_bytes
        self._open_timeout_s = open_timeout_s
        self._outbox = Outbox(max_bytes=_MAX_WAITING_BYTES)
        self._dropped: Counter[str] = Counter()
        self._fetched: deque[str] = deque(maxlen=_NUM_REMEMBERED)
        self._lock = threading.Lock()
        self._engine: _Engine | None = None

    def open(self, *, inbox: Inbox, answer: Answer | None, pushed: bool) -> None:
        """Connect; see `Link.open`.

        Raises:
            SwarmUnreachable: no server lets this node in; E-LINK-01 and E-LINK-12 to E-LINK-17 say why.
            EnvironmentFault: nats-py is not installed (E-LINK-18).
        """
        self.close()
        make_client, failures = _package()
        rounds, beats = self._streams
        terms = Terms(
            name=self._name,
            subjects=self._subjects,
            tls=self._tls,
            rounds=rounds,
            beats=beats,
            max_message_bytes=self._max_message_bytes,
            inbox=inbox,
            answer=answer,
            pushed=pushed,
            count=self._count,
        )
        engine = _Engine(
            lambda: Session(terms, make_client(), failures, self._outbox), self._servers, self._open_timeout_s
        )
        engine.start()
        with self._lock:
            self._engine = engine

    def send(self, topic: str, message: bytes) -> None:
        """Send to all who listen to the topic, and to the stream. Waits for nothing."""
        with self._lock:
            engine = self._engine
        if engine is None:
            self._count("closed")
            return
        try:
            self._subjects.subject_of(topic)
        except ValueError:
            self._count("bad_subject")
            return
        self._count("outbox_full", self._outbox.put(Outgoing(topic, message)))
        engine.wake()

    def fetch(self, topic: str, *, timeout_s: float) -> list[bytes]:
        """Messages under a topic from the stream. What it lacks is asked of the peer: at once, or the second time."""
        with self._lock:
            engine = self._engine
            also_ask = topic in self._fetched
            if not also_ask:
                self._fetched.append(topic)
        return [] if engine is None else engine.fetch(topic, timeout_s, also_ask=also_ask)

    def neighbours(self) -> list[Neighbour]:
        """The server that this node is connected to."""
        engine = self._engine
        session = None if engine is None else engine.session
        return [] if session is None else [session.neighbour()]

    def fault(self) -> str | None:
        """Why there is no connection; None while there is one."""
        engine = self._engine
        return "not open" if engine is None else engine.fault()

    def dropped(self) -> dict[str, int]:
        """Messages lost at this node so far, by reason.

        outbox_full, too_large, closed: not sent. permission: forbidden by the server. not_stored: sent, but not in the
        stream. slow_consumer, malformed, bad_subject: arrived and could not be taken.
        """
        with self._lock:
            return dict(self._dropped)

    def close(self) -> None:
        """Disconnect, after sending what waits, within seconds. Harmless when repeated."""
        with self._lock:
            engine, self._engine = self._engine, None
            self._fetched.clear()
        if engine is not None:
            engine.stop()
        self._outbox.drop_beats()

    def _count(self, reason: str, number: int = 1) -> None:
        if number:
            with self._lock:
                self._dropped[reason] += number


class _Engine:
    """The thread with the event loop, from one `open` to one `close`.

    Args:
        make_session: a fresh session.
        servers: addresses, in order.
        timeout_s: for one round of all servers, in seconds.
    """

    def __init__(self, make_session: Callable[[], Session], servers: Sequence[str], timeout_s: float) -> None:
        self._make_session = make_session
        self._servers = servers
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_quietly)
        self._thread = threading.Thread(target=self._run, name="motet nats", daemon=True)
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stopping = asyncio.Event()
        self._fault: str | None = "connecting"
        self.session: Session | None = None

    def start(self) -> None:
        """Start the thread, and wait until it is connected or cannot be.

        Raises:
            MotetError: no server lets this node in.
        """
        self._thread.start()
        try:
            self._opened.result(timeout=self._timeout_s + _DRAIN_S)
        except TimeoutError as error:
            self.stop()
            raise nats_reasons.no_answer(self._servers[0], self._timeout_s) from error
        except MotetError:
            self._thread.join(timeout=_JOIN_S)
            raise

    def wake(self) -> None:
        """Something waits to be sent."""
        self._call(self._wake_up)

    def fetch(self, topic: str, timeout_s: float, *, also_ask: bool) -> list[bytes]:
        """What has come by the timeout."""
        session = self.session
        if session is None:
            return []
        found: dict[bytes, None] = {}
        fetching = session.fetch(topic, found, timeout_s=timeout_s, also_ask=also_ask)
        try:
            future = asyncio.run_coroutine_threadsafe(fetching, self._loop)
        except RuntimeError:  # the loop has ended just now
            fetching.close()
            return []
        try:
            future.result(timeout=timeout_s)
        except (TimeoutError, concurrent.futures.CancelledError):
            future.cancel()
        return list(found)

    def fault(self) -> str | None:
        """Why there is no connection; None while there is one."""
        if not self._thread.is_alive():
            return "the thread of the link has ended"
        return self._fault

    def stop(self) -> None:
        """End the thread; it sends first what waits."""
        self._call(self._stopping.set)
        self._thread.join(timeout=_JOIN_S)

    def _call(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(callback)

    def _wake_up(self) -> None:
        if self.session is not None:
            self.session.wake.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._keep_connected())
        finally:
            self.session = None
            if not self._opened.done():
                self._opened.set_exception(nats_reasons.no_answer(self._servers[0], self._timeout_s))
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_DRAIN_S))
            self._loop.close()

    async def _keep_connected(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                session = await self._unless_stopping(self._connect())
            except MotetError as error:
                if not self._opened.done():
                    self._opened.set_exception(error)
                    return
                self._fault = str(error)
                await self._rest(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            if session is None:
                return
            self.session, self._fault = session, None
            if not self._opened.done():
                self._opened.set_result(None)
            pause_s = _FIRST_PAUSE_S
            await self._use(session)
            self.session, self._fault = None, f"{session.neighbour().address}: {session.why}; connecting again"
            await session.close()

    async def _connect(self) -> Session:
        """A session with the first server that lets this node in."""
        refusals: list[MotetError] = []
        for server in self._servers:
            session = self._make_session()
            is_open = False
            try:
                await session.open(server, timeout_s=self._timeout_s / len(self._servers))
                is_open = True
                return session
            except MotetError as error:
                refusals.append(error)
            finally:
                if not is_open:
                    await session.close()
        raise nats_reasons.all_refused(refusals)

    async def _use(self, session: Session) -> None:
        """Serve until the connection is gone or the link is closed."""
        serving = asyncio.create_task(session.serve())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not session.gone.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(session.drain(), _DRAIN_S)
        session.lose("closed")
        stopping.cancel()
        await asyncio.wait((serving, stopping), timeout=_DRAIN_S)

    async def _rest(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _unless_stopping(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """The outcome of the work; None if the link is closed before."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            return working.result()
        working.cancel()
        await asyncio.wait((working,))
        return None


@cache
def _package() -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """What makes a client, and what a client raises.

    Raises:
        EnvironmentFault: nats-py is not installed (E-LINK-18).
    """
    try:
        from nats.aio.client import Client
        from nats.errors import Error
    except ImportError as error:
        raise nats_reasons.not_installed() from error
    logging.getLogger("nats").addHandler(logging.NullHandler())  # or it prints tracebacks where nobody has set up logs

    class GuardedClient(Client):
        """A client that drops what it cannot read, and goes on: headers are bytes of any peer's."""

        on_malformed: Callable[[], None]

        async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
            try:
                await super()._process_msg(sid, subject, reply, data, headers)
            except (ValueError, LookupError):
                self.on_malformed()

    return GuardedClient, (Error, OSError, ValueError)  # TimeoutError is an OSError


def _log_quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001
    logging.getLogger(__name__).debug("%s", context.get("message"), exc_info=context.get("exception"))
