"""Parts of a model that do not train, by the names of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch

from motet.errors import UsageError

_IN_ADAPTER = "base_model.model."
_NUM_NEAR = 4


def freeze(model: torch.nn.Module, patterns: Sequence[str]) -> None:
    """Exclude parameters from training.

    A matrix that is embedding and output layer in one goes by both names.

    Args:
        model: the model that is trained.
        patterns: names, with * and ? for any text and any character, such as "model.layers.0.*".

    Raises:
        UsageError: E-MODEL-14 for a pattern that fits no parameter, or if nothing is left to train.
    """
    named = {
        name.removeprefix(_IN_ADAPTER): parameter for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    for pattern in patterns:
        fitting = [name for name in named if fnmatchcase(name, pattern.removeprefix(_IN_ADAPTER))]
        if not fitting:
            near = get_close_matches(pattern, named, n=_NUM_NEAR, cutoff=0.0)
            raise UsageError(
                f'node.freeze: "{pattern}" fits no parameter of the model; near it are {", ".join(near)}',
                code="E-MODEL-14",
            )
        for name in fitting:
            named[name].requires_grad_(False)
    if patterns and not any(parameter.requires_grad for parameter in named.values()):
        raise UsageError(f"node.freeze: {', '.join(patterns)} leave nothing to train; freeze less", code="E-MODEL-14")
