"""What is measured: an arm sets itself up, takes steps, and tells what it did. One file each; the tables are here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

from motet.errors import UsageError


class Arm(Protocol):
    """One contestant, alive in a process of its own. Constructed from one picklable argument; that is its set-up.

    Attributes:
        settings: how it works, for the reader and the JSON.
    """

    settings: Mapping[str, Any]

    def step(self) -> Mapping[str, float]:
        """Do the measured work once. Returns seconds of its parts where it knows them; whoever calls holds the clock.

        Work on a device need not have ended: the caller waits for it before reading the clock.
        """
        ...

    def figures(self) -> Mapping[str, Any]:
        """What the steps did, for the JSON."""
        ...


LEARNER_ARMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "trl": "motet.bench.trl_arm:TrlArm",
        "trl-docs": "motet.bench.trl_arm:TrlArm",
        "plain": "motet.bench.learner_arms:PlainLearner",
        "fast": "motet.bench.learner_arms:FastLearner",
    }
)
"""Arms of `bench learner` and where each is made."""

GENERATE_ARMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hf": "motet.bench.generate_arms:HuggingFaceArm",
        "plain": "motet.bench.generate_arms:PlainSampler",
        "fast": "motet.bench.generate_arms:FastSampler",
    }
)
"""Arms of `bench generate` and where each is made."""


def choose_arms(wanted: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """The names, each once, in the order in which they were given.

    >>> choose_arms(["fast", "plain", "fast"], LEARNER_ARMS)
    ['fast', 'plain']

    Raises:
        UsageError: E-BENCH-01 for a name that is not known, or for none.
    """
    for name in wanted:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f'; did you mean "{nearest[0]}"?' if nearest else ""
            raise UsageError(f'--arms: no arm "{name}"{hint}; arms are {", ".join(known)}', code="E-BENCH-01")
    if not wanted:
        raise UsageError(f"--arms: name one or more of {', '.join(known)}", code="E-BENCH-01")
    return list(dict.fromkeys(wanted))
