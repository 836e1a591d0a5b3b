"""From groups to one optimiser step: batches, scoring, loss, step, checkpoints of the policy.

Knows records and policies; knows neither tasks nor peers' trustworthiness nor how groups travel.
"""

from motet.learner.batch import Batch, build_batch
from motet.learner.checkpoint import load_learner, load_weights, save_learner
from motet.learner.learner import Learner, StepReport
from motet.learner.method import Method
from motet.learner.optimizer import OptimizerOptions
from motet.learner.trust import GradientTrust

__all__ = [
    "Batch",
    "GradientTrust",
    "Learner",
    "Method",
    "OptimizerOptions",
    "StepReport",
    "build_batch",
    "load_learner",
    "load_weights",
    "save_learner",
]
