"""Attention of packed rows: each prompt stands once, followed by all of its completions.

Legend: N packed tokens, C clusters (a prompt with its completions), R completions, L longest prompt, S most completion
tokens of a cluster, T longest completion (as input), H query heads, K key heads, d their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet.models import AttentionRules, masked_attention

Array = TypeVar("Array")

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Cluster(NamedTuple):
    """Lengths of what stands together: prompt, then completion after completion.

    Attributes:
        prompt: tokens of the prompt, at least 1.
        completions: input tokens of each completion (its last token is never an input), 0 or more.
    """

    prompt: int
    completions: Sequence[int]


class PackedPlan:
    """Implements `AttentionPlan`: a token sees its own prompt and the earlier tokens of its own completion.

    Args:
        clusters: in the order of the row.
        device: where the indices are kept.
    """

    def __init__(self, clusters: Sequence[Cluster], *, device: torch.device) -> None:
        self._index = _index(clusters, device)
        self._masks: dict[torch.dtype, Tensor] = {}
        self._windowed: dict[int | None, tuple[Tensor, Tensor]] = {}

    def attend(self, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, rules: AttentionRules) -> Tensor:
        """See `AttentionPlan`; B is 1."""
        query, key, value = (tensor[0].transpose(0, 1) for tensor in (query_BHTd, key_BKTd, value_BKTd))
        plain = rules.window is None and rules.softcap is None and rules.sink_H is None
        if plain and query.device.type == "cpu":
            output: Tensor = _SharedPrompt.apply(  # type: ignore[no-untyped-call]  # torch has no types for it
                query, key, value, self._index, self._mask(query.dtype), rules.scaling
            )
        else:
            output = self._under_masks(query, key, value, rules)
        return output[None]

    def _mask(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._masks:
            allowed = self._index.sees_prompt
            self._masks[dtype] = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, -torch.inf)
        return self._masks[dtype]

    def _under_masks(self, query: Tensor, key: Tensor, value: Tensor, rules: AttentionRules) -> Tensor:
        """What holds for every layer and device: keys and values copied to where they are seen."""
        index = self._index
        shape = (len(query), query.shape[1], value.shape[2])
        prompt_allowed, own_allowed = self._allowed(rules.window)
        prompts = masked_attention(
            _rows(query, index.prompt_CL),
            _rows(key, index.prompt_CL),
            _rows(value, index.prompt_CL),
            prompt_allowed,
            rules,
        )
        output = query.new_zeros(shape).index_put((index.prompt_N,), prompts.flatten(0, 1)[index.prompt_slot])
        if len(index.completion_N) == 0:
            return output
        seen = torch.cat([index.prompt_CL[index.cluster_R], index.own_RT], dim=1)
        own = masked_attention(_rows(query, index.own_RT), _rows(key, seen), _rows(value, seen), own_allowed, rules)
        return output.index_put((index.completion_N,), own.flatten(0, 1)[index.own_slot])

    def _allowed(self, window: int | None) -> tuple[Tensor, Tensor]:
        """(C, 1, L, L) and (R, 1, T, L + T): who sees whom, from positions and lengths."""
        if window not in self._windowed:
            index = self._index
            column_L = torch.arange(index.prompt_CL.shape[1], device=index.prompt_CL.device)
            column_T = torch.arange(index.own_RT.shape[1], device=index.prompt_CL.device)
            prompt_C11 = index.prompt_length_C[:, None, None]
            length_R11 = index.prompt_length_C[index.cluster_R][:, None, None]
            prompts = (column_L[:, None] >= column_L) & (column_L < prompt_C11)
            distance_to_prompt = length_R11 + column_T[:, None] - column_L
            to_prompt = (column_L < length_R11).expand(distance_to_prompt.shape)
            to_own = (column_T[:, None] >= column_T).expand(len(length_R11), -1, -1)
            if window is not None:
                prompts = prompts & (column_L[:, None] - column_L < window)
                to_prompt = to_prompt & (distance_to_prompt < window)
                to_own = to_own & (column_T[:, None] - column_T < window)
            self._windowed[window] = prompts[:, None], torch.cat([to_prompt, to_own], dim=2)[:, None]
        return self._windowed[window]


class _Index(NamedTuple, Generic[Array]):
    """Where the packed tokens stand in padded blocks, and back. Empty slots hold token 0."""

    prompt_CL: Array  # token of each slot of the prompts' block
    prompt_N: Array  # prompt tokens, and ...
    prompt_slot: Array  # ... their slots
    prompt_length_C: Array
    own_RT: Array  # token of each slot of the completions' block
    completion_N: Array  # completion tokens, and ...
    own_slot: Array  # ... their slots
    cluster_R: Array  # cluster of each completion
    asks_CQ: Array  # token of each slot of the block of queries to the prompts, Q = L + S: prompt's own, completions'
    asks_slot_N: Array  # slot of every token in it
    asks_empty: Array  # True in its empty slots
    own_empty: Array  # True in the empty slots of own_RT
    sees_prompt: Array  # (C, 1, Q, L)


def _index(clusters: Sequence[Cluster], device: torch.device) -> _Index[Tensor]:
    longest = max(cluster.prompt for cluster in clusters)
    most = max(sum(cluster.completions) for cluster in clusters)
    lengths = [length for cluster in clusters for length in cluster.completions]
    width, num_tokens = longest + most, sum(cluster.prompt + sum(cluster.completions) for cluster in clusters)
    longest_own = max(lengths, default=0)
    prompt_CL = np.zeros((len(clusters), longest), dtype=np.int64)
    own_RT = np.zeros((len(lengths), longest_own), dtype=np.int64)
    asks_CQ = np.full((len(clusters), width), -1, dtype=np.int64)
    own_slot, prompt_slot, asks_slot_N = (np.full(num_tokens, -1, dtype=np.int64) for _ in range(3))
    token, row = 0, 0
    for number, cluster in enumerate(clusters):
        end = token + cluster.prompt
        prompt_CL[number, : cluster.prompt] = asks_CQ[number, : cluster.prompt] = np.arange(token, end)
        prompt_slot[token:end] = np.arange(number * longest, number * longest + cluster.prompt)
        token, answers = end, sum(cluster.completions)
        asks_CQ[number, longest : longest + answers] = np.arange(token, token + answers)
        for length in cluster.completions:
            own_RT[row, :length] = np.arange(token, token + length)
            own_slot[token : token + length] = np.arange(row * longest_own, row * longest_own + length)
            token, row = token + length, row + 1
    (filled,) = np.nonzero(asks_CQ.ravel() >= 0)
    asks_slot_N[asks_CQ.ravel()[filled]] = filled
    prompt_length_C = np.array([cluster.prompt for cluster in clusters])
    column_L, column_Q = np.arange(longest), np.arange(width)
    sees = (column_L <= column_Q[:, None]) & (column_L < prompt_length_C[:, None, None])
    own_empty = np.ones(own_RT.size, dtype=np.bool_)
    own_empty[own_slot[own_slot >= 0]] = False
    arrays: _Index[NDArray[Any]] = _Index(
        prompt_CL=prompt_CL,
        prompt_N=np.flatnonzero(prompt_slot >= 0),
        prompt_slot=prompt_slot[prompt_slot >= 0],
        prompt_length_C=prompt_length_C,
        own_RT=own_RT,
        completion_N=np.flatnonzero(own_slot >= 0),
        own_slot=own_slot[own_slot >= 0],
        cluster_R=np.repeat(np.arange(len(clusters)), [len(cluster.completions) for cluster in clusters]),
        asks_CQ=asks_CQ.clip(min=0),
        asks_slot_N=asks_slot_N,
        asks_empty=asks_CQ.ravel() < 0,
        own_empty=own_empty,
        sees_prompt=sees[:, None],
    )
    return _Index(*(torch.from_numpy(array).to(device) for array in arrays))


def _rows(tokens_NHd: Tensor, index_BT: Tensor) -> Tensor:
    """(B, H, T, d): the tokens of each slot."""
    chosen = tokens_NHd.index_select(0, index_BT.flatten())
    return chosen.view(*index_BT.shape, *tokens_NHd.shape[1:]).transpose(1, 2)


class _SharedPrompt(torch.autograd.Function):
    """Flash attention in two blocks: everybody to the prompts, completions to themselves; merged by their logsumexp.

    No key or value is copied for a completion, and nothing but queries, keys, values, output and logsumexp is kept.
    In backward each block computes its part from the merged output and logsumexp, with which it gives the exact
    gradient of the whole softmax.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, index: _Index[Tensor], mask: Tensor, scale: float
    ) -> Tensor:
        """query (N, H, d), key and value (N, K, d) -> output (N, H, d)."""
        prompt_key, prompt_value = _rows(key, index.prompt_CL), _rows(value, index.prompt_CL)
        output: Tensor
        output, lse = _flash(
            _rows(query, index.asks_CQ), prompt_key, prompt_value, 0.0, False, attn_mask=mask, scale=scale
        )
        output_N: Tensor = output.transpose(1, 2).flatten(0, 1).index_select(0, index.asks_slot_N)
        lse_N = lse.transpose(1, 2).flatten(0, 1).index_select(0, index.asks_slot_N)
        own_N = index.completion_N
        if len(own_N):
            blocks = (_rows(tensor, index.own_RT) for tensor in (query, key, value))
            output, lse = _flash(*blocks, 0.0, True, scale=scale)
            own_output = output.transpose(1, 2).flatten(0, 1).index_select(0, index.own_slot)
            own_lse = lse.transpose(1, 2).flatten(0, 1).index_select(0, index.own_slot)
            merged_lse = torch.logaddexp(lse_N[own_N], own_lse)
            share = (own_lse - merged_lse).exp_().unsqueeze(-1).to(query.dtype)
            output_N[own_N] = torch.lerp(output_N[own_N], own_output, share)
            lse_N[own_N] = merged_lse
        ctx.save_for_backward(query, key, value, output_N, lse_N, mask)
        ctx.index, ctx.scale = index, scale
        return output_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        """Gradients of query, key and value."""
        query, key, value, output, lse, mask = ctx.saved_tensors
        index: _Index[Tensor] = ctx.index
        gradient = gradients[0].contiguous()

        def block(asks: Tensor, empty: Tensor, keys: Tensor, mask: Tensor | None) -> list[Tensor]:
            lse_BT = lse.index_select(0, asks.flatten()).masked_fill_(empty[:, None], torch.inf)  # shares of 0
            asked = gradient.index_select(0, asks.flatten()).masked_fill_(empty[:, None, None], 0.0)
            parts = _flash_backward(
                asked.unflatten(0, asks.shape).transpose(1, 2),
                _rows(query, asks),
                _rows(key, keys),
                _rows(value, keys),
                _rows(output, asks),
                lse_BT.unflatten(0, asks.shape).transpose(1, 2),
                0.0,
                mask is None,
                attn_mask=mask,
                scale=ctx.scale,
            )
            return [part.transpose(1, 2).flatten(0, 1) for part in parts]

        d_asks, d_key, d_value = block(index.asks_CQ, index.asks_empty, index.prompt_CL, mask)
        grad_query: Tensor = d_asks.index_select(0, index.asks_slot_N)
        grad_key, grad_value = torch.zeros_like(key), torch.zeros_like(value)
        grad_key[index.prompt_N] = d_key.index_select(0, index.prompt_slot)
        grad_value[index.prompt_N] = d_value.index_select(0, index.prompt_slot)
        own_N = index.completion_N
        if len(own_N):
            d_query, d_key, d_value = block(index.own_RT, index.own_empty, index.own_RT, None)
            grad_query.index_add_(0, own_N, d_query.index_select(0, index.own_slot))
            grad_key[own_N] = d_key.index_select(0, index.own_slot)
            grad_value[own_N] = d_value.index_select(0, index.own_slot)
        return grad_query, grad_key, grad_value, None, None, None
