"""A whole run with its journal, checkpoints and resume: all nodes in one process, or each in one of its own.

`swarm` is the course of a run, `local` and `processes` are the two crews it can have; what they and a node's process
have in common is `station`. Only modules that nodes live in import torch: the process that gives orders needs none.
"""

from motet.simulation.course import Outcome
from motet.simulation.observer import Observer, Quiet
from motet.simulation.replay import run_replay
from motet.simulation.swarm import run_swarm
from motet.swarm import Event

__all__ = ["Event", "Observer", "Outcome", "Quiet", "run_replay", "run_swarm"]
