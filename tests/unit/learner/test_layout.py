"""Micro-batches and how their tokens lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.learner import build_batch
from motet.learner.layout import lay_out, micro_batches, rows_by_prompt
from motet.records import Group, Rollout, SamplerInfo

PROMPTS = {"train/0": [1, 2, 3], "train/1": [4], "train/2": [1, 2, 3]}
CPU = torch.device("cpu")


def build(*groups):
    """A batch of (prompt id, completion lengths) groups; token ids count up from 10 in each rollout."""
    made = [
        Group(
            "ann",
            number,
            prompt_id,
            SamplerInfo("m", 0, 1.0, "t"),
            tuple(
                Rollout(np.arange(10, 10 + n, dtype=np.uint32), np.full(n, -0.5, np.float32), "length", 0.0)
                for n in lengths
            ),
        )
        for number, (prompt_id, lengths) in enumerate(groups)
    ]
    return build_batch(made, [], prompt_ids=PROMPTS.__getitem__, joined=False)


def tokens_of(batch, rows, *, packed):
    return lay_out(batch, rows, packed=packed, device=CPU).token_ids.numel()


@pytest.mark.parametrize("packed", [True, False])
@given(
    groups=st.lists(
        st.tuples(st.sampled_from(sorted(PROMPTS)), st.lists(st.integers(1, 30), min_size=1, max_size=4)),
        min_size=1,
        max_size=8,
    ),
    max_tokens=st.integers(1, 100),
    data=st.data(),
)
def test_micro_batches_hold_every_row_once_and_keep_to_the_budget(groups, max_tokens, data, packed):
    batch = build(*groups)
    chosen = torch.tensor(sorted(data.draw(st.sets(st.integers(0, len(batch) - 1), min_size=1))))
    slices = micro_batches(batch, chosen, max_tokens=max_tokens, packed=packed)
    assert sorted(torch.cat(slices).tolist()) == chosen.tolist()
    for rows in slices:
        assert len(rows) == 1 or tokens_of(batch, rows, packed=packed) <= max_tokens


def test_a_wide_budget_is_one_micro_batch():
    batch = build(("train/0", [3, 9, 1]))
    padded = micro_batches(batch, torch.arange(3), max_tokens=33, packed=False)
    assert [rows.tolist() for rows in padded] == [[2, 0, 1]], "sorted by length"
    packed = micro_batches(batch, torch.arange(3), max_tokens=13, packed=True)
    assert [rows.tolist() for rows in packed] == [[0, 1, 2]], "3 of the prompt, 2 + 8 + 0 of the completions"


def test_a_prompt_is_not_split_to_fill_a_slice():
    batch = build(("train/0", [5, 5]), ("train/1", [5, 5]))
    slices = micro_batches(batch, torch.arange(4), max_tokens=15, packed=True)
    assert [rows.tolist() for rows in slices] == [[0, 1], [2, 3]]


def test_slices_are_small_where_that_splits_no_prompt():
    batch = build(("train/0", [5, 5]), ("train/1", [5, 5]), ("train/2", [20, 20]))

    def slices(enough_tokens, rows):
        found = micro_batches(batch, rows, max_tokens=100, packed=True, enough_tokens=enough_tokens)
        return [slice_.tolist() for slice_ in found]

    assert slices(None, torch.arange(4)) == [[0, 1, 2, 3]]
    assert slices(12, torch.arange(4)) == [[0, 1], [2, 3]]
    assert slices(12, torch.arange(6)) == [[0, 1, 2, 3], [4, 5]], "one of 41 tokens makes room for the others too"


def test_nothing_to_spread():
    for packed in (True, False):
        assert (
            micro_batches(build(("train/0", [1])), torch.tensor([], dtype=torch.long), max_tokens=9, packed=packed)
            == []
        )


def test_rows_of_one_prompt_stand_together():
    batch = build(("train/0", [1, 1]), ("train/1", [1, 1]), ("train/2", [1]))
    every = torch.ones(5, dtype=torch.bool)
    nobody = torch.zeros(5, dtype=torch.bool)
    assert rows_by_prompt(batch, every, last_B=nobody).tolist() == [0, 1, 4, 2, 3]
    assert rows_by_prompt(batch, ~nobody, last_B=torch.tensor([True, True, False, False, True])).tolist() == [
        *(2, 3),
        *(0, 1, 4),
    ]
    assert rows_by_prompt(batch, torch.tensor([False, True, True, False, True]), last_B=nobody).tolist() == [1, 4, 2]


def test_packed_tokens_by_hand():
    batch = build(("train/0", [3, 1]), ("train/1", [2]))
    layout = lay_out(batch, torch.arange(3), packed=True, device=CPU)
    assert layout.token_ids.tolist() == [[1, 2, 3, 10, 11, 4, 10]]
    assert layout.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1]]
    assert layout.predictor_M.tolist() == [2, 3, 4, 2, 5, 6], "one hidden state predicts both first tokens"
    assert layout.target_M.tolist() == [10, 11, 12, 10, 10, 11]


def test_padded_tokens_by_hand():
    batch = build(("train/0", [3, 1]), ("train/1", [2]))
    layout = lay_out(batch, torch.arange(3), packed=False, device=CPU)
    assert layout.token_ids.tolist() == [[1, 2, 3, 10, 11], [1, 2, 3, 0, 0], [4, 10, 0, 0, 0]]
    assert layout.positions.tolist() == [[0, 1, 2, 3, 4]] * 3
    assert layout.predictor_M.tolist() == [2, 3, 4, 7, 10, 11]
    assert layout.target_M.tolist() == [10, 11, 12, 10, 10, 11]
    assert layout.plan is None
