"""One door into transformers' attention: a plan that travels with a call decides which query meets which key.

Models of transformers hand unknown keyword arguments of their forward pass down to the attention function. motet
registers a function that is PyTorch's own attention for an ordinary call, and asks the plan for a call that brings one.
So the same model object scores packed rows, decodes with a cache of its own, and works as everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_NAME = "motet"

Forward = Callable[[Tensor, Tensor, "AttentionPlan | None"], Tensor]


@dataclass(frozen=True, slots=True)
class AttentionRules:
    """How one layer attends, whatever the layout.

    Attributes:
        layer: number of the layer, from 0.
        scaling: factor of the query-key products.
        window: a query sees keys whose position is less than this behind its own; None: all.
        softcap: products become softcap * tanh(product / softcap); None: they stay.
        sink_H: a logit for each head that takes a part of the softmax and gives nothing; None: there is none.
    """

    layer: int
    scaling: float
    window: int | None = None
    softcap: float | None = None
    sink_H: Tensor | None = None


class AttentionPlan(Protocol):
    """Decides how the tokens of one forward pass attend to one another (and to a cache of the plan's own)."""

    def attend(self, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, rules: AttentionRules) -> Tensor:
        """Attention output, (B, T, H, d); H may be a multiple of K (grouped queries)."""
        ...


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    plan: AttentionPlan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    rules = AttentionRules(
        layer=int(module.layer_idx),  # type: ignore[arg-type]  # a plain number in every attention module
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=kwargs.get("sliding_window"),
        softcap=kwargs.get("softcap"),
        sink_H=kwargs.get("s_aux"),
    )
    if plan is not None:
        return plan.attend(query, key, value, rules), None
    if attention_mask is None:  # nothing but causal
        queries, keys = query.shape[2], key.shape[2]
        attention_mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
    return masked_attention(query, key, value, attention_mask, rules), None


def try_plans(causal: PreTrainedModel, forward: Forward, config: PreTrainedConfig, *, device: torch.device) -> bool:
    """Let a model of transformers take plans. If its architecture does not honour them, leave it as it was.

    It honours them if tokens meet in the plan alone, in every layer, and the plan is told all that it must know: two
    sequences in one row must come out as each did by itself before.

    Args:
        causal: the model.
        forward: its hidden states of ids and positions, both (1, T), under a plan or without one.
        config: of the text model.
        device: where the model is.
    """
    first, second = (torch.arange(length, device=device) % int(config.vocab_size) for length in (5, 3))
    positions = [torch.arange(len(ids), device=device)[None] for ids in (first, second)]
    expected = torch.cat([forward(first[None], positions[0], None), forward(second[None], positions[1], None)], dim=1)
    witness = _Witness(torch.tensor([0] * 5 + [1] * 3, device=device))
    before = causal.config._attn_implementation
    try:
        _choose(causal)
        found = forward(torch.cat([first, second])[None], torch.cat(positions, dim=1), witness)
    except (TypeError, ValueError):  # the attention cannot be chosen, or does not get what its caller passed
        causal.set_attn_implementation(before)
        return False
    tolerance = 1e-4 if expected.dtype == torch.float32 else 5e-2
    if witness.heard_all(config) and torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
        return True
    causal.set_attn_implementation(before)
    return False


def _choose(causal: PreTrainedModel) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    causal.set_attn_implementation(_NAME)


class _Witness:
    """A plan for sequences in one row that remembers what it was told."""

    def __init__(self, sequence_T: Tensor) -> None:
        self.windows: dict[int, int | None] = {}
        self._sequence_T = sequence_T

    def heard_all(self, config: PreTrainedConfig) -> bool:
        """True if every layer asked, and told the window that the config gives it."""
        num_layers = int(config.num_hidden_layers)
        kinds = getattr(config, "layer_types", None) or [None] * num_layers
        window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        windows = {"full_attention": None, "sliding_attention": window, None: window}
        if sorted(self.windows) != list(range(num_layers)) or not set(kinds) <= set(windows):
            return False  # some layers mix tokens in another way
        return all(self.windows[layer] == windows[kind] for layer, kind in enumerate(kinds))

    def attend(self, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, rules: AttentionRules) -> Tensor:
        """See `AttentionPlan`."""
        self.windows[rules.layer] = rules.window
        column = torch.arange(query_BHTd.shape[2], device=query_BHTd.device)
        allowed = (column[:, None] >= column) & (self._sequence_T[:, None] == self._sequence_T)
        if rules.window is not None:
            allowed &= column[:, None] - column < rules.window
        return masked_attention(query_BHTd, key_BKTd, value_BKTd, allowed, rules)


def masked_attention(
    query_BHTd: Tensor, key_BKSd: Tensor, value_BKSd: Tensor, allowed: Tensor, rules: AttentionRules
) -> Tensor:
    """Attention under a mask, with everything that `rules` may ask for.

    Args:
        query_BHTd: queries of H heads.
        key_BKSd: keys of K heads; each serves H / K heads of the queries.
        value_BKSd: values.
        allowed: true where a query may see a key; broadcast to (B, H, T, S). A query that sees none gets anything
            finite.
        rules: scaling, soft cap and sink of the layer. Its window is for the caller to put into `allowed`.

    Returns:
        (B, T, H, d).
    """
    if rules.softcap is None and rules.sink_H is None:
        output = torch.nn.functional.scaled_dot_product_attention(
            query_BHTd, key_BKSd, value_BKSd, attn_mask=allowed, scale=rules.scaling, enable_gqa=True
        )
        return output.transpose(1, 2)
    num_repeats = query_BHTd.shape[1] // key_BKSd.shape[1]
    key, value = (tensor.repeat_interleave(num_repeats, dim=1) for tensor in (key_BKSd, value_BKSd))
    products = (query_BHTd @ key.transpose(2, 3)).float() * rules.scaling
    if rules.softcap is not None:
        products = rules.softcap * torch.tanh(products / rules.softcap)
    products = products.masked_fill(~allowed, torch.finfo(products.dtype).min)  # finite: padding may see no key
    if rules.sink_H is not None:
        sink = rules.sink_H.float().reshape(1, -1, 1, 1).expand(*products.shape[:3], 1)
        products = torch.cat([products, sink], dim=-1)
    shares = torch.softmax(products, dim=-1)[..., : key.shape[2]].to(value.dtype)
    return (shares @ value).transpose(1, 2)


def no_mask(device: torch.device) -> Tensor:
    """What stands for the attention mask in a call with a plan: four dimensions, so that no mask is built."""
    return torch.empty(1, 1, 1, 1, device=device)
