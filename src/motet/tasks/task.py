"""The Task protocol: prompts by id and split, and the reward of a text.

A task is a deterministic function of its settings: two nodes with the same settings see the same prompt under the
same id and give the same text the same reward. That is what lets a receiver score what a stranger sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

Split = Literal["train", "test", "ood"]
SPLITS: tuple[Split, ...] = ("train", "test", "ood")


class Message(NamedTuple):
    """One turn of a chat.

    Attributes:
        role: "system", "user" or "assistant".
        content: its text.
    """

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One exercise.

    Attributes:
        id: "<split>/<index>", for example "train/17".
        text: what the model continues where there is no chat; for people, what is asked.
        answer: the reference answer; never travels.
        columns: further columns of the row, for reward functions that ask for them.
        messages: the same as a chat. Empty: `text` as one message of the user's.
    """

    id: str
    text: str
    answer: str
    columns: Mapping[str, object] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """What a completion earned.

    Attributes:
        value: the reward that GRPO sees. Finite.
        parts: named components, for reading (such as {"format": 1.0, "answer": 0.0}).
        extracted: the answer found in the text, if any.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: str | None = None


class Task(Protocol):
    """Prompts and rewards. Implementations MUST be deterministic and MUST NOT raise from `score` on any text."""

    @property
    def name(self) -> str:
        """Name for reports, such as "running_sums"."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything that decides prompts and rewards; equal on nodes that may train together."""
        ...

    def num_prompts(self, split: Split) -> int:
        """How many prompts the split has; 0 if the task has no such split."""
        ...

    def prompt(self, prompt_id: str) -> Prompt:
        """The prompt with this id. Raises `KeyError` for an id that this task does not have."""
        ...

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """Scores one by one; None where the reward could not be computed (that sample is excluded)."""
        ...
