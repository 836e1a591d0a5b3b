"""Decoding by attention plan: a prompt's keys and values are kept once, however many completions it has.

Rows stand in blocks, each of rows of one prompt: the queries of a block meet their prompt in one matrix product, and
each row its own keys in another; one softmax goes over both. All rows of a block are at the same position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from motet.generation.blocks import Blocks
from motet.models import AttentionRules, Policy, masked_attention

_PREFILL_TOKENS = 8192  # of prompts in one forward pass; a longer prompt goes alone
FIRST_ROOM = 64  # new tokens that a row has room for at first; doubled when needed


class SharedPromptRows:
    """Implements `DecodedRows` for a policy that takes plans.

    Args:
        policy: the model.
        prompts: ids of each prompt.
        row_counts: completions of each prompt, 1 or more.
        max_new_tokens: limit of a completion's length.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], row_counts: Sequence[int], *, max_new_tokens: int
    ) -> None:
        self._policy = policy
        self._prompts = prompts
        lengths = [len(prompt) for prompt in prompts]
        self._plan = DecodePlan(lengths, row_counts, max_new_tokens=max_new_tokens, device=policy.device)
        self._row_of = torch.repeat_interleave(torch.tensor(row_counts)).to(policy.device)
        self._position = torch.tensor(lengths, device=policy.device)[self._row_of, None]

    def start(self) -> Tensor:
        """See `DecodedRows.start`."""
        return prefill(self._policy, self._prompts, self._plan)[self._row_of]

    def keep(self, kept: Tensor) -> None:
        """See `DecodedRows.keep`."""
        self._position = self._position[kept]
        self._plan.keep(kept)

    def advance(self, token_ids_N: Tensor) -> Tensor:
        """See `DecodedRows.advance`."""
        self._plan.make_room()
        hidden = self._policy.hidden_states(token_ids_N[:, None], self._position, plan=self._plan)
        self._position += 1
        self._plan.step += 1
        return hidden[:, 0]


class PromptKeys(Protocol):
    """Whatever keeps the keys and values of prompts."""

    device: torch.device

    def put_prompts(self, first: int, key_PKWd: Tensor, value_PKWd: Tensor, rules: AttentionRules) -> None:
        """Take the keys and values of one layer for the prompts from number `first` on, padded on the right."""
        ...


def prefill(policy: Policy, prompts: Sequence[Sequence[int]], target: PromptKeys) -> Tensor:
    """Hidden states that predict the first id behind each prompt, (P, D); keys and values go to `target`."""
    last = []
    for first, portion in _portions(prompts):
        plan = _PrefillPlan(target, first, [len(prompt) for prompt in portion])
        token_ids = torch.tensor([id_ for prompt in portion for id_ in prompt], device=policy.device)
        hidden = policy.hidden_states(token_ids[None], plan.position_T[None], plan=plan)
        last.append(hidden[0, plan.last_P])
    return torch.cat(last)


def _portions(prompts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Sequence[Sequence[int]]]]:
    """The prompts in portions that are prefilled together, each with the number of its first prompt."""
    first = size = 0
    for index, prompt in enumerate(prompts):
        if index > first and size + len(prompt) > _PREFILL_TOKENS:
            yield first, prompts[first:index]
            first, size = index, 0
        size += len(prompt)
    yield first, prompts[first:]


class _PrefillPlan:
    """Prompts one behind the other in one row, without padding; each attends to itself alone.

    Their keys and values go into the plan of the steps that follow.
    """

    def __init__(self, target: PromptKeys, first: int, lengths: Sequence[int]) -> None:
        self._target = target
        self._first = first
        length_P = torch.tensor(lengths, device=target.device)
        start_P = length_P.cumsum(0) - length_P
        self.last_P = start_P + length_P - 1
        column_W = torch.arange(max(lengths), device=target.device)
        self._packed_PW = torch.minimum(start_P[:, None] + column_W, self.last_P[:, None])  # padding: the last again
        self._padded_T = (column_W < length_P[:, None]).flatten().nonzero().squeeze(1)
        self.position_T = self._padded_T % len(column_W)

    def attend(self, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, rules: AttentionRules) -> Tensor:
        """See `AttentionPlan`."""
        query, key, value = (self._pad(tensor[0]) for tensor in (query_BHTd, key_BKTd, value_BKTd))
        self._target.put_prompts(self._first, key, value, rules)
        width = key.shape[2]
        if rules.softcap is None and rules.sink_H is None and (rules.window is None or rules.window >= width):
            output = torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=rules.scaling, enable_gqa=True
            ).transpose(1, 2)
        else:
            column = torch.arange(width, device=query.device)
            allowed = column[:, None] >= column
            if rules.window is not None:
                allowed &= column[:, None] - column < rules.window
            output = masked_attention(query, key, value, allowed, rules)
        return output.flatten(0, 1)[self._padded_T][None]

    def _pad(self, packed_HTd: Tensor) -> Tensor:
        """(P, H, W, d); what stands behind a prompt is its last token again, and no token of a prompt sees it."""
        return packed_HTd[:, self._packed_PW].transpose(0, 1)


