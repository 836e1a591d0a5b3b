"""The exchange of nodes that live in one process: queues under one lock, deterministic once told what was published."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motet.errors import UsageError
from motet.swarm.exchange import Event, Parcel

_NEVER = -1


@dataclass(frozen=True, slots=True)
class HubState:
    """What a hub holds between two rounds; plain data for a checkpoint.

    Attributes:
        published: latest published round of each node that has published.
        undelivered: (receiver, parcel), in the order of publishing.
        late: parcels discarded as too old and not yet reported: receiver -> sender -> count.
    """

    published: Mapping[str, int] = field(default_factory=dict)
    undelivered: Sequence[tuple[str, Parcel]] = ()
    late: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Mailbox:
    """One node as the hub sees it."""

    is_live: bool = False
    is_awaited: bool = True
    latest_round: int = _NEVER
    inbox: list[Parcel] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)


class MemoryHub:
    """Where the nodes of one process meet. Safe to use from several threads.

    - A node that has published a later round counts as having published the earlier ones: it will not go back.
    - A node that joins before anybody has published is waited for from the first round on. One that joins later is
      waited for from its first publish on, and gets what is published after it joined.
    - Publishing twice for a round is allowed: the second call appends. A lockstep node stops waiting at the first.
    - Parcels older than what the receiver asks for are discarded and counted when it collects, so an inbox holds no
      more than the rounds that its owner has yet to collect.

    >>> hub = MemoryHub()
    >>> ann, bob = hub.join("ann"), hub.join("bob")
    >>> ann.publish(0, [b"group"])
    >>> bob.publish(0, [])
    >>> bob.collect(0, deadline_s=1.0)
    [Parcel(peer='ann', round=0, payload=b'group')]
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._mailboxes: dict[str, _Mailbox] = {}
        self._restored: set[str] = set()

    def join(self, name: str) -> MemoryExchange:
        """Enter under a name; a name may be used again after its exchange was closed.

        Raises:
            UsageError: a live node has this name.
        """
        with self._changed:
            known = self._mailboxes.get(name)
            if known is not None and known.is_live:
                raise UsageError(f"node.name: {name!r} is used by two nodes; names must differ", code="E-SWARM-01")
            if known is None or name not in self._restored:
                under_way = any(box.latest_round != _NEVER for box in self._mailboxes.values())
                known = self._mailboxes[name] = _Mailbox(is_awaited=not under_way)
            self._restored.discard(name)
            known.is_live = True
            return MemoryExchange(self, name, known, self._changed)

    def snapshot(self) -> HubState:
        """What has been published and not yet delivered; `restore` on a fresh hub continues from there."""
        with self._changed:
            boxes = sorted(self._mailboxes.items())
            return HubState(
                published={name: box.latest_round for name, box in boxes if box.latest_round != _NEVER},
                undelivered=tuple((name, parcel) for name, box in boxes for parcel in box.inbox),
                late={name: dict(box.late) for name, box in boxes if box.late},
            )

    def restore(self, state: HubState) -> None:
        """Take over the state of an earlier hub, before or after its nodes have joined; call it before any publish."""
        with self._changed:
            for name in {*state.published, *state.late, *(receiver for receiver, _ in state.undelivered)}:
                if name not in self._mailboxes:
                    self._mailboxes[name] = _Mailbox()
                    self._restored.add(name)
            for name, latest_round in state.published.items():
                self._mailboxes[name].latest_round = latest_round
            for receiver, parcel in state.undelivered:
                self._mailboxes[receiver].inbox.append(parcel)
            for receiver, late in state.late.items():
                self._mailboxes[receiver].late.update(late)
            self._changed.notify_all()

    def _others(self, name: str) -> list[tuple[str, _Mailbox]]:
        return sorted((other, box) for other, box in self._mailboxes.items() if other != name and box.is_live)


def hubs_for(names: Sequence[str], *, alone: bool) -> dict[str, MemoryHub]:
    """Where each node of a run meets the others: one hub for all, or one for each where every node trains alone."""
    shared = MemoryHub()
    return {name: MemoryHub() if alone else shared for name in names}


class MemoryExchange:
    """One node's end of a `MemoryHub`; implements `Exchange`. Made by `MemoryHub.join`."""

    def __init__(self, hub: MemoryHub, name: str, mailbox: _Mailbox, changed: threading.Condition) -> None:
        self._hub = hub
        self._name = name
        self._mailbox = mailbox
        self._changed = changed

    @property
    def name(self) -> str:
        """The name under which this node publishes."""
        return self._name

    def peers(self) -> list[str]:
        """Names of the other live nodes, sorted."""
        with self._changed:
            return [name for name, _ in self._hub._others(self._name)]

    def publish(self, round: int, payloads: Sequence[bytes]) -> None:
        """Put the payloads into the inbox of every other live node, all at once.

        Raises:
            RuntimeError: this exchange is closed.
        """
        parcels = [Parcel(self._name, round, bytes(payload)) for payload in payloads]
        with self._changed:
            if not self._mailbox.is_live:
                raise RuntimeError(f"node {self._name!r} has left the exchange and cannot publish")
            self._mailbox.latest_round = max(self._mailbox.latest_round, round)
            self._mailbox.is_awaited = True
            for _, box in self._hub._others(self._name):
                box.inbox.extend(parcels)
            self._changed.notify_all()

    def waiting_for(self, round: int) -> list[str]:
        """Live peers that have published neither this round nor a later one, sorted."""
        with self._changed:
            return self._missing(round)

    def collect(self, round: int, *, deadline_s: float, max_lag: int | None = None) -> list[Parcel]:
        """Parcels of the others, sorted by peer, round and order of publishing; see `Exchange.collect`."""
        with self._changed:
            if max_lag is None:
                timeout_s = min(max(deadline_s, 0.0), threading.TIMEOUT_MAX)
                self._changed.wait_for(lambda: not self._mailbox.is_live or not self._missing(round), timeout_s)
            oldest = round if max_lag is None else round - max_lag
            newest = round if max_lag is None else None
            taken: list[Parcel] = []
            left: list[Parcel] = []
            for parcel in self._mailbox.inbox:
                if parcel.round < oldest:
                    self._mailbox.late[parcel.peer] += 1
                elif newest is None or parcel.round <= newest:
                    taken.append(parcel)
                else:
                    left.append(parcel)
            self._mailbox.inbox = left
            return sorted(taken, key=lambda parcel: (parcel.peer, parcel.round))

    def num_late(self) -> dict[str, int]:
        """Parcels per peer that were discarded as too old since the last call."""
        with self._changed:
            late = dict(sorted(self._mailbox.late.items()))
            self._mailbox.late.clear()
            return late

    def num_refused(self) -> dict[str, dict[str, int]]:
        """Nothing: all nodes live in one process."""
        return {}

    def events(self) -> list[Event]:
        """Nothing: whoever runs all nodes knows."""
        return []

    def close(self) -> None:
        """Leave: nobody waits for this node any more, and a `collect` of its own returns. Harmless when repeated."""
        with self._changed:
            self._mailbox.is_live = False
            self._mailbox.inbox.clear()
            self._changed.notify_all()

    def _missing(self, round: int) -> list[str]:
        others = self._hub._others(self._name)
        return [name for name, box in others if box.is_awaited and box.latest_round < round]
