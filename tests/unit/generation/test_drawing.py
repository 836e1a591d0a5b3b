"""Drawing from the whole distribution: against plain cumulative sums, and what never may come."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.generation import drawing
from motet.generation.drawing import draw, invert, uniform_numbers

SIZES = (1, 2, 16, 1024, 1025, 1280, 3001)


def random_probabilities(vocab_size, num_rows=1, *, seed=0, sharpness=3.0):
    rng = torch.Generator().manual_seed(seed)
    return torch.softmax(torch.randn(num_rows, vocab_size, generator=rng) * sharpness, dim=-1)


@pytest.mark.parametrize("vocab_size", SIZES)
def test_an_even_grid_of_numbers_hits_each_id_as_often_as_its_probability_says(vocab_size):
    num_points = 20_000
    probability = random_probabilities(vocab_size)
    grid = (torch.arange(num_points, dtype=torch.float64) + 0.5) / num_points
    counts = torch.cat(
        [torch.bincount(invert(probability.expand(len(u), -1), u), minlength=vocab_size)[None] for u in grid.split(500)]
    ).sum(0)
    exact = probability[0].double() / probability[0].double().sum()
    assert float((counts - exact * num_points).abs().max()) <= 1.01


@given(
    vocab_size=st.sampled_from(SIZES),
    seed=st.integers(0, 1000),
    uniform=st.sampled_from([0.0, 1e-12, 0.25, 0.999, 1.0 - 2.0**-53]),
    share_zero=st.sampled_from([0.0, 0.5, 0.97]),
)
def test_ids_of_probability_zero_never_come(vocab_size, seed, uniform, share_zero):
    probability = random_probabilities(vocab_size, num_rows=4, seed=seed)
    dropped = torch.rand(probability.shape, generator=torch.Generator().manual_seed(seed)) < share_zero
    dropped[:, seed % vocab_size] = False
    probability = probability.masked_fill(dropped, 0.0)
    chosen = invert(probability, torch.full((4,), uniform, dtype=torch.float64))
    assert bool((probability.gather(1, chosen[:, None]) > 0).all())


@pytest.mark.parametrize("vocab_size", [16, 3001])
def test_numbers_of_fp32_serve_as_well(vocab_size):
    probability = random_probabilities(vocab_size, num_rows=64)
    uniform = torch.rand(64, generator=torch.Generator().manual_seed(1))
    assert invert(probability, uniform).tolist() == invert(probability, uniform.double()).tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 2.0])
def test_log_probs_of_the_tempered_distribution_however_the_rows_are_cut(random_policy, monkeypatch, temperature):
    policy = random_policy()
    hidden = torch.randn(50, 32, generator=torch.Generator().manual_seed(0))
    uniform = uniform_numbers(1, 50, torch.Generator().manual_seed(2), policy.device)[0]
    with torch.no_grad():
        ids, logp = draw(policy, hidden, temperature=temperature, uniform_N=uniform)
        expected = torch.log_softmax(policy.logits(hidden).double() / (temperature or 1.0), dim=-1)
        monkeypatch.setattr(drawing, "_MAX_ELEMENTS", 7 * policy.vocab_size)
        cut_ids, cut_logp = draw(policy, hidden, temperature=temperature, uniform_N=uniform)
    torch.testing.assert_close(logp.double(), expected.gather(1, ids[:, None]).squeeze(1), atol=2e-6, rtol=0)
    assert cut_ids.tolist() == ids.tolist()
    torch.testing.assert_close(cut_logp, logp, atol=1e-6, rtol=0)
    assert (ids.tolist() == expected.argmax(dim=1).tolist()) == (temperature == 0.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("vocab_size", [16, 1400])
def test_a_row_that_is_not_a_number_says_so_and_harms_no_other(random_policy, temperature, vocab_size):
    policy = random_policy(vocab_size=vocab_size)
    hidden = torch.ones(3, 32)
    hidden[1, 5] = torch.nan
    with torch.no_grad():
        ids, logp = draw(policy, hidden, temperature=temperature, uniform_N=torch.full((3,), 0.5, dtype=torch.float64))
    assert logp.isnan().tolist() == [False, True, False]
    assert bool(((ids >= 0) & (ids < vocab_size)).all())


def test_random_numbers_are_those_of_the_generator_alone():
    numbers = [uniform_numbers(5, 3, torch.Generator().manual_seed(seed), torch.device("cpu")) for seed in (1, 1, 2)]
    assert np.array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers[0], numbers[2])
    assert bool(((numbers[0] >= 0) & (numbers[0] < 1)).all())
