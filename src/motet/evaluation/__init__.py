"""Held-out accuracy with its standard error.

Knows generators and tasks; knows neither learning nor peers.
"""

from motet.evaluation.accuracy import Accuracy, Evaluation, Sample, evaluate

__all__ = ["Accuracy", "Evaluation", "Sample", "evaluate"]
