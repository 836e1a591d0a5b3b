"""A model without weights: its parameters can be counted, and adapters tried on it, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from motet.models.adapters import add_adapter
from motet.models.freezing import freeze
from motet.models.lora import LoraOptions, add_lora

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class Training(NamedTuple):
    """What trains of a model.

    Attributes:
        lora: a LoRA adapter, or None.
        peft: another adapter of PEFT, or None.
        freeze: patterns of parameters that do not train.
        seed: draws what an adapter begins with.
    """

    lora: LoraOptions | None = None
    peft: Mapping[str, Any] | None = None
    freeze: Sequence[str] = ()
    seed: int = 0

    def applied_to(self, causal: PreTrainedModel) -> torch.nn.Module:
        """The model to train: with its adapter, and the frozen parts frozen."""
        model: torch.nn.Module = causal
        if self.lora is not None:
            model = add_lora(causal, self.lora, seed=self.seed)
        elif self.peft is not None:
            model = add_adapter(causal, self.peft, seed=self.seed)
        freeze(model, self.freeze)
        return model


def count_parameters(config: PreTrainedConfig, training: Training) -> tuple[int, int]:
    """Parameters of the model with its adapter, and those of them that train.

    Raises:
        UsageError: for adapters and patterns that do not fit (E-MODEL-05, -13, -14).
    """
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        skeleton: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        skeleton.tie_weights()
        model = training.applied_to(skeleton)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
