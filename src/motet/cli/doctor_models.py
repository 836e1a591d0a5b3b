"""What `motet doctor` looks at last: task, models, memory, devices. Loads no weights and downloads nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from motet.cli.doctor_checks import Case, Check, Finding, existing_folder
from motet.config import NodeSettings, RunFile
from motet.errors import MotetError

if TYPE_CHECKING:
    import torch

    from motet.models import MemoryEstimate
    from motet.tasks import Split

_GIB: Final = 2**30
_ON_THE_HUB: Final = ("gsm8k", "math500")
_BYTES_OF_A_TRAINED: Final = 12
"""A checkpoint keeps of each trained parameter its fp32 value and AdamW's two moments."""
_PATHS: Final = (".", "/", "~")
_TIGHT: Final = 0.9


def check_task(case: Case) -> Iterator[Finding]:
    """The prompts can be read, the rewards computed."""
    task = case.run.task
    hubs = [name for name in (task.name, task.ood) if name in _ON_THE_HUB]
    if hubs:
        yield Finding(
            "ok",
            "task",
            f"{' and '.join(hubs)} comes from the hub's cache, or is downloaded at the start; not opened here",
        )
        return
    from motet.tasks import load_task

    try:
        loaded = load_task(**task.model_dump())
    except MotetError as error:
        yield Finding("problem", "task", str(error))
        return
    counts = ", ".join(f"{loaded.num_prompts(split)} {words}" for split, words in _SPLITS)
    yield Finding("ok", "task", f"{loaded.name}: prompts: {counts}")


_SPLITS: Final[tuple[tuple[Split, str], ...]] = (
    ("train", "to train on"),
    ("test", "held out"),
    ("ood", "out of distribution"),
)


def check_method(case: Case) -> Iterator[Finding]:
    """Weights and rules of the user's own can be loaded, and return what they must."""
    method = case.run.method
    own = [name for name in (method.resolved_weights, method.resolved_rule) if ":" in name]
    if not own:
        return
    from motet.node.own_method import rule_of, weights_of

    try:
        weights_of(method.resolved_weights)
        rule_of(method.resolved_rule)
    except MotetError as error:
        yield Finding("problem", "method", str(error))
        return
    yield Finding("ok", "method", f"{' and '.join(own)} can be called")


def check_models(case: Case) -> Iterator[Finding]:
    """For each node: its model is here, its device too, and both fit; and the disk holds the checkpoints of all."""
    needed = 0
    for node in case.nodes:
        estimate = None
        for found in examine_model(case.run, node):
            if isinstance(found, Finding):
                yield found
            else:
                estimate = found
        if estimate is not None:
            needed += disk_of(case.run, estimate)
    if needed:
        yield _disk(case.run, needed)


MODELS: Final[tuple[Check, ...]] = (check_task, check_method, check_models)
"""In the order in which they are told."""


def warm_up() -> None:
    """Import what the models need, which takes seconds: meant for a thread beside the checks that wait."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: F401

    from motet.models import loading  # noqa: F401


def examine_model(run: RunFile, node: NodeSettings) -> Iterator[Finding | MemoryEstimate]:
    """What there is to say of a node's model, and the estimate if one can be made."""
    subject = f"model of {node.name}"
    folder = _in_hub_cache(node.model, node.revision)
    if folder is None and _is_hub_name(node.model):
        yield Finding(
            "warning",
            subject,
            f"{node.model} is not on this machine; it is downloaded from the hub at the start",
            f"fetch it now: hf download {node.model}",
        )
        return
    try:
        estimate = memory_of(run, node if folder is None else node.model_copy(update={"model": str(folder)}))
    except MotetError as error:
        yield Finding("problem", subject, str(error))
        return
    trained = f"{estimate.num_trainable / 1e6:.3g} of {estimate.num_parameters / 1e6:.3g} million parameters train"
    yield Finding("ok", subject, f"{node.model} on {_device(node)}: {trained}")
    yield _memory(node, estimate)
    yield estimate


def memory_of(run: RunFile, node: NodeSettings) -> MemoryEstimate:
    """What a node will need; of a hub model, its configuration is downloaded if it is not here.

    Raises:
        MotetError: what there is to say of the model or the device.
    """
    from motet.models.loading import model_memory
    from motet.models.lora import LoraOptions
    from motet.node.assembly import workload_of

    return model_memory(
        node.model,
        workload=workload_of(run, node),
        device=node.device,
        revision=node.revision if _is_hub_name(node.model) else None,
        lora=None if node.lora is None else LoraOptions(**node.lora.model_dump()),
        peft=node.peft,
        freeze=node.freeze,
    )


def fits(node: NodeSettings, estimate: MemoryEstimate) -> bool:
    """True if the estimate is within what the node's device has free, or that is not known."""
    free = _free(node)
    return free is None or estimate.total <= free


def disk_of(run: RunFile, estimate: MemoryEstimate) -> int:
    """Bytes that a node's checkpoints and its final model take."""
    kept = run.run.keep_checkpoints + 1 + run.run.keep_best  # one more while it is being written
    return kept * _BYTES_OF_A_TRAINED * estimate.num_trainable + 4 * estimate.num_parameters


def _memory(node: NodeSettings, estimate: MemoryEstimate) -> Finding:
    subject, free = f"memory of {node.name}", _free(node)
    if free is None:
        return Finding("ok", subject, f"{estimate.describe()}; this device does not say what is free")
    shown = f"{estimate.describe()}, {free / _GIB:.2g} GiB free"
    if estimate.total > free:
        todo = "[node.lora], learner.gradient_checkpointing, a smaller max_batch_tokens, or a smaller model"
        return Finding("problem", subject, shown, todo)
    if estimate.total > _TIGHT * free:
        return Finding("warning", subject, shown, "close: the estimate may be off by a factor of 2")
    return Finding("ok", subject, shown)


def _free(node: NodeSettings) -> int | None:
    from motet.models.memory import free_memory

    return free_memory(_device(node))


def _device(node: NodeSettings) -> torch.device:
    from motet.models.loading import resolve_device

    return resolve_device(node.device)


def _disk(run: RunFile, needed: int) -> Finding:
    free = shutil.disk_usage(existing_folder(Path(run.run.dir))).free
    shown = f"checkpoints and models take about {needed / _GIB:.2g} GiB, {free / _GIB:.1f} GiB free in {run.run.dir}"
    if needed > free:
        return Finding("problem", "disk", shown, "free some, set run.dir to another disk, or lower keep_checkpoints")
    return Finding("ok", "disk", shown)


def _is_hub_name(name: str) -> bool:
    """A name that is no tiny or packaged model, no file and no folder."""
    is_path = name.startswith(_PATHS) or name.count("/") > 1 or name.endswith(".gguf") or Path(name).exists()
    return not is_path and ":" not in name


def _in_hub_cache(name: str, revision: str | None) -> Path | None:
    """The folder of a hub model with its weights, if an earlier download left it here."""
    if not _is_hub_name(name):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder is not None and any(folder.glob("*.safetensors")) else None
