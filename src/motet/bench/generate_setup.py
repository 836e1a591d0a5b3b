"""What the arms of `bench generate` are made from. Plain data, so that whoever starts them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from motet.bench.models import BenchModel


@dataclass(frozen=True, slots=True)
class GenerateSetup:
    """What an arm of `bench generate` is made from.

    Attributes:
        model: the model.
        prompt: mean length of a prompt; they spread evenly over +-10 %.
        prompts: number of prompts.
        group_size: completions of each.
        new_tokens: tokens of every completion; nothing ends one before.
        dtype: what the weights are in.
        seed: of prompts and sampling.
    """

    model: BenchModel
    prompt: int
    prompts: int
    group_size: int
    new_tokens: int
    dtype: Literal["fp32", "bf16"]
    seed: int = 0
