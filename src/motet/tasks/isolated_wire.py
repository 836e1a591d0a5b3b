"""What the scoring process and its parent say to each other: prompts and scores as plain JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from motet.tasks.task import Message, Prompt, Score


def encode(value: object) -> bytes:
    """JSON; what JSON has no word for is written as its text. Lone surrogates survive."""
    return json.dumps(value, default=repr).encode()


def prompt_to_json(prompt: Prompt) -> dict[str, Any]:
    """A prompt as JSON has it."""
    return {
        "id": prompt.id,
        "text": prompt.text,
        "answer": prompt.answer,
        "columns": dict(prompt.columns),
        "messages": [list(message) for message in prompt.messages],
    }


def prompt_from_json(found: Mapping[str, Any]) -> Prompt:
    """The prompt that `prompt_to_json` wrote."""
    messages = tuple(Message(*message) for message in found["messages"])
    return Prompt(found["id"], found["text"], found["answer"], found["columns"], messages)


def scores_to_json(scores: Sequence[Score | None]) -> list[Any]:
    """Scores as JSON has them; one whose value is not finite is none.

    >>> scores_from_json(scores_to_json([Score(1.0, {"answer": 1.0}, "7"), Score(float("nan"))]))
    [Score(value=1.0, parts={'answer': 1.0}, extracted='7'), None]
    """
    return [
        [float(score.value), {str(name): float(part) for name, part in score.parts.items()}, score.extracted]
        if score is not None and math.isfinite(score.value)
        else None
        for score in scores
    ]


def scores_from_json(found: Sequence[Any]) -> list[Score | None]:
    """The scores that `scores_to_json` wrote."""
    return [None if one is None else Score(one[0], one[1], one[2]) for one in found]
