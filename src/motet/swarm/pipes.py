"""The exchange of nodes that have a process each: every node's process talks over one pipe to the process of the hub.

The node's end is a `PipeExchange`; at the hub's end `serve_exchange` answers it from an exchange of that process. What
travels is MessagePack of the types below, never pickle: the payloads inside come from peers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TypeVar

import msgspec

from motet.swarm.exchange import Event, Exchange, Parcel


class _Peers(msgspec.Struct, tag="peers", array_like=True, frozen=True):
    """Who is there?"""


class _Publish(msgspec.Struct, tag="publish", array_like=True, frozen=True):
    round: int
    payloads: list[bytes]


class _WaitingFor(msgspec.Struct, tag="waiting_for", array_like=True, frozen=True):
    round: int


class _Collect(msgspec.Struct, tag="collect", array_like=True, frozen=True):
    round: int
    deadline_s: float
    max_lag: int | None


class _NumLate(msgspec.Struct, tag="num_late", array_like=True, frozen=True):
    """How many came too late?"""


class _Leave(msgspec.Struct, tag="leave", array_like=True, frozen=True):
    """The one request without an answer; it also ends a `collect` that is waiting."""


_LEAVING_S = 5.0
_T = TypeVar("_T")
_Request = _Peers | _Publish | _WaitingFor | _Collect | _NumLate | _Leave

_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS = msgspec.msgpack.Decoder(_Request)
_NOTHING = msgspec.msgpack.Decoder(None)
_NAMES = msgspec.msgpack.Decoder(list[str])
_COUNTS = msgspec.msgpack.Decoder(dict[str, int])
_PARCELS = msgspec.msgpack.Decoder(list[Parcel])


class PipeExchange:
    """A node's end of the pipe to its hub; implements `Exchange`.

    When the process at the other end has gone, this node has left: it finds itself alone. Calls are answered one after
    the other; `close` alone may come in between.

    Args:
        name: under which this node publishes.
        connection: one end of a `multiprocessing.Pipe()`; `serve_exchange` has the other.
    """

    def __init__(self, name: str, connection: Connection) -> None:
        self._name = name
        self._connection = connection
        self._one_call = threading.Lock()
        self._one_sender = threading.Lock()
        self._is_live = True

    @property
    def name(self) -> str:
        """The name under which this node publishes."""
        return self._name

    def peers(self) -> list[str]:
        """Names of the other live nodes, sorted."""
        return self._ask(_Peers(), _NAMES) or []

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        """Hand the payloads to the hub; it does not wait for any receiver.

        Raises:
            RuntimeError: this exchange is closed.
        """
        self._ask(_Publish(round, list(payloads)), _NOTHING)
        if not self._is_live:
            raise RuntimeError(f"node {self._name!r} has left the exchange and cannot publish")

    def waiting_for(self, round: int) -> list[str]:
        """Live peers that have not yet published this round, sorted."""
        return self._ask(_WaitingFor(round), _NAMES) or []

    def collect(self, round: int, *, deadline_s: float, max_lag: int | None = None) -> list[Parcel]:
        """Parcels of the others; see `Exchange.collect`."""
        return self._ask(_Collect(round, deadline_s, max_lag), _PARCELS) or []

    def num_late(self) -> dict[str, int]:
        """Parcels per peer that were discarded as too old since the last call."""
        return self._ask(_NumLate(), _COUNTS) or {}

    def num_refused(self) -> dict[str, dict[str, int]]:
        """Nothing: all nodes are processes of one owner."""
        return {}

    def events(self) -> list[Event]:
        """Nothing: whoever runs all nodes knows."""
        return []

    def close(self) -> None:
        """Leave: nobody waits for this node any more, and a `collect` of its own returns. Harmless when repeated.

        Returns when the hub has taken note, which it shows by closing its end, or when it does not do so in time.
        """
        if not self._is_live:
            return
        self._is_live = False
        with suppress(OSError):
            self._send(_Leave())
        if not self._one_call.acquire(timeout=_LEAVING_S):
            return  # a call of another thread waits for a hub that hangs
        try:
            with suppress(EOFError, OSError):
                while self._connection.poll(_LEAVING_S):
                    self._connection.recv_bytes()  # the answer to a call that was broken off
        finally:
            self._one_call.release()

    def _ask(self, request: _Request, answer: msgspec.msgpack.Decoder[_T]) -> _T | None:
        """The answer; None once this node has left."""
        with self._one_call:
            if not self._is_live:
                return None
            try:
                self._send(request)
                return answer.decode(self._connection.recv_bytes())
            except (EOFError, OSError):
                self._is_live = False
                return None

    def _send(self, request: _Request) -> None:
        data = _ENCODER.encode(request)
        with self._one_sender:
            self._connection.send_bytes(data)


def serve_exchange(exchange: Exchange, connection: Connection) -> None:
    """Answer a `PipeExchange` from `exchange` until it leaves or its process ends. Runs in a thread of its own."""
    with connection, ThreadPoolExecutor(max_workers=1) as answering:
        with suppress(EOFError, OSError):
            while not isinstance(request := _REQUESTS.decode(connection.recv_bytes()), _Leave):
                answering.submit(_answer, exchange, connection, request)
        exchange.close()


def _answer(exchange: Exchange, connection: Connection, request: _Request) -> None:
    answer: object = None
    match request:
        case _Peers():
            answer = exchange.peers()
        case _Publish(round, payloads):
            exchange.publish(round, payloads)
        case _WaitingFor(round):
            answer = exchange.waiting_for(round)
        case _Collect(round, deadline_s, max_lag):
            answer = exchange.collect(round, deadline_s=deadline_s, max_lag=max_lag)
        case _NumLate():
            answer = exchange.num_late()
    with suppress(OSError):  # whoever asked may have gone meanwhile
        connection.send_bytes(_ENCODER.encode(answer))
