"""Any adapter of PEFT that changes layers, from its type and PEFT's own arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from motet.errors import UsageError
from motet.models.lora import import_peft, wrap

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_CODE = "E-MODEL-13"
_MAX_REASON = 200
_OURS = frozenset({
    "peft_type", "task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version",
})  # fmt: skip
_REFUSED = {
    "ADAPTION_PROMPT": "it adds virtual tokens, and motet packs rows without any",
    "ADALORA": "it must be told of every step and adds a term to the loss",
    "POLY": "it must be told a task with every call",
    "XLORA": "it mixes adapters that must exist before",
}
_VIRTUAL = "it learns virtual tokens in front of the prompt, and motet packs rows without any"


def add_adapter(model: PreTrainedModel, options: Mapping[str, Any], *, seed: int) -> torch.nn.Module:
    """Wrap the model so that only a PEFT adapter trains.

    Args:
        model: the model.
        options: "peft_type", such as "IA3", and that type's own arguments.
        seed: draws what the adapter begins with.

    Raises:
        EnvironmentFault: E-MODEL-04 if PEFT is not installed.
        UsageError: E-MODEL-13 for a type or an argument that does not exist or cannot work here, and for an adapter
            on the output layer.
    """
    peft = import_peft("node.peft")
    kind, config_class = _kind(peft, options)
    config = _config(peft, kind, config_class, {key: options[key] for key in options if key != "peft_type"})
    ends = _ends(model)
    try:
        wrapped = wrap(peft, model, config, seed=seed)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError, NotImplementedError) as error:
        why = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise UsageError(f"node.peft: {kind} does not fit this model: {why}", code=_CODE) from error
    if not any(parameter.requires_grad for parameter in wrapped.parameters()):
        _refuse(f"node.peft: this {kind} adapter has nothing to train; give target_modules")
    _check_ends(model, ends, kind)
    return wrapped


def _kind(peft: Any, options: Mapping[str, Any]) -> tuple[str, Any]:
    known = {str(getattr(key, "value", key)): value for key, value in peft.PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    reasons = {name: _VIRTUAL for name, value in known.items() if issubclass(value, peft.PromptLearningConfig)}
    reasons |= {name: why for name, why in _REFUSED.items() if name in known}
    allowed = sorted(known.keys() - reasons.keys())
    kind = options.get("peft_type")
    if not isinstance(kind, str):
        _refuse(f'node.peft needs peft_type, such as "IA3"; there are {", ".join(allowed)}')
    kind = kind.upper()
    if kind in reasons:
        _refuse(f"node.peft.peft_type: {kind} cannot be trained here: {reasons[kind]}; use LORA, or another type")
    if kind not in known:
        _refuse(f"node.peft.peft_type: no type {kind!r}{_nearest(kind, allowed)}; there are {', '.join(allowed)}")
    return kind, known[kind]


def _config(peft: Any, kind: str, config_class: Any, arguments: dict[str, Any]) -> Any:
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    allowed = sorted(fields.keys() - _OURS)
    for key, value in arguments.items():
        if key not in allowed:
            _refuse(f"node.peft: {kind} has no argument {key!r}{_nearest(key, allowed)}; it has {', '.join(allowed)}")
        if "dropout" in key and not isinstance(value, bool) and value:
            _refuse(f"node.peft.{key}: got {value!r}; dropout stays 0, or log-probs would be other than those sampled")
    drops = {key: 0.0 for key in allowed if "dropout" in key and type(fields[key].default) is float}
    try:
        return config_class(task_type=peft.TaskType.CAUSAL_LM, **{**drops, **arguments})
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        why = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise UsageError(f"node.peft: {kind} refuses its arguments: {why}", code=_CODE) from error


def _ends(model: PreTrainedModel) -> tuple[torch.nn.Module, torch.nn.Module, bool]:
    """Output layer, embedding, and whether they are one matrix."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    return head, embedding, head.weight is embedding.weight


def _check_ends(model: PreTrainedModel, before: tuple[torch.nn.Module, torch.nn.Module, bool], kind: str) -> None:
    """The output layer is read apart from the model, so an adapter on it would be ignored."""
    head, embedding, tied = before
    new_head, new_embedding, _ = _ends(model)
    if new_head is not head or any(parameter.requires_grad for parameter in head.parameters()):
        _refuse(f"node.peft: {kind} would change the output layer, which motet does not adapt; leave it out")
    if tied and new_embedding is not embedding:
        _refuse(
            f"node.peft: {kind} would change the embedding, which is the output layer's matrix too in this model, and "
            "only one of them would see it; leave it out"
        )


def _nearest(word: str, known: list[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _refuse(message: str) -> NoReturn:
    raise UsageError(message, code=_CODE)
