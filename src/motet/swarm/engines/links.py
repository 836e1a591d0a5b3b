"""The Link protocol: what an engine (zenoh, NATS, or memory) has to do for `NetworkExchange`, and no more.

Topics are relative to the run:

    beat/<peer>           a heartbeat, about once a second; the latest one counts
    roll/<peer>/<round>   the messages that carry a node's groups of a round
    card/<peer>           what must agree between nodes of a run; never sent, only fetched
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Inbox = Callable[[str, bytes], None]
"""(topic, message) of something that has arrived. Called on a thread of the engine; returns at once, never raises."""

Answer = Callable[[str], Sequence[bytes]]
"""Topic to this node's own messages under it. Called on a thread of the engine; returns at once, never raises."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Somebody at the other end of a connection: a peer, a relay, a server.

    Attributes:
        address: where, as the engine writes it.
        certificate_name: common name of its certificate, established by TLS; None without TLS.
        kind: "node", or what passes on the messages of nodes: "relay" or "server".
    """

    address: str
    certificate_name: str | None = None
    kind: Literal["node", "relay", "server"] = "node"


class Link(Protocol):
    """One node's connection to an engine. Every implementation passes `tests/contract/test_link.py`.

    - MUST NOT block in `send`, and MUST NOT raise there: what cannot be sent is dropped; `fetch` repairs it.
    - MUST return from `fetch` by its timeout with what has come.
    - MUST NOT let anything that arrives raise, and MUST NOT parse messages.
    - MAY deliver a message twice, out of order, or not at all.
    - MUST NOT deliver a node's own messages to its inbox.
    - `open` and `close` may be called again and again: a link that has a `fault` is closed and opened anew.
    """

    def open(self, *, inbox: Inbox, answer: Answer | None, pushed: bool) -> None:
        """Connect.

        Args:
            inbox: takes heartbeats of others and, if `pushed`, their rounds.
            answer: gives what others fetch from this node. None: it only listens; it answers nobody, and makes
                nothing on a server, so that nobody else notices it.
            pushed: False if rounds are only fetched, by those who want them.

        Raises:
            SwarmUnreachable: nobody answers where somebody must (E-LINK-01), with the likely reasons.
            UsageError: addresses or certificates that cannot be used.
            EnvironmentFault: the engine is not installed.
        """
        ...

    def send(self, topic: str, message: bytes) -> None:
        """Send to all who listen to the topic."""
        ...

    def fetch(self, topic: str, *, timeout_s: float) -> list[bytes]:
        """Messages under a topic of somebody else's, from wherever the engine keeps them."""
        ...

    def neighbours(self) -> list[Neighbour]:
        """Who is connected right now. An empty list says: alone, or cut off."""
        ...

    def fault(self) -> str | None:
        """Why the link does not work, in a few words for people; None while it does."""
        ...

    def dropped(self) -> dict[str, int]:
        """Messages lost at this end since the link was made, by reason. Reasons are the engine's own."""
        ...

    def close(self) -> None:
        """Disconnect. Harmless when repeated."""
        ...
