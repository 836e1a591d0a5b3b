"""Nodes of a swarm over the network, and watching them."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-NODE-01": Entry(
        "no node of this name",
        "--name names a node that the run file does not have.",
        "`motet node` runs one of the [[node]] tables of the run file.",
        "Use one of the names in the message, or add a [[node]] table.",
    ),
    "E-NODE-02": Entry(
        "the run file's nodes do not meet over a network",
        "`motet node` runs one node, and the others must find it.",
        "swarm.transport is memory or pipes, under which `motet swarm` runs all nodes on one machine.",
        'Set swarm.transport = "zenoh" or "nats", or use `motet swarm FILE`.',
    ),
    "E-NODE-03": Entry(
        "an invitation is needed",
        "The run file names swarm.authority, and this node has no invitation signed by it.",
        "With an authority, only invited nodes take part: nobody else is believed.",
        "Ask the owner of the swarm for `motet invite FILE --as NAME`, and run the line that it prints.",
    ),
    "E-NODE-04": Entry(
        "the node has another key than the run file says",
        "node.key in the run file is not the key in this machine's key folder.",
        "MOTET_HOME is another folder than before, or the run file is for another machine.",
        "Bring the key file back, or put the key that `motet keys show FILE` prints into node.key.",
    ),
    "E-NODE-05": Entry(
        "the node's credential cannot be used",
        "The file that `motet join` wrote is damaged, or speaks for another key than the node has.",
        "The key file or the credential was replaced or restored without the other.",
        "Bring the right key file back, or ask for a new invitation and use that.",
    ),
    "E-NODE-06": Entry(
        "another key of the swarm lies here",
        "swarm.authority in the run file is not the key in authority.pem of this machine.",
        "The run file was copied from another swarm, or a new authority was made.",
        "Put the line that `motet keys show FILE` prints under [swarm], or bring the right authority.pem back.",
    ),
    "E-NODE-07": Entry(
        "the roster is damaged",
        "roster/<node>.json in the run directory cannot be read, or belongs to another run.",
        "It holds which name is believed under which key; it was edited, cut off, or copied from another run.",
        "Restore it. Deleted, each name of the run file is believed under the next key that it shows.",
    ),
    "E-WATCH-01": Entry(
        "nothing that can be watched like this",
        "`motet watch` was given things of different kinds, a flag that means nothing for them, or a run file whose "
        "nodes do not meet over a network.",
        "It shows run directories, or listens on the network of one run file, or at addresses of one engine.",
        "Give it one of these; a run that stays in one process is watched by its directory: motet watch RUN.",
    ),
    "E-WATCH-02": Entry(
        "several runs to watch",
        "The directories given to `motet watch` belong to runs of different names.",
        "One view shows one run, with all its nodes.",
        "Name the directories of one run, such as runs/sums-*, or start one `motet watch` for each.",
    ),
    "E-JOIN-01": Entry(
        "no model to take",
        "None of the host's models can be loaded here or has the memory it needs, or the host names none.",
        "A guest takes the first of the host's models that fits its machine; models that lie only on the "
        "host's disk are not passed on.",
        "Say --model with a model of yours that has the same tokenizer.",
    ),
    "E-JOIN-02": Entry(
        "this machine is not ready",
        "A check before joining found a problem; its line says what and what to do.",
        "It would have stopped the node later, after models were loaded.",
        "Mend it and use the same invitation again; on this machine it stays yours.",
    ),
    "E-JOIN-03": Entry(
        "nobody answers",
        "None of the addresses in the invitation could be reached.",
        "The swarm or its relay is not running, or a firewall is in the way.",
        "Ask your host whether it runs, and try the same invitation again.",
    ),
    "E-JOIN-04": Entry(
        "invitation is in use elsewhere",
        "Another machine takes part with this invitation.",
        "An invitation lets in one machine: the first that uses it.",
        "Go on there, or ask your host to revoke it and to give you another.",
    ),
    "E-JOIN-05": Entry(
        "another task",
        "The task on this machine has another fingerprint than the swarm's.",
        "Its files, or the package that makes its prompts, differ; rewards computed here would not be the swarm's.",
        "Get the same files and versions from your host.",
    ),
    "E-JOIN-06": Entry(
        "a file is in the way",
        "The file that would hold the guest's settings is there, and `motet join` did not write it.",
        "Nothing of yours is overwritten.",
        "Move it, or say --name-dir with another folder.",
    ),
}
