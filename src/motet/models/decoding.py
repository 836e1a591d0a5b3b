"""One token's way through a plain decoder, from the model's own weights and without its modules.

For one new token a row, transformers' layers cost more calls than arithmetic. Where a decoder's layers are of the
ordinary kind (norm, attention with rotary positions, norm, gated feed-forward), the same result takes a third of the
calls: the weights of query, key and value are one matrix, as are those of gate and up; a norm's weights and attention's
scaling are multiplied into the matrix that follows; adapters are added to what they adapt. All of that is made anew for
each call that samples, as weights change in between.

A rotation turns pairs (i, i + d/2) of a head's numbers by an angle. Here the two stand side by side, as one complex
number (`interleaved`); products of queries and keys are the same in any order of a head's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from motet.models.lean import epsilon_of
from motet.models.policy import Policy

Attend = Callable[[int, Tensor], Tensor]
"""Attention of a layer: its number and heads as `FusedDecoder.step` describes them, to (N, H * d)."""

_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")  # others depend on how long the text is
_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_PROJECTIONS, _HEAD_NORMS = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"q_norm", "k_norm"}
_FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "act_fn"}


class _Linear:
    """y = x W^T + b, from rows of W that may have b as a last column."""

    def __init__(self, rows: Tensor, num_inputs: int, *, norm: Any = None) -> None:
        self._bias = rows[:, num_inputs].contiguous() if rows.shape[1] > num_inputs else None
        weight = rows[:, :num_inputs]
        if norm is not None:
            weight = weight * (norm.weight * num_inputs**0.5)
        self._weight = weight.contiguous()

    def __call__(self, x_ND: Tensor) -> Tensor:
        return nn.functional.linear(x_ND, self._weight, self._bias)

    def added_to(self, sum_NE: Tensor, x_ND: Tensor) -> Tensor:
        """sum + x W^T + b."""
        total = torch.addmm(sum_NE, x_ND, self._weight.T)
        return total if self._bias is None else total.add_(self._bias)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a layer multiplies by; the factors of its norms are in the matrices behind them."""

    heads: _Linear  # for each of K: its queries, its key, its value
    head_norm: Tensor | None  # (H / K + 1, d): factors of normed queries and keys
    output: _Linear
    gate_up: _Linear
    down: _Linear
    activation: Callable[[Tensor], Tensor]


