"""LoRA through PEFT: the one file that imports it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from motet.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Size and place of an adapter.

    Attributes:
        rank: rank of the update.
        alpha: the update is scaled by alpha / rank.
        target_modules: names of the layers that get one, or "all-linear" (all but the output layer).
    """

    rank: int
    alpha: float
    target_modules: Sequence[str] | Literal["all-linear"]


def add_lora(model: PreTrainedModel, options: LoraOptions, *, seed: int) -> torch.nn.Module:
    """Wrap the model so that only the adapter trains; its A matrices are drawn from `seed`.

    Raises:
        EnvironmentFault: E-MODEL-04 if PEFT is not installed.
        UsageError: E-MODEL-05 if no layer has one of the names, or one of them is the output layer.
    """
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError:
        raise EnvironmentFault(
            "node.lora needs the package peft; install it with: pip install 'motet[lora]'", code="E-MODEL-04"
        ) from None
    if options.target_modules == "all-linear":
        target: str | list[str] = "all-linear"
    else:
        target = list(options.target_modules)
        _check_targets(model, target)
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=options.rank,
        lora_alpha=options.alpha,  # type: ignore[arg-type]  # annotated int, any number works
        target_modules=target,
        lora_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Between these two packages; neither we nor our users can do anything about it.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def _check_targets(model: PreTrainedModel, names: list[str]) -> None:
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    short = sorted({name.rsplit(".", 1)[-1] for name in linear})
    head = next((n for n, m in model.named_modules() if m is model.get_output_embeddings()), None)
    for name in names:
        if head is not None and (name == head or head.endswith(f".{name}")):
            raise UsageError(
                f"node.lora.target_modules: {name!r} is the output layer, which motet does not adapt; leave it out",
                code="E-MODEL-05",
            )
        if not any(full == name or full.endswith(f".{name}") for full in linear):
            raise UsageError(
                f"node.lora.target_modules: the model has no linear layer {name!r}; it has {', '.join(short)}",
                code="E-MODEL-05",
            )
