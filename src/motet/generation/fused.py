"""Decoding with a `FusedDecoder`, with as few operations a token as can be: those of tiny models are all call, no work.

Rows stand in blocks, each of rows of one prompt, and attend as in `motet.generation.shared_prompt`: to their prompt in
one matrix product, to their own tokens in another, under one softmax.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from motet.generation.blocks import Blocks
from motet.generation.shared_prompt import FIRST_ROOM, prefill
from motet.models import AttentionRules, Policy
from motet.models.decoding import FusedDecoder

_MOST_PARAMETERS = 2**28
"""Of a larger model, copies of its weights would cost much memory and calls little time."""


class FusedRows:
    """Implements `DecodedRows` for a policy of which there is a `FusedDecoder`.

    Legend: L layers, K heads of keys, G = H / K queries to each, B blocks of W rows, S tokens of the longest prompt,
    R new tokens that there is room for, d numbers of a head.

    Args:
        policy: the model.
        prompts: ids of each prompt.
        row_counts: completions of each prompt, 1 or more.
        max_new_tokens: limit of a completion's length.
        decoder: the policy's present weights.
    """

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        row_counts: Sequence[int],
        *,
        max_new_tokens: int,
        decoder: FusedDecoder,
    ) -> None:
        self.device = policy.device
        self._policy, self._decoder, self._prompts = policy, decoder, prompts
        self._blocks = Blocks([prompt for prompt, count in enumerate(row_counts) for _ in range(count)], self.device)
        self._max_room = max(1, max_new_tokens - 1)  # the last token is never fed
        self._step = 0
        lengths = [len(prompt) for prompt in prompts]
        self._width = max(lengths)
        self._prompt_B = torch.tensor(self._blocks.prompt_of_block, device=self.device)
        self._length_B = torch.tensor(lengths, device=self.device)[self._prompt_B]
        self._turns = decoder.turns(self._width + self._max_room)
        shape = (decoder.num_layers, 2, len(self._prompt_B), decoder.num_groups, self._width, decoder.head_width)
        self._shared = torch.zeros(shape, device=self.device)  # keys and values of prompts, (L, 2, B, K, S, d)
        self._own = self._new_own(min(self._max_room, FIRST_ROOM))  # those of new tokens, (L, 2, B, K, W, R, d)
        self._lay_out()

    def start(self) -> Tensor:
        """See `DecodedRows.start`."""
        hidden = prefill(self._policy, self._prompts, self)
        return self._blocks.taken(hidden[self._prompt_B].repeat_interleave(self._blocks.width, dim=0))

    def put_prompts(self, first: int, key_PKWd: Tensor, value_PKWd: Tensor, rules: AttentionRules) -> None:
        """See `PromptKeys`."""
        both = torch.stack([self._decoder.interleaved(key_PKWd), value_PKWd])
        block = ((self._prompt_B >= first) & (self._prompt_B < first + both.shape[1])).nonzero().squeeze(1)
        self._shared[rules.layer, :, block, :, : both.shape[3]] = both[:, self._prompt_B[block] - first]

    def keep(self, kept: Tensor) -> None:
        """See `DecodedRows.keep`."""
        before, self._blocks = self._blocks, self._blocks.of_rows(kept.tolist())
        slot = before.slot_N[kept][self._blocks.row_of_slot].view(-1, self._blocks.width)
        block = slot // before.width
        seen = self._own.transpose(3, 4)[:, :, block, slot % before.width, :, : self._step]
        self._length_B, self._shared = self._length_B[block[:, 0]], self._shared[:, :, block[:, 0]]
        self._own = self._new_own(self._own.shape[5])
        self._own[..., : self._step, :] = seen.transpose(3, 4)
        self._lay_out()

    def advance(self, token_ids_N: Tensor) -> Tensor:
        """See `DecodedRows.advance`."""
        if self._step == self._own.shape[5]:
            held, self._own = self._own, self._new_own(min(self._max_room, 2 * self._step))
            self._own[..., : self._step, :] = held
            self._lay_out()
        self._turn = self._turns[self._length_B + self._step][:, None, None]
        hidden = self._decoder.step(token_ids_N, self._attend)
        self._step += 1
        return hidden

    def _new_own(self, room: int) -> Tensor:
        decoder, blocks = self._decoder, self._blocks
        shape = (decoder.num_layers, 2, len(blocks.prompt_of_block), decoder.num_groups, blocks.width, room)
        return torch.empty(*shape, decoder.head_width, device=self.device)

    def _lay_out(self) -> None:
        """What stays the same for some steps: views for each layer, what hides the ends of shorter prompts."""
        decoder = self._decoder
        beyond = torch.arange(self._width, device=self.device) >= self._length_B[:, None]
        bias = torch.zeros(beyond.shape, device=self.device).masked_fill_(beyond, -torch.inf)
        self._bias = bias.repeat_interleave(decoder.num_groups, dim=0)[:, None]
        shape = (len(self._length_B), decoder.num_groups, self._blocks.width, decoder.per_group, decoder.head_width)
        query = torch.empty(shape, device=self.device)
        self._query, self._turned_query = query.flatten(2, 3).flatten(0, 1), _as_complex(query)
        # As (B * K, S, d) or (B * K * W, R, d); the places where keys and values go as (R, B, W, K, 2, d / 2).
        self._prompts_of = [tuple(layer.flatten(1, 2).unbind()) for layer in self._shared]
        self._own_of = [tuple(layer.flatten(1, 3).unbind()) for layer in self._own]
        self._places_of = [_as_complex(layer).permute(4, 1, 3, 2, 0, 5) for layer in self._own]

    def _attend(self, layer: int, heads: Tensor) -> Tensor:
        """See `FusedDecoder.step`."""
        blocks, num_seen = self._blocks, self._step + 1
        num_blocks, num_groups, width, per_group, half = self._turned_query.shape
        heads = _as_complex(blocks.placed(heads).view(num_blocks, width, num_groups, per_group + 2, 2 * half))
        torch.mul(heads[:, :, :, :per_group], self._turn[..., :per_group, :], out=self._turned_query.transpose(1, 2))
        torch.mul(heads[:, :, :, per_group:], self._turn[..., per_group:, :], out=self._places_of[layer][self._step])
        key, value = self._prompts_of[layer]
        own_key, own_value = self._own_of[layer]
        by_row = (num_blocks * num_groups * width, per_group, -1)
        products = torch.baddbmm(self._bias, self._query, key.transpose(1, 2))
        own_products = torch.bmm(self._query.view(by_row), own_key[:, :num_seen].transpose(1, 2))
        products = torch.cat([products, own_products.view(*products.shape[:2], num_seen)], dim=2)
        shares, own_shares = torch.softmax(products, dim=2).split([self._width, num_seen], dim=2)
        output = torch.bmm(shares, value)
        output.view(by_row).baddbmm_(own_shares.view(by_row), own_value[:, :num_seen])
        output = output.view(num_blocks, num_groups, width, -1).transpose(1, 2).reshape(num_blocks * width, -1)
        return blocks.taken(output)


def _as_complex(real: Tensor) -> Tensor:
    """Pairs of the last dimension as complex numbers."""
    return torch.view_as_complex(real.unflatten(-1, (-1, 2)))


def fits(policy: Policy, num_tokens: int) -> bool:
    """True if every query sees all tokens before it, of `num_tokens` at most: `FusedRows` takes it for granted."""
    config = policy.config
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return window is None or num_tokens <= int(window)


@torch.inference_mode()
def can_fuse(policy: Policy) -> bool:
    """True if a `FusedDecoder` of this policy gives the model's own hidden states, tried on three rows."""
    prompts, fed = [[0, 1, 2, 3, 4], [2, 1, 0]], [[1, 3, 2], [0, 4, 4], [3, 2, 1]]
    prompts, fed = ([[id_ % policy.vocab_size for id_ in ids] for ids in rows] for rows in (prompts, fed))
    if policy.num_parameters > _MOST_PARAMETERS or not fits(policy, 8):
        return False
    try:
        decoder = FusedDecoder(policy)
    except NotImplementedError:
        return False
    rows = FusedRows(policy, prompts, [2, 1], max_new_tokens=4, decoder=decoder)
    found = [rows.start()]
    found += [rows.advance(torch.tensor(ids, device=policy.device)) for ids in zip(*fed, strict=True)]
    for row, (prompt, ids) in enumerate(zip((prompts[0], *prompts), fed, strict=True)):
        token_ids = torch.tensor([prompt + ids], device=policy.device)
        position = torch.arange(token_ids.shape[1], device=policy.device)[None]
        expected = policy.hidden_states(token_ids, position)[0, len(prompt) - 1 :]
        if not torch.allclose(torch.stack([hidden[row] for hidden in found]), expected, rtol=1e-4, atol=1e-4):
            return False
    return True