class DecodePlan:
    """One new token for each row: it meets its prompt, which its block shares, and the row's own tokens.

    Args:
        lengths: tokens of each prompt.
        row_counts: rows of each prompt.
        max_new_tokens: limit of a completion's length.
        device: where the model is.

    Attributes:
        step: new tokens that were fed to every row so far.
    """

    def __init__(
        self, lengths: Sequence[int], row_counts: Sequence[int], *, max_new_tokens: int, device: torch.device
    ) -> None:
        self.device = device
        self.step = 0
        self._max_room = max(1, max_new_tokens - 1)  # the last token is never fed
        self._room = min(self._max_room, FIRST_ROOM)
        self._num_prompts, self._width = len(lengths), max(lengths)
        self._blocks = Blocks([prompt for prompt, count in enumerate(row_counts) for _ in range(count)], device)
        self._length_P = torch.tensor(lengths, device=device)
        self._shared: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: keys and values, (P or blocks, K, S, d)
        self._own: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: keys and values, (blocks, K, rows, room, d)
        self._bias: dict[int | None, Tensor | None] = {}  # by window, of this step
        self._spread = False

    def put_prompts(self, first: int, key_PKWd: Tensor, value_PKWd: Tensor, rules: AttentionRules) -> None:
        """Take the keys and values of one layer for the prompts from number `first` on."""
        if rules.layer not in self._shared:
            shape = (self._num_prompts, key_PKWd.shape[1], self._width)
            self._shared[rules.layer] = (
                key_PKWd.new_zeros(*shape, key_PKWd.shape[3], dtype=self._dtype(key_PKWd)),
                value_PKWd.new_zeros(*shape, value_PKWd.shape[3], dtype=self._dtype(value_PKWd)),
            )
        for held, new in zip(self._shared[rules.layer], (key_PKWd, value_PKWd), strict=True):
            held[first : first + len(new), :, : new.shape[2]] = new

    def _dtype(self, like: Tensor) -> torch.dtype:
        """Of the cache: processors are slow at half precision, and the softmax wants more in any case."""
        return torch.float32 if self.device.type == "cpu" else like.dtype

    def make_room(self) -> None:
        """To be called before each step."""
        self._bias = {window: bias for window, bias in self._bias.items() if window is None}
        if not self._spread:
            self._share(self._blocks.prompt_of_block)
            self._spread = True
        if self.step == self._room:
            self._room = min(self._max_room, 2 * self._room)
            for layer, held in self._own.items():
                self._own[layer] = (self._with_room(held[0]), self._with_room(held[1]))

    def keep(self, kept: Tensor) -> None:
        """Forget all rows but these (ascending)."""
        before, self._blocks = self._blocks, self._blocks.of_rows(kept.tolist())
        if not self._spread:  # nothing was fed yet
            return
        self._share(before.blocks_of(self._blocks.prompt_of_block))
        slot = before.slot_N[kept][self._blocks.row_of_slot]
        place = slot // before.width, slot % before.width
        for layer, held in self._own.items():
            self._own[layer] = (self._moved(held[0], place), self._moved(held[1], place))

    def _share(self, selected: list[int]) -> None:
        """Let these of the present prompts (or blocks) be the prompts of the blocks."""
        if selected == list(range(len(self._length_P))):
            return
        index = torch.tensor(selected, device=self.device)
        self._length_P = self._length_P[index]
        self._bias.clear()
        for layer, (key, value) in self._shared.items():
            self._shared[layer] = key[index], value[index]

    def _moved(self, held: Tensor, place: tuple[Tensor, Tensor]) -> Tensor:
        """Each new place filled with what stood at this block and place."""
        moved = self._blocks.new_rows(held, self._room)
        seen = held[:, :, :, : self.step].transpose(1, 2)[place]
        moved[:, :, :, : self.step] = seen.view(moved.shape[0], moved.shape[2], *seen.shape[1:]).transpose(1, 2)
        return moved

    def _with_room(self, held: Tensor) -> Tensor:
        larger = self._blocks.new_rows(held, self._room)
        larger[:, :, :, : self.step] = held
        return larger

    def attend(self, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, rules: AttentionRules) -> Tensor:
        """See `AttentionPlan`."""
        blocks, step = self._blocks, self.step
        num_blocks, width, num_heads = len(blocks.prompt_of_block), blocks.width, key_BKTd.shape[1]
        shared_key, shared_value = self._shared[rules.layer]
        own_key, own_value = self._own_of(rules.layer, shared_key, shared_value)
        own_key[:, :, :, step] = blocks.from_rows(key_BKTd, num_heads).squeeze(3)
        own_value[:, :, :, step] = blocks.from_rows(value_BKTd, num_heads).squeeze(3)
        num_seen, per_head = step + 1, query_BHTd.shape[1] // num_heads
        query = blocks.from_rows(query_BHTd * rules.scaling, num_heads).to(shared_key.dtype)
        query = query.reshape(num_blocks * num_heads, width * per_head, -1)
        own_query = query.reshape(-1, per_head, query.shape[-1])
        products_shared = torch.bmm(query, shared_key.flatten(0, 1).transpose(1, 2))
        products_own = torch.bmm(own_query, own_key.flatten(0, 2)[:, :num_seen].transpose(1, 2))
        products = torch.cat([products_shared, products_own.view(*query.shape[:2], num_seen)], dim=2)
        shares = self._softmax(products, rules, num_heads).to(shared_value.dtype)
        shared_shares, own_shares = shares.split([shared_key.shape[2], num_seen], dim=2)
        output = torch.bmm(shared_shares, shared_value.flatten(0, 1))
        output.view(-1, per_head, output.shape[-1]).baddbmm_(
            own_shares.view(-1, per_head, num_seen), own_value.flatten(0, 2)[:, :num_seen]
        )
        output = output.view(num_blocks, num_heads, width, per_head, -1)
        return blocks.to_rows(output).to(value_BKTd.dtype)[:, None]

    def _own_of(self, layer: int, shared_key: Tensor, shared_value: Tensor) -> tuple[Tensor, Tensor]:
        if layer not in self._own:
            self._own[layer] = (
                self._blocks.new_rows(shared_key, self._room),
                self._blocks.new_rows(shared_value, self._room),
            )
        return self._own[layer]

    def _softmax(self, products: Tensor, rules: AttentionRules, num_heads: int) -> Tensor:
        """Shares of the keys, from products of (blocks * K, rows * H / K, S + own)."""
        products = products.float()
        if rules.softcap is not None:
            products = products.div_(rules.softcap).tanh_().mul_(rules.softcap)
        if (bias := self._bias_of(rules.window)) is not None:
            products.unflatten(0, (-1, num_heads))[..., : bias.shape[-1]].add_(bias)
        if rules.sink_H is None:
            return torch.softmax(products, dim=-1)
        sink = rules.sink_H.float().view(1, num_heads, 1, -1)
        sink = sink.expand(len(self._length_P), num_heads, self._blocks.width, sink.shape[-1])
        return torch.softmax(torch.cat([products, sink.reshape(*products.shape[:2], 1)], dim=-1), dim=-1)[..., :-1]

    def _bias_of(self, window: int | None) -> Tensor | None:
        """0 where a key may be seen, else minus infinity: (blocks, 1, 1, the first keys). None: all may be seen."""
        if window not in self._bias:
            column = torch.arange(self._width, device=self.device)
            allowed = column < self._length_P[:, None]
            if window is not None:
                own = torch.arange(self.step + 1, device=self.device)
                allowed &= self._length_P[:, None] + self.step - column < window
                allowed = torch.cat([allowed, (self.step - own < window).expand(len(allowed), -1)], dim=1)
            bias = torch.zeros(allowed.shape, device=self.device).masked_fill_(~allowed, -torch.inf)
            self._bias[window] = None if bool(allowed.all()) else bias[:, None, None]
        return self._bias[window]
