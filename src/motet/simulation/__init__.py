"""N nodes in one process: a whole run with its journal, checkpoints and resume, deterministic from the seed."""

from motet.simulation.observer import Observer, Quiet
from motet.simulation.swarm import Outcome, run_swarm

__all__ = ["Observer", "Outcome", "Quiet", "run_swarm"]
