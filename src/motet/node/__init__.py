"""The round, and how a run file becomes nodes.

`assembly` is the only place where settings turn into objects; `node` is the only place where swarm, admission and
learner meet.
"""

from motet.node.assembly import (
    Assembly,
    Member,
    assemble_member,
    assemble_nodes,
    assemble_replay,
    policy_at,
    policy_of,
    settings_of,
    task_of,
)
from motet.node.examiner import Examiner
from motet.node.network import Seat, network_of, others_of, seat_of
from motet.node.node import Node, Phase, RoundReport
from motet.node.production import Stock
from motet.node.sampling import derived_seed

__all__ = [
    "Assembly",
    "Examiner",
    "Member",
    "Node",
    "Phase",
    "RoundReport",
    "Seat",
    "Stock",
    "assemble_member",
    "assemble_nodes",
    "assemble_replay",
    "derived_seed",
    "network_of",
    "others_of",
    "policy_at",
    "policy_of",
    "seat_of",
    "settings_of",
    "task_of",
]
