"""A policy as an ordinary Hugging Face folder, which plain transformers must load before it is handed over."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from motet.errors import RunFailed, UsageError
from motet.models import Policy
from motet.models.lora import import_peft
from motet.models.quiet import quiet_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LONGEST_SAMPLE = 512
_TOLERANCE: Final = {torch.float32: 1e-3}
_TOLERANCE_OTHERWISE = 0.25
_MAX_REASON = 200


@dataclass(frozen=True, slots=True)
class Base:
    """The model that an adapter changes, as plain transformers finds it.

    Attributes:
        name: hub name or folder.
        revision: commit of a hub model, if it is known.
    """

    name: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """How the exported folder compares with the policy.

    Attributes:
        max_difference: largest difference of a token's log-prob, in nats.
        num_tokens: tokens compared.
    """

    max_difference: float
    num_tokens: int


def export_policy(
    policy: Policy,
    folder: Path,
    *,
    base: Base | None,
    merge: bool,
    card: str,
    chat_template: str | None,
    samples: Sequence[Sequence[int]],
) -> Check:
    """Write a folder that plain transformers (an adapter: with peft) loads, and check that it computes the same.

    It is written aside and renamed when the check has passed. A policy that is merged is of no further use.

    Args:
        policy: the model, with an adapter or without.
        folder: must not exist, or be empty.
        base: what an adapter's folder names as its base; None for a whole model.
        merge: put the adapter into the weights.
        card: text of README.md.
        chat_template: Jinja text to use instead of the tokenizer's.
        samples: token ids of some texts; what comes after the first 512 ids is left out.

    Raises:
        UsageError: E-EXPORT-01, something lies there; E-EXPORT-03, this adapter cannot be merged.
        RunFailed: E-EXPORT-02, the folder cannot be loaded or gives other log-probs. Nothing is left of it.
    """
    refuse_to_overwrite(folder)
    samples = [sample[:_LONGEST_SAMPLE] for sample in samples]
    expected = [_log_probs_of_policy(policy, sample) for sample in samples]
    partial = folder.absolute().with_name(f".{folder.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write(policy, partial, base=base, merge=merge, chat_template=chat_template)
        (partial / "README.md").write_text(card, encoding="utf-8")
        check = _check(partial, samples, expected, base=base, device=policy.device)
        tolerance = _TOLERANCE.get(next(policy.head.parameters()).dtype, _TOLERANCE_OTHERWISE)
        if not check.max_difference <= tolerance:
            raise RunFailed(
                f"{folder}: removed; loaded again, it gives log-probs that differ by up to {check.max_difference:.3g} "
                f"nats (at most {tolerance:g})",
                code="E-EXPORT-02",
            )
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return check


def refuse_to_overwrite(folder: Path) -> None:
    """Raise UsageError (E-EXPORT-01) unless the folder can be made, or is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is there already; name another folder, or delete it", code="E-EXPORT-01")


def _write(policy: Policy, folder: Path, *, base: Base | None, merge: bool, chat_template: str | None) -> None:
    from transformers import GenerationConfig

    model: Any = policy.model
    config = model.generation_config or GenerationConfig()
    config.eos_token_id = list(policy.tokenizer.end_token_ids)  # so that plain generate ends where motet did
    with warnings.catch_warnings(), quiet_libraries():
        warnings.simplefilter("ignore")  # of packages about each other; the check below is what counts
        if merge:
            _merged(model).save_pretrained(str(folder))
            policy.tokenizer.save(str(folder))
        else:
            policy.save(folder)
        config.save_pretrained(str(folder))
    if base is not None:
        path = folder / "adapter_config.json"
        adapter = json.loads(path.read_text(encoding="utf-8"))
        adapter.update(base_model_name_or_path=base.name, revision=base.revision)
        for key in ("target_modules", "exclude_modules"):  # sets, in a different order every time
            adapter[key] = sorted(adapter[key]) if isinstance(adapter.get(key), list) else adapter.get(key)
        path.write_text(json.dumps(adapter, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def _merged(model: Any) -> Any:
    try:
        return model.merge_and_unload(safe_merge=True)
    except (AttributeError, ValueError, NotImplementedError, TypeError) as error:
        raise UsageError(
            f"--merge: this adapter cannot be merged into the weights ({_one_line(error)}); export it as it is",
            code="E-EXPORT-03",
        ) from error


def _check(
    folder: Path,
    samples: Sequence[Sequence[int]],
    expected: Sequence[torch.Tensor],
    *,
    base: Base | None,
    device: torch.device,
) -> Check:
    from safetensors import SafetensorError
    from transformers import AutoTokenizer

    try:
        with warnings.catch_warnings(), quiet_libraries():
            warnings.simplefilter("ignore")
            AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
            model = _load_plain(folder, base).to(device).eval()  # type: ignore[arg-type]
            found = [_log_probs_of_model(model, sample, device) for sample in samples]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise RunFailed(
            f"the exported folder was removed: it cannot be used ({_one_line(error)})", code="E-EXPORT-02"
        ) from error
    gaps = [float((ours - theirs).abs().max()) for ours, theirs in zip(expected, found, strict=True) if len(ours)]
    return Check(max(gaps, default=0.0), sum(len(log_probs) for log_probs in expected))


def _load_plain(folder: Path, base: Base | None) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    source, revision = (str(folder), None) if base is None else (base.name, base.revision)
    options: dict[str, Any] = {} if revision is None else {"revision": revision}
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, trust_remote_code=False, **options)
    if base is not None:
        model = import_peft("motet export").PeftModel.from_pretrained(model, str(folder))
    loaded: PreTrainedModel = model
    return loaded


@torch.inference_mode()
def _log_probs_of_policy(policy: Policy, token_ids: Sequence[int]) -> torch.Tensor:
    """Log-prob of each id but the first, by motet's own way through the model."""
    ids_BT = torch.tensor([list(token_ids)], device=policy.device)
    positions_BT = torch.arange(ids_BT.shape[1], device=policy.device)[None]
    return _taken(policy.logits(policy.hidden_states(ids_BT, positions_BT)[0]), ids_BT[0])


@torch.inference_mode()
def _log_probs_of_model(model: PreTrainedModel, token_ids: Sequence[int], device: torch.device) -> torch.Tensor:
    ids_BT = torch.tensor([list(token_ids)], device=device)
    return _taken(model(input_ids=ids_BT, use_cache=False).logits[0].float(), ids_BT[0])


def _taken(logits_TV: torch.Tensor, ids_T: torch.Tensor) -> torch.Tensor:
    return logits_TV[:-1].log_softmax(-1).gather(1, ids_T[1:, None])[:, 0].cpu()


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MAX_REASON]
