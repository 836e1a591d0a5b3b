"""Who meets whom: moving encoded groups between nodes, sharing out prompts, and keeping accounts of peers.

Sees payloads as bytes only. Knows neither models nor tasks, and not whether a peer is to be believed: that is
`motet.admission`, which this package never imports.
"""

from motet.swarm.assignment import Ask, Assignment, Collaboration
from motet.swarm.exchange import Event, Exchange, Parcel
from motet.swarm.ledger import Ledger, PeerAccount
from motet.swarm.memory import HubState, MemoryExchange, MemoryHub, hubs_for
from motet.swarm.pipes import PipeExchange, serve_exchange
from motet.swarm.replay import ReplayExchange

__all__ = [
    "Ask",
    "Assignment",
    "Collaboration",
    "Event",
    "Exchange",
    "HubState",
    "Ledger",
    "MemoryExchange",
    "MemoryHub",
    "Parcel",
    "PeerAccount",
    "PipeExchange",
    "ReplayExchange",
    "hubs_for",
    "serve_exchange",
]
