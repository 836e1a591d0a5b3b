"""Held-out accuracy: pass@1 and pass@k with intervals, and what became of the completions that failed.

Knows generators and tasks; knows neither learning nor peers.
"""

from motet.evaluation.accuracy import OUTCOMES, SOLVED_FROM, Evaluation, Outcome, Sample, evaluate, outcome_of
from motet.evaluation.choice import Choice, Difference, Solved, choose
from motet.evaluation.estimators import Accuracy, pass_at_k, wilson

__all__ = [
    "OUTCOMES",
    "SOLVED_FROM",
    "Accuracy",
    "Choice",
    "Difference",
    "Evaluation",
    "Outcome",
    "Sample",
    "Solved",
    "choose",
    "evaluate",
    "outcome_of",
    "pass_at_k",
    "wilson",
]
