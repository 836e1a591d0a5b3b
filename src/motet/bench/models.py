"""The models that are measured: the tiny ones, any folder, and architectures of real size with weights by seed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from motet.errors import UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from motet.bench.flops import ModelSize
    from motet.models import Policy

SMOLLM2: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
        "rope_parameters": MappingProxyType({"rope_type": "default", "rope_theta": 100_000.0}),
    }
)
"""The architecture of SmolLM2-135M. Its weights are drawn here: what is measured does not depend on them."""

_NAMED = ("smollm2-135m", "tiny:small", "tiny:large")
_LLAMA = re.compile(r"llama:(\d+)x(\d+)x(\d+)")
LORA_RANK, LORA_ALPHA = 16, 32.0


@dataclass(frozen=True, slots=True)
class BenchModel:
    """Which model, and how it is set up.

    Attributes:
        name: "smollm2-135m", "tiny:small", "tiny:large", "llama:<hidden>x<layers>x<vocabulary>", or a folder.
        lora: train an adapter of rank 16 on all linear layers instead of the weights.
        seed: draws weights where there are none.
    """

    name: str
    lora: bool = False
    seed: int = 0


def check_model(name: str) -> None:
    """Raise UsageError (E-BENCH-01) for a name that no arm could load. Imports nothing heavy."""
    if name in _NAMED or _LLAMA.fullmatch(name) or (Path(name).expanduser() / "config.json").is_file():
        return
    nearest = difflib.get_close_matches(name, _NAMED, n=1)
    hint = f'; did you mean "{nearest[0]}"?' if nearest else ""
    raise UsageError(
        f'--model: no model "{name}"{hint}; models are {", ".join(_NAMED)}, llama:<hidden>x<layers>x<vocabulary> '
        "with weights drawn at random, or a Hugging Face folder",
        code="E-BENCH-01",
    )


def build_policy(model: BenchModel, *, plain: bool = False) -> Policy:
    """A policy on "auto" device in fp32. Its end token is outside the vocabulary, so that nothing ends a completion.

    Args:
        model: which.
        plain: take the padded paths, as an architecture does that cannot attend by plan.
    """
    from motet.models import Policy, Tokenizer
    from motet.models.loading import resolve_device

    causal, inner = build_causal(model)
    vocab_size = int(causal.config.get_text_config().vocab_size)
    device = resolve_device("auto")
    policy = Policy(
        model.name,
        model=wrap(causal, model),
        causal=causal,
        tokenizer=Tokenizer(inner, end_token_ids=(vocab_size,), vocab_size=vocab_size),
        device=device,
    )
    if plain:
        policy.takes_plans = False
    return policy


def build_causal(model: BenchModel) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The Hugging Face model in fp32 on the "auto" device, as everybody gets it, and a tokenizer."""
    from transformers import AutoTokenizer

    from motet.models import load_policy, tiny_path
    from motet.models.loading import resolve_device
    from motet.models.quiet import quiet_libraries

    device = resolve_device("auto")
    if model.name == "smollm2-135m" or _LLAMA.fullmatch(model.name):
        with quiet_libraries():
            inner = AutoTokenizer.from_pretrained(tiny_path("tiny:small"))
        return _random_llama(model, device), inner
    from transformers import AutoModelForCausalLM

    load_policy(model.name)  # complains in one line if it cannot be used
    source = str(tiny_path(model.name)) if model.name.startswith("tiny:") else model.name
    with quiet_libraries():
        inner = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        causal = AutoModelForCausalLM.from_pretrained(source, dtype="float32", trust_remote_code=False)
    return causal.to(device), inner  # type: ignore[arg-type]  # stubs of transformers lack torch.device here


def wrap(causal: PreTrainedModel, model: BenchModel) -> torch.nn.Module:
    """The model with its adapter, if one is trained."""
    from motet.models.lora import LoraOptions, add_lora

    if not model.lora:
        return causal
    return add_lora(causal, LoraOptions(LORA_RANK, LORA_ALPHA, "all-linear"), seed=model.seed)


def size_of(policy: Policy) -> ModelSize:
    """What decides the count of floating-point operations."""
    import torch

    from motet.bench.flops import ModelSize

    config = policy.config
    head = policy.head
    adapter = [name for name in policy.trainable() if "lora_" in name]
    linear = {
        id(module): module.weight.numel()
        for name, module in policy.model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head and "lora_" not in name
    }
    heads = int(config.num_attention_heads)
    head_width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return ModelSize(
        matrix_weights=sum(linear.values()),
        adapter_weights=sum(policy.trainable()[name].numel() for name in adapter),
        layers=int(config.num_hidden_layers),
        heads_width=heads * int(head_width),
        hidden=int(config.hidden_size),
        vocab=policy.vocab_size,
    )


def _random_llama(model: BenchModel, device: torch.device) -> PreTrainedModel:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    options: dict[str, Any] = {**SMOLLM2, "rope_parameters": dict(SMOLLM2["rope_parameters"])}
    found = _LLAMA.fullmatch(model.name)
    if found is not None:
        hidden, layers, vocab = (int(number) for number in found.groups())
        heads = max(1, hidden // 64)
        options |= {
            "hidden_size": hidden,
            "intermediate_size": hidden * 8 // 3 // 8 * 8,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "vocab_size": vocab,
        }
    config = LlamaConfig(**options, pad_token_id=0, bos_token_id=None, eos_token_id=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(model.seed)
        causal: PreTrainedModel = LlamaForCausalLM(config).float().eval()
    causal.to(device)  # type: ignore[arg-type]  # as above
    return causal
