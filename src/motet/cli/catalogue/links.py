"""Engines, relays and the exchange between machines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "E-LINK-01": Entry(
            "nobody answers",
            "No connection to any address of the swarm came about in time; the message has the likely reason for each.",
            "Nothing listens there, a firewall is in the way, TLS is refused (another CA, no certificate, "
            "expired), or, on one machine, another program has the port.",
            "Start the node or relay that should answer, mend the address, or issue the certificate anew. "
            "`motet doctor FILE` tries each address.",
        ),
        "E-LINK-02": Entry(
            "not an address",
            "An address of swarm.listen, swarm.connect, --listen or --connect cannot be read.",
            "It lacks its protocol or port, or belongs to another transport.",
            'Write tcp/host:port, tls/host:port or quic/host:port; nats:// goes with swarm.transport = "nats".',
        ),
        "E-LINK-03": Entry(
            "TLS is incomplete",
            "An address asks for TLS without certificates, certificates are set and an address is plain, or a "
            "file of the folder cannot be read.",
            "swarm.tls and the addresses do not fit each other, or ca.pem, node.pem or node.key is missing.",
            "Let swarm.tls name a folder that `motet keys issue` has written, and write tls/ or quic/; or "
            "remove swarm.tls.",
        ),
        "E-LINK-04": Entry(
            "zenoh is not installed",
            'swarm.transport = "zenoh" needs a package that cannot be imported.',
            "It is not installed, or not for this machine.",
            "pip install 'motet[swarm]'",
        ),
        "E-LINK-05": Entry(
            "cannot listen",
            "An address of this node or relay cannot be listened on; the message has the system's reason.",
            "Another program has the port, the address is not this machine's, or a certificate does not fit its key.",
            "Choose another address or port, end what has it, or issue the certificate anew.",
        ),
        "E-RELAY-01": Entry(
            "nothing to relay",
            "The run file uses a transport other than zenoh, or no address to listen on is known.",
            "A relay carries zenoh only, and takes its ports from --listen or swarm.connect.",
            'Name an address with --listen tcp/0.0.0.0:7447, or set swarm.transport = "zenoh".',
        ),
        "E-RELAY-02": Entry(
            "members make no rules",
            "--members was given without certificates, or a name is both a node's and a relay's.",
            "Rules go by the names in certificates.",
            "Set swarm.tls, and give nodes and relays different names.",
        ),
        "E-SWARM-12": Entry(
            "another process has this node's key",
            "Somebody else speaks with this node's name and key, and began earlier.",
            "The node was started twice, here or on another machine to which its key was copied.",
            "Stop the other one, or give this node a name and a key of its own.",
        ),
        "E-SWARM-13": Entry(
            "the exchange has ended",
            "A part of the exchange with other nodes stopped working for good.",
            "This is a fault of motet's; the lines above it say more.",
            "The same command goes on from the last checkpoint. Please report it.",
        ),
        "E-SWARM-14": Entry(
            "the swarm refuses this node",
            "Every live peer says that it does not believe this node's credential.",
            "The invitation was used on another machine before, has been taken back, or has ended.",
            "Ask the owner of the swarm for an invitation of your own.",
        ),
    }
)
