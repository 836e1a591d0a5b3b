"""What the arms of `bench learner` are made from. Plain data, so that whoever starts them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from motet.bench.batch import BenchBatch
from motet.bench.models import BenchModel

LEARNING_RATE: Final = 1e-6
"""So small that the batch stays what it was drawn to be, however many steps are taken on it."""

TrlMode = Literal["fp32", "bf16-autocast", "bf16-weights"]


@dataclass(frozen=True, slots=True)
class TrlSettings:
    """How TRL is configured.

    Attributes:
        mode: fp32; fp32 weights under bf16 autocast (bf16=True, TRL's default); or weights and AdamW in bf16.
        rows: completions of a micro-batch (per_device_train_batch_size); the rest is gradient accumulation.
        checkpointing: gradient checkpointing (TRL's default: on).
        chosen: how these settings came about.
    """

    mode: TrlMode
    rows: int
    checkpointing: bool
    chosen: str = "given"


@dataclass(frozen=True, slots=True, eq=False)
class LearnerSetup:
    """What one arm gets.

    Attributes:
        model: the model.
        batch: the groups.
        dtype: what motet's forward and backward compute in.
        max_batch_tokens: motet's micro-batches.
        trl: TRL's settings; None for motet's arms.
    """

    model: BenchModel
    batch: BenchBatch
    dtype: Literal["fp32", "bf16"]
    max_batch_tokens: int
    trl: TrlSettings | None = None


def documented(num_rows: int) -> TrlSettings:
    """The defaults of TRL's GRPOConfig: bf16 autocast, 8 completions to a micro-batch, gradient checkpointing."""
    return TrlSettings("bf16-autocast", divisor(num_rows, 8), checkpointing=True, chosen="TRL's defaults")


def divisor(total: int, rows: int) -> int:
    """The largest divisor of `total` that is not above `rows`.

    >>> divisor(64, 8), divisor(12, 8)
    (8, 6)
    """
    return next(number for number in range(min(rows, total), 0, -1) if total % number == 0)
