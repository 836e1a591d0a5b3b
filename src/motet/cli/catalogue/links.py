"""Engines, relays and the exchange between machines."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
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
    "E-LINK-10": Entry(
        "not an address of a NATS server",
        "swarm.connect names something that the NATS client could not even try.",
        "It lacks its scheme, host or port, or it belongs to zenoh.",
        'Write "nats://HOST:PORT", or "tls://HOST:PORT".',
    ),
    "E-LINK-11": Entry(
        "certificates for NATS cannot be used",
        "The folder swarm.tls lacks ca.pem, node.pem or node.key, or they do not belong together.",
        "It was copied in part, or is another node's.",
        "Let swarm.tls name a folder that `motet keys issue` has written.",
    ),
    "E-LINK-12": Entry(
        "TLS with the NATS server failed",
        "The server's certificate is not accepted, ours is not accepted by it, or it does not speak TLS at all.",
        "Another CA, a name that the certificate does not hold, dates, or a server without its tls section.",
        "Compare ca.pem on both sides and the name in swarm.connect; docs/nats.md has a configuration that works.",
    ),
    "E-LINK-13": Entry(
        "the NATS server refuses this node",
        "It knows no such user, or forbids something that a node needs.",
        "Its list of users or permissions does not have this node.",
        "Add the node as docs/nats.md shows; the message says what is forbidden.",
    ),
    "E-LINK-14": Entry(
        "the NATS server has no JetStream",
        "Groups are kept in a stream, and the server or this node's account has none.",
        "JetStream is off unless it is switched on.",
        "Start the server with -js or a jetstream section, and allow it to the account.",
    ),
    "E-LINK-15": Entry(
        "the NATS server takes smaller messages only",
        "The largest message of this run is longer than the server's max_payload.",
        "It is a megabyte unless its configuration says otherwise; long completions in large groups need more.",
        "Set max_payload in the server's configuration to the number in the message.",
    ),
    "E-LINK-16": Entry(
        "the stream holds less than the run needs",
        "The stream of this run exists, with other limits.",
        "It was made by hand, or by a run of other settings.",
        "Delete it at the server while no node is at work; it is made anew.",
    ),
    "E-LINK-17": Entry(
        "the NATS server does not make the stream",
        "It has no room for it, or forbids it.",
        "Old runs' streams fill its store, or its account has a limit.",
        "Give JetStream more room (max_file_store), or delete streams of old runs.",
    ),
    "E-LINK-18": Entry(
        "nats-py is not installed",
        'swarm.transport = "nats" needs a package that cannot be imported.',
        "It is an extra.",
        "pip install 'motet[nats]'",
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
    "E-SWARM-15": Entry(
        "another run's swarm",
        "Everybody that this node finds has the same run.name and seed, and differs in something that must agree.",
        "Task, tokenizer, prompts, group size or another line of the message differs: another file or another version.",
        "Use the same run file, files and versions as the others, or another run.name for a swarm of your own.",
    ),
    "E-SWARM-14": Entry(
        "the swarm refuses this node",
        "Every live peer says that it does not believe this node's credential.",
        "The invitation was used on another machine before, has been taken back, or has ended.",
        "Ask the owner of the swarm for an invitation of your own.",
    ),
}
