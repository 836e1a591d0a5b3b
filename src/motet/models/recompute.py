"""Gradient checkpointing: a layer keeps its input alone, and is computed a second time in the backward pass.

The models of transformers do this only in training mode, which would switch dropout on; here it depends on nothing but
whether gradients are computed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from motet.errors import UsageError


def recompute_layers(name: str, model: torch.nn.Module) -> None:
    """Let every decoder layer of `model` compute its activations again instead of keeping them, in place.

    Args:
        name: the model's name, for messages.
        model: a model of transformers; parameters and their names stay.

    Raises:
        UsageError: E-MODEL-18 if its layers are not made for that.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers: Any = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UsageError(
            f"learner.gradient_checkpointing: node.model {name!r} is of an architecture that does not support it; "
            "use false, and a smaller learner.max_batch_tokens",
            code="E-MODEL-18",
        )
    for layer in layers:
        kind: Any = type(layer)
        layer.__class__ = _recomputed(kind)


@cache
def _recomputed(original: Any) -> type[torch.nn.Module]:
    class Recomputed(original):  # type: ignore[misc]  # the class is only known here
        """The same layer."""

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """As the original."""
            if not torch.is_grad_enabled():
                return super().forward(*args, **kwargs)
            return checkpoint(super().forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    Recomputed.__name__ = Recomputed.__qualname__ = original.__name__
    return Recomputed
