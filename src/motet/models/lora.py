"""LoRA through PEFT. This is the one file that imports it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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


def import_peft(key: str) -> Any:
    """The package peft, for the setting `key`. Raises EnvironmentFault (E-MODEL-04) without it."""
    try:
        import peft
    except ImportError:
        raise EnvironmentFault(
            f"{key} needs the package peft; install it with: pip install 'motet[lora]'", code="E-MODEL-04"
        ) from None
    return peft


def add_lora(model: PreTrainedModel, options: LoraOptions, *, seed: int) -> torch.nn.Module:
    """Wrap the model so that only the adapter trains; its A matrices are drawn from `seed`.

    Raises:
        EnvironmentFault: E-MODEL-04 if PEFT is not installed.
        UsageError: E-MODEL-05 if no layer has one of the names, or one of them is the output layer.
    """
    peft = import_peft("node.lora")
    if options.target_modules == "all-linear":
        target: str | list[str] = "all-linear"
    else:
        target = list(options.target_modules)
        _check_targets(model, target)
    config = peft.LoraConfig(
        task_type=peft.TaskType.CAUSAL_LM,
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=target,
        lora_dropout=0.0,
    )
    return wrap(peft, model, config, seed=seed)


def wrap(peft: Any, model: PreTrainedModel, config: Any, *, seed: int) -> torch.nn.Module:
    """The model with the adapter of a PEFT config, drawn from `seed`; global random state stays."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Between these two packages; neither we nor our users can do anything about it.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        # Whoever asks for a tied layer is refused after it, with the reason.
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`", category=UserWarning)
        warnings.filterwarnings("ignore", message="Unsupported layer type .*Norm", category=UserWarning)  # norms work
        torch.manual_seed(seed)
        wrapped: torch.nn.Module = peft.get_peft_model(model, config)
    return wrapped


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
