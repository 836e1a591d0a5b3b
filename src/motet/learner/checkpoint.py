"""The learner's state on disk: fp32 master weights, AdamW's moments, counters. safetensors and JSON, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from motet.errors import RunFailed
from motet.learner.learner import Learner
from motet.models import Policy

_WEIGHTS_FILE = "weights.safetensors"
_OPTIMIZER_FILE = "optimizer.safetensors"
_COUNTERS_FILE = "learner.json"


def save_learner(folder: Path, learner: Learner) -> None:
    """Write the state into an existing folder. The caller makes the folder appear as a whole, by renaming it."""
    optimizer = learner.optimizer
    weights = {name: master.detach().cpu() for name, master in zip(optimizer.names, optimizer.masters, strict=True)}
    save_file(weights, folder / _WEIGHTS_FILE)
    moments = {
        f"{name}/{key}": value.detach().cpu()
        for name, master in zip(optimizer.names, optimizer.masters, strict=True)
        for key, value in optimizer.adamw.state.get(master, {}).items()
    }
    save_file(moments, folder / _OPTIMIZER_FILE)
    (folder / _COUNTERS_FILE).write_text(json.dumps(learner.counters()) + "\n", encoding="utf-8")


def load_learner(folder: Path, learner: Learner) -> None:
    """Continue from a saved state.

    Raises:
        RunFailed: E-CHECKPOINT-01 if a file is missing or damaged, or belongs to another model.
    """
    optimizer = learner.optimizer
    masters = dict(zip(optimizer.names, optimizer.masters, strict=True))
    _read_weights(folder, masters)
    optimizer.publish()
    try:
        saved = load_file(folder / _OPTIMIZER_FILE)
        counters = json.loads((folder / _COUNTERS_FILE).read_text(encoding="utf-8"))
        learner.restore_counters(counters)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    moments = _by_parameter(folder, saved, masters)
    if bool(moments) != (learner.policy_step > 0):
        raise _damaged(folder, f"{len(moments)} parameters have moments after {learner.policy_step} steps")
    for name, parts in moments.items():
        master = masters[name]  # the fused AdamW wants its step on the parameter's device too
        optimizer.adamw.state[master] = {kind: value.to(master.device) for kind, value in parts.items()}


def load_weights(folder: Path, policy: Policy) -> None:
    """Put a checkpoint's weights into a policy that was loaded in fp32. Raises RunFailed as `load_learner`."""
    _read_weights(folder, policy.trainable())


@torch.no_grad()
def _read_weights(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    try:
        weights = load_file(folder / _WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise _damaged(folder, error) from error
    if set(weights) != set(tensors):
        raise _damaged(folder, "its weights have other names than this model's")
    for name, tensor in tensors.items():
        if weights[name].shape != tensor.shape:
            raise _damaged(folder, f"{name} has shape {tuple(weights[name].shape)}, not {tuple(tensor.shape)}")
        tensor.copy_(weights[name])


def _by_parameter(
    folder: Path, saved: Mapping[str, torch.Tensor], masters: Mapping[str, torch.Tensor]
) -> dict[str, dict[str, torch.Tensor]]:
    """AdamW's state of each parameter, all of it and of the right shape."""
    moments: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in saved.items():
        name, _, kind = key.rpartition("/")
        moments.setdefault(name, {})[kind] = value
    for name, parts in moments.items():
        shapes = {kind: value.shape for kind, value in parts.items()}
        master = masters.get(name)
        if master is None or shapes != {"step": torch.Size(), "exp_avg": master.shape, "exp_avg_sq": master.shape}:
            raise _damaged(folder, f"its optimiser state of {name} does not fit this model")
    return moments


def _damaged(folder: Path, why: object) -> RunFailed:
    return RunFailed(
        f"{folder}: this checkpoint cannot be used ({why}); remove the folder to continue from the one before",
        code="E-CHECKPOINT-01",
    )
