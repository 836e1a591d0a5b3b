"""Measures motet side by side with the alternative in one run: learner, sampler, wire, overlap, growth.

Each contestant ("arm") runs in a process of its own, and they take turns, so that a change of the machine's mood
meets all of them. Knows how to time and to count; knows nothing of the command line, of reports or of a run's loop.
Importing this package imports no torch: the processes that are measured do.
"""

from motet.bench.learner import LearnerBench, bench_learner

__all__ = ["LearnerBench", "bench_learner"]
