"""A node's link over zenoh.

    motet/<run>/beat/<peer>           pushed, ahead of everything else
    motet/<run>/roll/<peer>/<round>   pushed, unless rounds are only fetched
    motet/<run>/ask/<topic>           answered by the node that the topic names; the only way of card/<peer>

Nothing is ever sent in a way that waits for the slowest receiver: what does not get through is dropped, and fetched by
who misses it. Nothing is sent, and no engine is called, on a thread of the engine.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from motet.errors import SwarmUnreachable, UsageError
from motet.swarm.engines.acl import ANY_RUN, access_rules
from motet.swarm.engines.addresses import Address, parse_addresses, without_own
from motet.swarm.engines.links import Answer, Inbox, Neighbour
from motet.swarm.engines.outbox import Outbox
from motet.swarm.engines.unreachable import why_unreachable
from motet.swarm.engines.zenoh_config import MAX_MESSAGE_BYTES, Mode, check_tls, session_config
from motet.swarm.engines.zenoh_session import (
    CLOSING_S,
    cannot_listen,
    close_session,
    import_zenoh,
    links_of,
    open_session,
    sees_relay,
)

if TYPE_CHECKING:
    import zenoh

_LOOPBACK: Final = "127.0.0.1"
_PART: Final = re.compile(r"[A-Za-z0-9._-]+")
_POLL_S: Final = 0.02
_GRACE_S: Final = 3.0
_NUM_ANSWERING: Final = 4
_MAX_BEATS_WAITING, _MAX_ROUNDS_WAITING, _MAX_QUESTIONS_WAITING, _MAX_ANSWERS_WAITING = 4096, 128, 64, 64
_MAX_BYTES_OUT: Final = 64_000_000
_MAX_BYTES_FETCHED: Final = 64_000_000


class ZenohLink:
    """A node's link over zenoh; implements `Link`.

    With neither `listen` nor `connect` it is for one machine: the first to open binds `embedded_port`, the others join
    it, and each connects to each. With `listen` the node connects to its like, each with each. With `connect` alone it
    hangs on one of the addresses, a relay or a node that listens, and goes to the next when that fails.

    Args:
        name: of the node; its messages go by it.
        run_id_hex: which messages are of this run; `ANY_RUN` for a link that only listens, to heartbeats of all runs.
        listen: addresses at which others may connect to this node.
        connect: addresses of nodes or relays.
        embedded_port: of the loopback.
        tls: folder with ca.pem, node.pem and node.key; with it nothing but mutual TLS is spoken.
        open_timeout_s: how long `open` waits for a connection, where there must be one.
        max_message_bytes: longer ones are neither sent nor taken.
        members: names in certificates; with them a node that others connect to lets each speak under its own only.
        relays: names in certificates of relays, which pass on what others say.

    Raises:
        UsageError: E-LINK-02, not an address; E-LINK-03, TLS is missing, incomplete, or circumvented.
        ValueError: a name or an id that cannot be part of a key, or no way to meet anybody.
    """

    def __init__(
        self,
        name: str,
        run_id_hex: str,
        *,
        listen: Sequence[str] = (),
        connect: Sequence[str] = (),
        embedded_port: int | None = None,
        tls: Path | None = None,
        open_timeout_s: float = 5.0,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        members: Iterable[str] | None = None,
        relays: Iterable[str] = (),
    ) -> None:
        if not (_PART.fullmatch(name) and (run_id_hex == ANY_RUN or _PART.fullmatch(run_id_hex))):
            raise ValueError(f"{name!r}, {run_id_hex!r}: expected letters, digits, '.', '_' and '-'")
        self._listen = parse_addresses(listen, where="swarm.listen", listens=True)
        self._connect = without_own(parse_addresses(connect, where="swarm.connect"), self._listen)
        is_embedded = not listen and not connect
        if is_embedded and embedded_port is None:
            raise ValueError("a link needs addresses or a port of the loopback")
        if is_embedded and tls is not None:
            raise UsageError(
                "swarm.tls needs swarm.listen or swarm.connect: without them nothing leaves this machine",
                code="E-LINK-03",
            )
        check_tls([*self._listen, *self._connect], tls, where="swarm.listen, swarm.connect")
        if members is not None and tls is None:
            raise UsageError("access by names needs swarm.tls: names are those in certificates", code="E-LINK-03")
        self._meeting_point = Address("tcp", _LOOPBACK, embedded_port) if is_embedded and embedded_port else None
        self._name = name
        self._stem = f"motet/{run_id_hex}/"
        self._tls = tls
        self._open_timeout_s = open_timeout_s
        self._max_message_bytes = max_message_bytes
        self._access = None if members is None else access_rules(members, run=run_id_hex, relays=relays)
        self._session: zenoh.Session | None = None
        self._mode: Mode = "peer"
        self._expected: tuple[Address, ...] = ()
        self._cut_off_since: float | None = None
        self._outboxes: dict[str, Outbox] = {}
        self._dropped: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []

    def open(self, *, inbox: Inbox, answer: Answer | None, pushed: bool) -> None:
        """Connect; see `Link.open`.

        Raises:
            SwarmUnreachable: E-LINK-01, no connection within the timeout, with the likely reasons.
            EnvironmentFault: E-LINK-04, zenoh is not installed; E-LINK-05, an address cannot be listened on.
        """
        self.close()
        zenoh = import_zenoh()
        session = self._open_embedded() if self._meeting_point is not None else self._open_at_addresses()
        self._session, self._cut_off_since = session, None
        remote = zenoh.Locality.REMOTE
        self._outboxes = {
            "quick": Outbox("zenoh-beats", self._put_quick, max_bytes=1_000_000, max_messages=4),
            "bulk": Outbox("zenoh-rounds", self._put, max_bytes=_MAX_BYTES_OUT, max_messages=_MAX_ROUNDS_WAITING),
        }
        kinds = {"beat/*": _MAX_BEATS_WAITING} | ({"roll/*/*": _MAX_ROUNDS_WAITING} if pushed else {})
        for topics, num_waiting in kinds.items():
            ring = zenoh.handlers.RingChannel(num_waiting)
            samples = session.declare_subscriber(self._stem + topics, ring, allowed_origin=remote)
            self._start(f"zenoh-{topics[:4]}", self._receive, samples, inbox)
        if answer is None:
            return
        ring = zenoh.handlers.RingChannel(_MAX_QUESTIONS_WAITING)
        own = f"{self._stem}ask/*/{self._name}/**"
        queries = session.declare_queryable(own, ring, allowed_origin=remote)
        for _ in range(_NUM_ANSWERING):
            self._start("zenoh-answer", self._answer, queries, answer)

    def send(self, topic: str, message: bytes) -> None:
        """Hand a message to the thread that sends its kind. Without a session it is dropped."""
        outbox = self._outboxes.get("bulk" if topic.startswith("roll/") else "quick")
        if outbox is None or len(message) > self._max_message_bytes:
            self._dropped["closed" if outbox is None else "too_large"] += 1
        else:
            outbox.put(topic, bytes(message))

    def fetch(self, topic: str, *, timeout_s: float) -> list[bytes]:
        """What the node that the topic names has under it; empty if it is not there, or this link is not open."""
        session = self._session
        if session is None or timeout_s <= 0 or not _is_topic(topic):
            return []
        zenoh = import_zenoh()
        messages: list[bytes] = []
        num_bytes = 0
        with suppress(zenoh.ZError):
            replies = session.get(
                f"{self._stem}ask/{topic}",
                zenoh.handlers.FifoChannel(_MAX_ANSWERS_WAITING),  # a ring would forget its rest at the end
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=timeout_s,
                congestion_control=zenoh.CongestionControl.DROP,
                allowed_destination=zenoh.Locality.REMOTE,
            )
            for reply in replies:
                if reply.ok is not None:
                    messages.append(reply.ok.payload.to_bytes())
                    num_bytes += len(messages[-1])
                if num_bytes > _MAX_BYTES_FETCHED:
                    break
        return messages

    def neighbours(self) -> list[Neighbour]:
        """Nodes and relays that this node is connected to."""
        session = self._session
        if session is None:
            return []
        relays = set(map(str, session.info.routers_zid()))
        return [
            Neighbour(link.dst, link.auth_identifier, "relay" if str(link.zid) in relays else "node")
            for link in links_of(session)
        ]

    def fault(self) -> str | None:
        """Why the link does not work; zenoh is given a moment to connect anew by itself."""
        session = self._session
        if session is None or session.is_closed():
            return "the session is closed"
        outboxes = self._outboxes.values()
        if not (all(thread.is_alive() for thread in self._threads) and all(outbox.is_alive for outbox in outboxes)):
            return "a thread of the link has ended"
        if self._mode == "peer" and sees_relay(session):
            return "a relay is there now, and needs a connection of another kind"
        if not self._expected or links_of(session):
            self._cut_off_since = None
            return None
        now = time.monotonic()
        if self._cut_off_since is None:
            self._cut_off_since = now
        if now - self._cut_off_since < _GRACE_S:
            return None
        return f"no connection to {', '.join(map(str, self._expected))}"

    def dropped(self) -> dict[str, int]:
        """Messages not sent so far, by reason: outbox_full, too_large, closed. What zenoh drops it does not say."""
        full = sum(outbox.num_dropped for outbox in self._outboxes.values())
        return dict(+(self._dropped + Counter(outbox_full=full)))

    def close(self) -> None:
        """Disconnect. Harmless when repeated."""
        outboxes, self._outboxes = self._outboxes, {}
        for outbox in outboxes.values():
            outbox.close()
            self._dropped["outbox_full"] += outbox.num_dropped
        session, self._session = self._session, None
        threads, self._threads = self._threads, []
        if session is not None:
            close_session(session)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(CLOSING_S)

    def _open_embedded(self) -> zenoh.Session:
        """Be the first on this machine, or join who was. Who was may be leaving at this moment: hence two tries."""
        zenoh = import_zenoh()
        assert self._meeting_point is not None
        for _ in range(2):
            self._mode, self._expected = "peer", ()
            with suppress(zenoh.ZError):
                return self._session_of("peer", listen=[self._meeting_point], connect=[])
            self._expected = (self._meeting_point,)
            session = self._session_of("peer", listen=[Address("tcp", _LOOPBACK, 0)], connect=self._expected)
            if self._becomes_linked(session):
                return session
            close_session(session)
        raise SwarmUnreachable(
            f"{self._meeting_point}: this port of the machine belongs to something that is no node of motet; end it, "
            "or set swarm.listen and swarm.connect",
            code="E-LINK-01",
        )

    def _open_at_addresses(self) -> zenoh.Session:
        zenoh = import_zenoh()
        self._expected = self._connect
        if not self._listen:
            self._mode = "client"
            try:
                return self._session_of("client", listen=[], connect=self._connect)
            except zenoh.ZError:
                raise self._unreachable() from None
        session = self._listening("peer")
        if self._connect and not self._becomes_linked(session):
            close_session(session)
            raise self._unreachable()
        if not sees_relay(session):
            return session
        # Through a relay nodes reach each other only as its clients.
        close_session(session)
        return self._listening("gateway")

    def _listening(self, mode: Mode) -> zenoh.Session:
        zenoh = import_zenoh()
        self._mode = mode
        try:
            return self._session_of(mode, listen=self._listen, connect=self._connect)
        except zenoh.ZError as error:
            if mode == "gateway" and "listener" not in str(error):
                raise self._unreachable() from None
            raise cannot_listen(self._listen, error) from None

    def _session_of(self, mode: Mode, *, listen: Sequence[Address], connect: Sequence[Address]) -> zenoh.Session:
        """A session. As a client zenoh spends all its time on the first address: so each is the first once."""
        zenoh = import_zenoh()
        is_client = mode in ("client", "gateway")
        orders = [(*connect[i:], *connect[:i]) for i in range(len(connect))] if is_client else [tuple(connect)]
        for left, order in enumerate(orders, 1 - len(orders)):
            config = session_config(
                mode,
                listen=listen,
                connect=order,
                tls=self._tls,
                timeout_s=self._open_timeout_s / len(orders),
                max_message_bytes=self._max_message_bytes,
                access=self._access if listen else None,
            )
            try:
                return open_session(config)
            except zenoh.ZError:
                if left == 0:
                    raise
        raise AssertionError("a client without addresses")

    def _becomes_linked(self, session: zenoh.Session) -> bool:
        ends = time.monotonic() + self._open_timeout_s
        while not links_of(session):
            if time.monotonic() >= ends:
                return False
            time.sleep(_POLL_S)
        return True

    def _unreachable(self) -> SwarmUnreachable:
        reasons = [f"{address}: {why_unreachable(address, self._tls)}" for address in self._connect]
        return SwarmUnreachable(
            f"no connection within {self._open_timeout_s:g} s. " + "; ".join(reasons), code="E-LINK-01"
        )

    def _start(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _put_quick(self, topic: str, message: bytes) -> None:
        zenoh = import_zenoh()
        self._put(topic, message, priority=zenoh.Priority.INTERACTIVE_HIGH, express=True)

    def _put(self, topic: str, message: bytes, **options: Any) -> None:
        session, zenoh = self._session, import_zenoh()
        if session is not None:
            with suppress(zenoh.ZError):
                session.put(self._stem + topic, message, congestion_control=zenoh.CongestionControl.DROP, **options)

    def _receive(self, samples: Iterable[zenoh.Sample], inbox: Inbox) -> None:
        for sample in samples:
            inbox(str(sample.key_expr).split("/", 2)[2], sample.payload.to_bytes())

    def _answer(self, queries: Iterable[zenoh.Query], answer: Answer) -> None:
        zenoh = import_zenoh()
        start = len(self._stem) + len("ask/")
        for query in queries:
            with query, suppress(zenoh.ZError):
                key = str(query.key_expr)
                if _is_topic(key[start:]):
                    for message in answer(key[start:]):
                        query.reply(key, message)


def _is_topic(topic: str) -> bool:
    return all(_PART.fullmatch(part) for part in topic.split("/"))
