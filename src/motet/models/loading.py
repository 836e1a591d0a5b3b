"""From a name in a run file to a policy on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from motet.errors import UsageError
from motet.models.lora import LoraOptions, add_lora
from motet.models.policy import Policy
from motet.models.quiet import quiet_libraries
from motet.models.tiny import tiny_path
from motet.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TINY_PREFIX = "tiny:"
_MAX_REASON = 200


def load_policy(
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "auto",
    lora: LoraOptions | None = None,
    seed: int = 0,
) -> Policy:
    """Load a causal language model with its tokenizer.

    Args:
        name: "tiny:small", "tiny:large", a Hugging Face folder, or a name that the local Hugging Face cache or the
            hub knows. Code from model folders is never run.
        dtype: of the weights in memory.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps".
        lora: train an adapter instead of the weights.
        seed: draws the adapter's initial weights.

    Raises:
        UsageError: E-MODEL-01 for an unknown tiny model, E-MODEL-02 for a folder that is missing or holds no usable
            model, E-MODEL-05 for adapter targets that do not fit, E-MODEL-06 for a device that is not there.
        EnvironmentFault: E-MODEL-03 for an architecture that motet cannot score, E-MODEL-04 without PEFT.
    """
    source = str(tiny_path(name)) if name.startswith(_TINY_PREFIX) else name
    where = resolve_device(device)
    causal, inner = _from_pretrained(name, source, dtype)
    causal.to(where)  # type: ignore[arg-type]  # stubs of transformers lack torch.device here
    tokenizer = Tokenizer(inner, end_token_ids=_end_token_ids(name, causal, inner), vocab_size=_vocab_size(causal))
    model = causal if lora is None else add_lora(causal, lora, seed=seed)
    return Policy(name, model=model, causal=causal, tokenizer=tokenizer, device=where)


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


def _from_pretrained(name: str, source: str, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(source).expanduser()
    # A name on the hub is "model" or "owner/model"; everything else is a path.
    if source.startswith((".", "/", "~")) or source.count("/") > 1 or folder.exists():
        if not (folder / "config.json").is_file():
            found = "has no config.json" if folder.is_dir() else "is a file" if folder.is_file() else "does not exist"
            raise UsageError(f"node.model {name!r}: the folder {found}; give a Hugging Face folder", code="E-MODEL-02")
        source = str(folder)
    try:
        with quiet_libraries():
            inner = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
            loaded: Any = AutoModelForCausalLM.from_pretrained(  # annotated as a model, here a pair
                source, dtype=dtype, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        why = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        if not folder.exists():
            why = f"no folder of that name here, and the hub did not give it ({type(error).__name__}: {why})"
        raise UsageError(f"node.model {name!r} cannot be loaded: {why}", code="E-MODEL-02") from error
    causal, info = loaded
    absent = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    if absent:
        raise UsageError(
            f"node.model {name!r}: {len(absent)} of the weights that config.json asks for, such as {absent[0]}, are "
            "missing in its files or have another shape; they would begin at random",
            code="E-MODEL-02",
        )
    return causal, inner


def _vocab_size(causal: PreTrainedModel) -> int:
    return int(causal.config.get_text_config().vocab_size)


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
