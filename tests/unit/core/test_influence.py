from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.core.influence import sample_influence, scales_within


def scales(own, *peers, limit):
    return scales_within(own, torch.tensor(peers, dtype=torch.float64), limit).tolist()


@pytest.mark.parametrize(
    ("own", "peers", "limit", "expected"),
    [
        (1, [3], 0.5, [1 / 3]),  # 1 : 1
        (1, [1], 0.5, [1]),
        (3, [1], 0.25, [1]),
        (3, [4], 0.25, [1 / 4]),  # 1 : 3
        (1, [5, 1], 0.5, [2 / 5, 1]),  # 2 of 4
        (1, [5, 4], 0.4, [2 / 5, 2 / 4]),  # two scaled: c = 0.4 * (1 + 2c)
        (1, [5, 4, 1], 0.4, [4 / 5, 1, 1]),  # only the largest: c = 0.4 * (6 + c)
        (0, [5], 0.5, [0]),
        (0, [5, 2], 0.4, [0, 0]),
        (0, [5, 2], 0.5, [2 / 5, 1]),
        (0, [0, 0], 0.5, [1, 1]),
        (0, [], 0.5, []),
        (1, [1e9, 0], 1.0, [1, 1]),
        (0, [7], 1.0, [1]),
    ],
)
def test_by_hand(own, peers, limit, expected):
    assert scales(own, *peers, limit=limit) == pytest.approx(expected)


amounts = st.floats(0, 1e6) | st.sampled_from([0.0, 1.0, 1e-9])


@given(amounts, st.lists(amounts, max_size=6), st.floats(0.01, 1.0))
def test_nobody_exceeds_the_limit_and_nobody_is_scaled_for_nothing(own, peers, limit):
    found = scales(own, *peers, limit=limit)
    after = [scale * influence for scale, influence in zip(found, peers, strict=True)]
    total = own + sum(after)
    assert all(0 <= scale <= 1 for scale in found)
    for scale, influence in zip(found, after, strict=True):
        assert influence <= limit * total * (1 + 1e-6)
        if scale < 1:
            assert influence == pytest.approx(limit * total, rel=1e-6, abs=1e-12), "scaled further than needed"
    scaled = [influence for scale, influence in zip(found, after, strict=True) if scale < 1]
    assert scaled == pytest.approx([scaled[0]] * len(scaled)) if scaled else True


def test_influence_is_the_size_of_the_coefficient():
    advantage_B = torch.tensor([2.0, -2.0, 0.0])
    weight_BT = torch.tensor([[1.0, 2.0], [0.5, 0.0], [2.0, 2.0]])
    mask_BT = torch.tensor([[1, 1], [1, 0], [1, 1]])
    assert sample_influence(advantage_B, weight_BT, mask_BT).tolist() == [3.0, 1.0, 0.0]