class FusedDecoder:
    """A decoder's weights, ready for steps of one token a row. Their sum over a layer's parts is what a step carries.

    Legend: K heads of keys, H / K queries to each, d numbers of a head, D numbers of a hidden state.

    Attributes:
        num_layers: layers.
        num_groups: K.
        per_group: H / K.
        head_width: d.
    """

    def __init__(self, policy: Policy) -> None:
        """Read the policy's present weights.

        Raises:
            NotImplementedError: the decoder is not of the ordinary kind, or not in float32.
        """
        decoder, config = _decoder_of(policy), policy.config
        attention = decoder.layers[0].self_attn
        self.num_layers = len(decoder.layers)
        self.head_width, self.per_group = int(attention.head_dim), int(attention.num_key_value_groups)
        self.num_groups = int(config.num_key_value_heads)
        self._order = torch.arange(self.head_width, device=policy.device).view(2, -1).T.flatten()
        self._embed, self._rotary = decoder.embed_tokens, decoder.rotary_emb
        self._width, epsilon = int(config.hidden_size), epsilon_of(decoder.norm) or 0.0
        self._last_norm = decoder.norm.weight * self._width**0.5
        self._floor, self._head_floor = (
            torch.tensor((width * epsilon) ** 0.5, device=policy.device) for width in (self._width, self.head_width)
        )
        self._layers = [self._read(layer) for layer in decoder.layers]

    def turns(self, num_positions: int) -> Tensor:
        """Complex factors of a position's queries, key and value, in that order: (positions, H / K + 2, d / 2)."""
        position = torch.arange(num_positions, device=self._order.device)
        cos, sin = (part[0, :, : self.head_width // 2] for part in self._rotary(self._last_norm, position[None]))
        turn = torch.complex(cos, sin)[:, None]
        return torch.cat([turn.expand(-1, self.per_group + 1, -1), torch.ones_like(turn)], dim=1)

    def interleaved(self, key_BKTd: Tensor) -> Tensor:
        """Keys from the model's own attention, in the order of `step`'s heads."""
        return key_BKTd.index_select(3, self._order)

    def step(self, token_ids_N: Tensor, attend: Attend) -> Tensor:
        """Hidden states that predict the next ids, (N, D).

        Args:
            token_ids_N: one id for each row.
            attend: turns, keeps and compares heads. They come as (N, K * (H / K + 2) * d): to each of K its queries,
                scaled, its key and its value; the numbers of queries and keys interleaved.
        """
        sum_ND = self._embed(token_ids_N)
        for number, layer in enumerate(self._layers):
            heads = layer.heads(_over_norm(sum_ND, self._floor))
            if layer.head_norm is not None:
                turned = heads.view(len(heads), self.num_groups, -1, self.head_width)[:, :, :-1]
                turned.copy_(_over_norm(turned, self._head_floor).mul_(layer.head_norm))
            sum_ND = layer.output.added_to(sum_ND, attend(number, heads))
            gate, up = layer.gate_up(_over_norm(sum_ND, self._floor)).chunk(2, dim=1)
            sum_ND = layer.down.added_to(sum_ND, layer.activation(gate).mul_(up))
        return _over_norm(sum_ND, self._floor).mul_(self._last_norm)

    def _read(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        query, key, value = (
            rows.view(self.num_groups, -1, self.head_width, rows.shape[1])
            for rows in map(_rows, (attention.q_proj, attention.k_proj, attention.v_proj))
        )
        head_norm = None
        if "q_norm" in dict(attention.named_children()):
            factors = [attention.q_norm.weight * attention.scaling] * self.per_group + [attention.k_norm.weight]
            head_norm = torch.stack(factors)[:, self._order] * self.head_width**0.5
        else:
            query = query * attention.scaling
        heads = torch.cat([query[:, :, self._order], key[:, :, self._order], value], dim=1).flatten(0, 2)
        gate_up = torch.cat([_rows(mlp.gate_proj), _rows(mlp.up_proj)])
        output, down = _rows(attention.o_proj), _rows(mlp.down_proj)
        return _Layer(
            heads=_Linear(heads, self._width, norm=layer.input_layernorm),
            head_norm=head_norm,
            output=_Linear(output, self.per_group * self.num_groups * self.head_width),
            gate_up=_Linear(gate_up, self._width, norm=layer.post_attention_layernorm),
            down=_Linear(down, len(gate_up) // 2),
            activation=mlp.act_fn,
        )


def _over_norm(x: Tensor, floor: Tensor) -> Tensor:
    """x / sqrt(sum(x^2) + floor^2): a root mean square norm but for a factor of sqrt(D)."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.hypot_(floor)


def _decoder_of(policy: Policy) -> Any:
    """The module that holds the layers, if all of them have the ordinary parts."""
    for module in policy.model.modules():
        parts = dict(module.named_children())
        if {"embed_tokens", "layers", "norm", "rotary_emb"} <= set(parts):
            break
    else:
        raise NotImplementedError("no decoder of the ordinary kind")
    if policy.device.type not in ("cpu", "cuda") or parts["norm"].weight.dtype != torch.float32:
        raise NotImplementedError("complex numbers are not for this device or dtype")
    decoder: Any = module
    is_fixed = getattr(decoder.rotary_emb, "rope_type", None) in _FIXED_ROTATIONS
    if not is_fixed or not all(map(_is_ordinary, decoder.layers)):
        raise NotImplementedError("layers of another kind")
    return decoder


def _is_ordinary(layer: Any) -> bool:
    children = {name: set(dict(part.named_children())) for name, part in layer.named_children()}
    epsilons = {epsilon_of(module) for name, module in layer.named_modules() if name.endswith("norm")}
    return (
        set(children) == _PARTS
        and children["self_attn"] in (_PROJECTIONS, _PROJECTIONS | _HEAD_NORMS)
        and children["mlp"] == _FEED_FORWARD
        and len(epsilons) == 1
        and None not in epsilons
    )


def _rows(linear: Any) -> Tensor:
    """Rows of a linear layer's weight, with its adapters, and its bias as a last column if it has one."""
    base = linear
    if type(linear) is not nn.Linear:
        base = getattr(linear, "base_layer", None)
        if type(base) is not nn.Linear or not _is_plain_adapter(linear):
            raise NotImplementedError("a linear layer of another kind")
    rows: Tensor = base.weight
    if base is not linear:
        for name in linear.active_adapters:
            if name in linear.lora_A:
                rows = rows + linear.get_delta_weight(name)
    return rows if base.bias is None else torch.cat([rows, base.bias[:, None]], dim=1)


def _is_plain_adapter(linear: Any) -> bool:
    """True for PEFT's LoRA as first published: W + scale * B A."""
    return (
        type(linear).__module__ == "peft.tuners.lora.layer"
        and type(linear).__name__ == "Linear"
        and not (linear.lora_variant or linear.merged or linear.disable_adapters)
        and all(adapter.bias is None for adapter in linear.lora_B.values())
    )
