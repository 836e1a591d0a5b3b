"""What training a model will take of memory, estimated from its configuration before a weight is read.

Rough on purpose: right to within a factor of about 2, to tell "will not fit" from "will fit" in a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from motet.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Precision = Literal["fp32", "bf16", "fp16"]

_FP32 = 4
_MAX_LOGITS = 2**24  # of one chunk, as `motet.core.logprobs` has it
_CHUNKS = 3  # logits, their probabilities, and the gradient
_CPU_BATCH_TOKENS = 1024  # a processor's micro-batches stay below, unless one prompt needs more
_COMPARED = 5  # fp32 gradients beside a peer's: two halves, their sum, AdamW's rates, and the part to add
_ADAPTER_KEEPS = 2  # measured with LoRA on every linear layer, whose outputs are added up from two
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Workload:
    """What a node does with its model.

    Attributes:
        precision: what forward and backward compute in.
        batch_tokens: tokens of a micro-batch (learner.max_batch_tokens).
        rows: completions that are sampled side by side.
        row_tokens: longest prompt with its completion, in tokens.
        gradient_checkpointing: activations are computed twice instead of kept.
        weighs_gradients: gradients are compared before the step (admission.max_influence = "by_gradient").
    """

    precision: Precision = "fp32"
    batch_tokens: int = 4096
    rows: int = 64
    row_tokens: int = 512
    gradient_checkpointing: bool = False
    weighs_gradients: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by use. Activations and cache are of different phases of a round, so the larger counts.

    Attributes:
        num_parameters: of the model with its adapter.
        num_trainable: of those that train.
        weights: in what the model computes in.
        masters: fp32 copies of trained weights, where the model computes in less.
        moments: AdamW's two fp32 numbers for each trained parameter.
        gradients: of trained parameters.
        activations: of one micro-batch, kept for the backward pass.
        logits: of one chunk of the output layer.
        cache: keys and values while sampling.
        loading: the whole model in fp32, with the masters, before it is cast.
    """

    num_parameters: int
    num_trainable: int
    weights: int
    masters: int
    moments: int
    gradients: int
    activations: int
    logits: int
    cache: int
    loading: int

    @property
    def total(self) -> int:
        """Largest number of bytes at any time."""
        learning = self.gradients + self.activations + self.logits
        running = self.weights + self.masters + self.moments + max(learning, self.cache + self.logits)
        return max(self.loading, running)

    def describe(self) -> str:
        """One line for people, in GiB."""
        parts = {
            "weights": self.weights,
            "fp32 masters": self.masters,
            "optimiser": self.moments,
            "gradients": self.gradients,
            "activations": self.activations,
            "logits": self.logits,
            "sampling cache": self.cache,
        }
        listed = ", ".join(f"{name} {size / _GIB:.2g}" for name, size in parts.items() if size)
        return f"about {self.total / _GIB:.2g} GiB ({listed})"


def estimate_memory(
    config: PreTrainedConfig,
    *,
    num_parameters: int,
    num_trainable: int,
    workload: Workload,
    device: torch.device,
) -> MemoryEstimate:
    """Estimate from numbers alone.

    A layer keeps for the backward pass, a token: its input twice, two normed inputs, queries, keys and values before
    and after rotation, the attention's output twice, and both projections of the feed-forward layer.

    Args:
        config: of the model (of its text part).
        num_parameters: of the model with its adapter.
        num_trainable: of those that train.
        workload: what the node does with it.
        device: where; a processor takes smaller micro-batches.
    """
    text = config.get_text_config()
    width = int(text.hidden_size)
    heads = int(text.num_attention_heads)
    head_width = int(getattr(text, "head_dim", None) or width // heads)
    keys = int(getattr(text, "num_key_value_heads", None) or heads) * head_width
    layers, inner = int(text.num_hidden_layers), int(getattr(text, "intermediate_size", None) or 4 * width)
    size = _FP32 if workload.precision == "fp32" else 2
    low = size < _FP32
    tokens = workload.batch_tokens
    if device.type == "cpu":
        tokens = min(tokens, max(_CPU_BATCH_TOKENS, workload.row_tokens))
    layer = tokens * size * (4 * width + 4 * heads * head_width + 3 * keys + 2 * inner)
    if num_trainable < num_parameters // 2:
        layer *= _ADAPTER_KEEPS
    kept = layers * tokens * size * width + layer if workload.gradient_checkpointing else layers * layer
    vocabulary = int(text.vocab_size)
    rows = max(1, min(tokens, _MAX_LOGITS // vocabulary))
    masters = _FP32 * num_trainable if low else 0
    return MemoryEstimate(
        num_parameters=num_parameters,
        num_trainable=num_trainable,
        weights=size * num_parameters,
        masters=masters,
        moments=2 * _FP32 * num_trainable,
        gradients=(_FP32 * (1 + _COMPARED * workload.weighs_gradients) + (size if low else 0)) * num_trainable,
        activations=kept,
        logits=_CHUNKS * _FP32 * rows * vocabulary,
        cache=2 * layers * keys * size * workload.rows * workload.row_tokens,
        loading=_FP32 * num_parameters + masters,
    )


def free_memory(device: torch.device) -> int | None:
    """Bytes that could be taken on the device now; None if this machine does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    limits = [_mem_available(Path("/proc/meminfo")), _left_in_group(Path("/sys/fs/cgroup"))]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _mem_available(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return kib[0] * 1024 if kib else None


def _left_in_group(folder: Path) -> int | None:
    """What a container's limit leaves."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() else None


def check_memory(
    name: str, config: PreTrainedConfig, estimate: MemoryEstimate, workload: Workload, *, device: torch.device
) -> None:
    """Refuse what cannot fit.

    Raises:
        UsageError: E-MODEL-16, with the estimate and with what would fit.
    """
    free = free_memory(device)
    if free is None or estimate.total <= free:
        return
    fitting = [change for change, smaller in _smaller(config, estimate, workload, device) if smaller.total <= free]
    advice = f"this would fit: {fitting[0]}" if fitting else "even with all of LoRA, bf16 and checkpointing it is more"
    raise UsageError(
        f"node.model {name!r} with {estimate.num_parameters / 1e6:.4g} million parameters needs {estimate.describe()}, "
        f"and {device} has {free / _GIB:.2g} GiB free; {advice}",
        code="E-MODEL-16",
    )


def _smaller(
    config: PreTrainedConfig, estimate: MemoryEstimate, workload: Workload, device: torch.device
) -> list[tuple[str, MemoryEstimate]]:
    """Ways to need less, the least intrusive first."""
    few = min(estimate.num_trainable, max(1, estimate.num_parameters // 100))
    checkpointed = replace(workload, gradient_checkpointing=True, batch_tokens=min(1024, workload.batch_tokens))
    half = replace(checkpointed, precision="bf16" if workload.precision == "fp32" else workload.precision)
    ways = [
        ("learner.gradient_checkpointing = true and a max_batch_tokens of 1024", checkpointed, estimate.num_trainable),
        ('those two and learner.precision = "bf16"', half, estimate.num_trainable),
        ("[node.lora]", workload, few),
        ("[node.lora], learner.gradient_checkpointing = true and a max_batch_tokens of 1024", checkpointed, few),
    ]
    return [
        (
            change,
            estimate_memory(
                config,
                num_parameters=estimate.num_parameters,
                num_trainable=trainable,
                workload=changed,
                device=device,
            ),
        )
        for change, changed, trainable in ways
    ]
