"""What is said about one error code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said about one code.

    Attributes:
        title: a few words.
        happened: what motet found.
        why: how that comes about.
        todo: how to mend it.
    """

    title: str
    happened: str
    why: str
    todo: str
