"""The Crew protocol: the nodes of a run, wherever they live, and what they tell. All of it is plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from motet.swarm import Event, MemoryHub


class Turn(msgspec.Struct, frozen=True):
    """What a node has to say after a round, or after the examination before the first.

    Attributes:
        round: its number.
        metrics: numbers by metric name.
        samples: rows for the journal of completions.
        fault: why a completion could not be scored, the first time that it happens.
        events: what happened meanwhile.
    """

    round: int
    metrics: dict[str, int | float]
    samples: list[dict[str, Any]]
    fault: str | None = None
    events: list[Event] = []


class Kept(msgspec.Struct, frozen=True):
    """A node's part of a checkpoint, beside the files of its learner.

    Attributes:
        ledger: accounts of its peers.
        gate: what its gate remembers: groups that it has seen, strikes, quarantines.
        ahead: what it sampled for the next round, or None.
        archive_bytes: length of its archive.
    """

    ledger: dict[str, Any]
    gate: dict[str, Any]
    ahead: dict[str, Any] | None
    archive_bytes: int


class Facts(msgspec.Struct, frozen=True):
    """What the summary of a finished run says about a node.

    Attributes:
        task: name of what it learned.
        parameters: of its model.
        trained_parameters: those that training moved.
        optimizer_steps: steps taken.
        ledger: accounts of its peers.
    """

    task: str
    parameters: int
    trained_parameters: int
    optimizer_steps: int
    ledger: dict[str, Any]


class Identity(msgspec.Struct, frozen=True):
    """What must agree between nodes that learn from one another, and between two parts of a run.

    Attributes:
        task: fingerprint of the task: prompts, answers, rewards.
        tokenizer: fingerprint of the tokenizer.
        prompts: digest of the token ids of prompts, chat template and system message included.
        example: the first prompt as the model sees it, for people.
        commit: of a model that came from the hub.
    """

    task: str
    tokenizer: str
    prompts: str
    example: str
    commit: str | None = None


class Report(Protocol):
    """Whom a crew tells what happens, while it happens."""

    def begins(self, name: str, activity: str, *, round: int, waiting_for: Sequence[str] = ()) -> None:
        """A node begins a phase of `motet.node.Phase`, or "evaluate"."""
        ...

    def done(self, name: str, turn: Turn) -> None:
        """A node has finished a round."""
        ...


class Crew(Protocol):
    """All nodes of a run. Made with models loaded and, if the run goes on, its checkpoint restored."""

    @property
    def hubs(self) -> Mapping[str, MemoryHub]:
        """Where each node meets the others, if that is in the process that keeps the run."""
        ...

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What each node learns from."""
        ...

    def examine(self, report: Report) -> None:
        """Examine every node before training."""
        ...

    def play(self, first: int, until: int, *, report: Report, go_on: Callable[[], bool]) -> int:
        """Play rounds `first` to `until - 1` in every node.

        Args:
            first: round that all nodes begin with.
            until: the last round is the one before it.
            report: is told what happens.
            go_on: asked once before each round but the first; at False no node begins it.

        Returns:
            Rounds that every node has behind it: `until`, or fewer if it was not to go on.
        """
        ...

    def save(self, folder: Path) -> Mapping[str, Kept]:
        """Write every node's learner into a folder of its name inside `folder`; what else belongs to a checkpoint."""
        ...

    def finish(self, model_folder: Callable[[str], Path]) -> Mapping[str, Facts]:
        """Write every node's model and end."""
        ...
