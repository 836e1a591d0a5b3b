"""Rows of the same prompt in blocks of one width, so that all blocks go through one batched matrix product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


class Blocks:
    """Where each row stands.

    A group that is much larger than the others gets several blocks; at most half of all places stay empty.

    >>> blocks = Blocks([0, 0, 0, 1, 2], torch.device("cpu"))
    >>> blocks.prompt_of_block, blocks.width, blocks.slot_N.tolist()
    ([0, 1, 2], 3, [0, 1, 2, 3, 6])

    Args:
        prompt_of_row: number of each row's prompt, ascending.
        device: where the model is.

    Attributes:
        prompt_of_block: number of each block's prompt.
        width: places of a block.
        slot_N: place of each row, counted through all blocks.
        row_of_slot: the row at each place; the first row again where a place is empty.
    """

    def __init__(self, prompt_of_row: Sequence[int], device: torch.device) -> None:
        self._prompt_of_row = prompt_of_row
        self._device = device
        counts = Counter(prompt_of_row)
        largest, num_rows = max(counts.values()), len(prompt_of_row)
        fits = largest * len(counts) <= 2 * num_rows
        self.width = largest if fits else -(-num_rows // len(counts))
        self.prompt_of_block: list[int] = []
        slots: list[int] = []
        for prompt, count in counts.items():
            first = len(self.prompt_of_block) * self.width
            slots.extend(range(first, first + count))
            self.prompt_of_block.extend([prompt] * -(-count // self.width))
        self.slot_N = torch.tensor(slots, device=device)
        num_slots = len(self.prompt_of_block) * self.width
        self._is_full = len(slots) == num_slots
        self.row_of_slot = torch.zeros(num_slots, dtype=torch.long, device=device)
        self.row_of_slot[self.slot_N] = torch.arange(len(slots), device=device)

    def of_rows(self, kept: Sequence[int]) -> Blocks:
        """Blocks of these rows alone."""
        return Blocks([self._prompt_of_row[row] for row in kept], self._device)

    def blocks_of(self, prompts: Sequence[int]) -> list[int]:
        """A block of each of these prompts."""
        block_of = {prompt: block for block, prompt in enumerate(self.prompt_of_block)}
        return [block_of[prompt] for prompt in prompts]

    def new_rows(self, like: Tensor, room: int) -> Tensor:
        """Unset memory for keys or values, (blocks, K, width, room, d)."""
        return like.new_empty(len(self.prompt_of_block), like.shape[1], self.width, room, like.shape[-1])

    def from_rows(self, rows_NH1d: Tensor, num_heads: int) -> Tensor:
        """Heads of rows, put into their places: (blocks, K, width, H / K, d)."""
        rows = self.placed(rows_NH1d.flatten(1))
        return rows.view(len(self.prompt_of_block), self.width, num_heads, -1, rows_NH1d.shape[-1]).transpose(1, 2)

    def to_rows(self, placed: Tensor) -> Tensor:
        """The inverse of `from_rows`, heads together: (N, H, d)."""
        rows = placed.transpose(1, 2).reshape(-1, placed.shape[1] * placed.shape[3], placed.shape[4])
        return self.taken(rows)

    def placed(self, rows_NX: Tensor) -> Tensor:
        """What each place holds, (places, X)."""
        return rows_NX if self._is_full else rows_NX.index_select(0, self.row_of_slot)

    def taken(self, places_SX: Tensor) -> Tensor:
        """The inverse of `placed`, (N, X)."""
        return places_SX if self._is_full else places_SX.index_select(0, self.slot_N)
