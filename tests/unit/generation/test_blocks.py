"""Where rows stand: no row is lost, no place taken twice, at most half of them empty."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.generation.blocks import Blocks

CPU = torch.device("cpu")
ROWS = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(
    lambda counts: [prompt for prompt, count in enumerate(counts) for _ in range(count)]
)


@given(prompt_of_row=ROWS)
def test_every_row_has_a_place_in_a_block_of_its_prompt(prompt_of_row):
    blocks = Blocks(prompt_of_row, CPU)
    slots = blocks.slot_N.tolist()
    assert len(set(slots)) == len(prompt_of_row)
    assert [blocks.prompt_of_block[slot // blocks.width] for slot in slots] == prompt_of_row
    assert len(blocks.prompt_of_block) * blocks.width <= 2 * len(prompt_of_row)


@given(prompt_of_row=ROWS, heads=st.sampled_from([(1, 1), (2, 3)]))
def test_what_goes_in_comes_out(prompt_of_row, heads):
    num_heads, per_head = heads
    blocks = Blocks(prompt_of_row, CPU)
    rows = torch.arange(len(prompt_of_row) * num_heads * per_head * 2.0).view(-1, num_heads * per_head, 1, 2)
    placed = blocks.from_rows(rows, num_heads)
    assert placed.shape == (len(blocks.prompt_of_block), num_heads, blocks.width, per_head, 2)
    assert torch.equal(blocks.to_rows(placed), rows.squeeze(2))


def test_groups_of_one_size_leave_no_place_empty():
    blocks = Blocks([0] * 4 + [1] * 4, CPU)
    assert (blocks.prompt_of_block, blocks.width) == ([0, 1], 4)


def test_a_large_group_beside_small_ones_gets_several_blocks():
    blocks = Blocks([0] * 64 + list(range(1, 33)), CPU)
    assert len(blocks.prompt_of_block) * blocks.width < 2 * 96
    assert blocks.prompt_of_block.count(0) > 1


def test_rows_that_stay():
    blocks = Blocks([0, 0, 1, 2, 2, 2], CPU).of_rows([1, 3, 5])
    assert (blocks.prompt_of_block, blocks.width) == ([0, 2], 2)
    assert Blocks([0, 0, 1, 2, 2, 2], CPU).blocks_of(blocks.prompt_of_block) == [0, 2]
