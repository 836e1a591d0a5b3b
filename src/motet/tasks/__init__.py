"""What is learned: prompts by id and split, and the reward of a text.

A task is a deterministic function of its settings, so a receiver can score again what a stranger sent. Knows neither
models nor tokens nor peers.
"""

from motet.tasks.faults import Faults, faults_of
from motet.tasks.jsonl import JsonLinesTask
from motet.tasks.loading import load_task
from motet.tasks.rewards import RewardFunction, load_reward
from motet.tasks.running_sums import RunningSums
from motet.tasks.task import SPLITS, Message, Prompt, Score, Split, Task

__all__ = [
    "SPLITS",
    "Faults",
    "JsonLinesTask",
    "Message",
    "Prompt",
    "RewardFunction",
    "RunningSums",
    "Score",
    "Split",
    "Task",
    "faults_of",
    "load_reward",
    "load_task",
]
