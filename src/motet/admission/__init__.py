"""Whom we believe: bytes of a stranger in, a `Verdict` out.

Nothing that a peer sends raises or stops a node here. Gets the task, `decode` and the assignment by injection; knows
neither models nor how parcels travel, and never imports `motet.swarm`.
"""

from motet.admission.gate import Gate, GateRules
from motet.admission.verdict import Reason, Verdict

__all__ = ["Gate", "GateRules", "Reason", "Verdict"]
