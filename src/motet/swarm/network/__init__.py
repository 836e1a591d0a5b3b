"""A node among others over a network: who is there, what they hold, what is sent, received, repaired and refused.

Knows no engine: a `motet.swarm.engines.links.Link` moves the bytes. `exchange` is the way in.
"""

from motet.swarm.network.exchange import NetworkExchange
from motet.swarm.network.options import Clock, NetworkOptions

__all__ = ["Clock", "NetworkExchange", "NetworkOptions"]
