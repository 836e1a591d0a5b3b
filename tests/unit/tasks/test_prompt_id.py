from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from motet.tasks.prompt_id import parse_prompt_id

NUM_PROMPTS = {"train": 20, "test": 5, "ood": 0}


@given(st.sampled_from(["train", "test"]), st.integers(0, 40))
def test_reads_back_what_it_would_write_within_bounds(split, index):
    prompt_id = f"{split}/{index}"
    if index < NUM_PROMPTS[split]:
        assert parse_prompt_id(prompt_id, NUM_PROMPTS.__getitem__) == (split, index)
    else:
        with pytest.raises(KeyError):
            parse_prompt_id(prompt_id, NUM_PROMPTS.__getitem__)


@given(st.text())
@example("train/017")
@example("train/-1")
@example("train/+1")
@example("train/1 ")
@example("train/1\n")
@example("train/\u0661")
@example("train/1_0")
@example("train/" + "1" * 5000)
@example("Train/1")
@example("train")
@example("train/")
@example("ood/0")
@example("valid/0")
def test_any_other_spelling_is_no_id(prompt_id):
    if prompt_id in {f"{split}/{i}" for split, count in NUM_PROMPTS.items() for i in range(count)}:
        return
    with pytest.raises(KeyError):
        parse_prompt_id(prompt_id, NUM_PROMPTS.__getitem__)
