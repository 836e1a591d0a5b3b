"""Reading "<split>/<index>": one spelling for each prompt, whatever a peer sends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from motet.tasks.task import Split

_PATTERN = re.compile(r"(train|test|ood)/(0|[1-9][0-9]{0,11})")


def parse_prompt_id(prompt_id: str, num_prompts: Callable[[Split], int]) -> tuple[Split, int]:
    """Split and index of an id.

    Args:
        prompt_id: "<split>/<index>" with the index in ASCII digits and no leading zero.
        num_prompts: how many prompts each split has.

    Raises:
        KeyError: the id is spelled differently, or lies beyond the end of its split.

    >>> parse_prompt_id("train/17", lambda split: 100)
    ('train', 17)
    """
    match = _PATTERN.fullmatch(prompt_id)
    if match is None:
        raise KeyError(prompt_id)
    split, index = cast(Split, match[1]), int(match[2])
    if index >= num_prompts(split):
        raise KeyError(prompt_id)
    return split, index
