"""What a network exchange is told when it is built: its limits, who it is, and what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from motet.swarm.identity.credentials import Credential
from motet.swarm.identity.keys import NodeKey
from motet.swarm.network.card import card_digest, encode_card
from motet.swarm.network.membership import MAX_HELD

_SMALLEST_MESSAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Limits and times.

    Attributes:
        num_rounds: of the run; no later round exists.
        seed: of the run; the draw of groups follows from it.
        max_lag: free pace: oldest round that is taken in, counted back from the current one. None: lockstep. What is
            said to `collect` later holds from then on.
        max_foreign_groups: groups of others to draw and fetch in a round; None: all rounds are sent to all.
        keep_rounds: own rounds that are kept for those who ask, and rounds before the oldest that is taken in of which
            messages are still counted as late rather than refused. At least 3, and 256 at most.
        max_message_bytes: longest message that is made or opened.
        max_bytes_per_round: of one peer's messages for one round.
        max_held_bytes: of all groups that wait to be collected.
        heartbeat_s: between two heartbeats in a swarm of up to 64 nodes; grows in proportion beyond.
        fresh_s: after how long without a heartbeat a peer is silent; grows likewise.
        max_clock_skew_s: by how much a peer's clock may be off.
        repair_after_s: how long an announced round may be under way before it is fetched; at the latest it is at half
            of the deadline.
        fetch_timeout_s: longest wait for the answer to one fetch.
    """

    num_rounds: int
    seed: int = 0
    max_lag: int | None = None
    max_foreign_groups: int | None = None
    keep_rounds: int = 3
    max_message_bytes: int = 1_000_000
    max_bytes_per_round: int = 32_000_000
    max_held_bytes: int = 1_000_000_000
    heartbeat_s: float = 1.0
    fresh_s: float = 5.0
    max_clock_skew_s: float = 600.0
    repair_after_s: float = 2.0
    fetch_timeout_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse limits under which nothing works."""
        if not 3 <= self.keep_rounds <= MAX_HELD:
            raise ValueError(f"keep_rounds is {self.keep_rounds}, not 3 to {MAX_HELD}")
        if self.max_message_bytes < _SMALLEST_MESSAGE_BYTES:
            raise ValueError(f"max_message_bytes is {self.max_message_bytes}, below {_SMALLEST_MESSAGE_BYTES}")

    @property
    def is_pushed(self) -> bool:
        """True if all rounds are sent to all."""
        return self.max_foreign_groups is None


@dataclass(frozen=True, slots=True)
class Clock:
    """Time.

    Attributes:
        monotonic_s: seconds; never goes back.
        unix_s: seconds since 1970.
    """

    monotonic_s: Callable[[], float] = time.monotonic
    unix_s: Callable[[], float] = time.time


@dataclass(frozen=True)
class Identity:
    """Who a node is.

    Attributes:
        name: under which it speaks.
        key: with which it signs.
        credential: by which others believe the two belong together.
        run_id: of its run, 16 bytes.
        card: what must agree between nodes of the run.
        boot: unix time in ms at which this process of it began.
        encoded_card: the card's one encoding.
        digest: of the card.
    """

    name: str
    key: NodeKey
    credential: Credential
    run_id: bytes
    card: Mapping[str, str]
    boot: int
    encoded_card: bytes = field(init=False)
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Work out what follows from the card."""
        if (self.credential.name, self.credential.node_key) != (self.name, self.key.public):
            raise ValueError(f"the credential of {self.credential.name!r} is not that of node {self.name!r}")
        object.__setattr__(self, "encoded_card", encode_card(self.card))
        object.__setattr__(self, "digest", card_digest(self.encoded_card))
