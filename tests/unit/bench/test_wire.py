from __future__ import annotations

import numpy as np

from motet.bench.wire import ENCODINGS, bench_wire, draw_groups, measure_groups


def test_groups_are_of_the_size_that_is_asked_for() -> None:
    groups = draw_groups(1000, 12, num_tokens=500, seed=0)
    assert 500 <= sum(group.num_tokens for group in groups) < 500 + 8 * 12
    assert {len(rollout.token_ids) for group in groups for rollout in group.rollouts} == {12}


def test_every_encoding_gives_the_group_back() -> None:
    (group,) = draw_groups(49_152, 24, num_tokens=1, seed=0)
    for name, encoding in ENCODINGS.items():
        got = encoding.decode(encoding.encode(group))
        assert (got.peer, got.prompt_id, got.sampler) == (group.peer, group.prompt_id, group.sampler)
        for sent, received in zip(group.rollouts, got.rollouts, strict=True):
            np.testing.assert_array_equal(sent.token_ids, received.token_ids)
            np.testing.assert_allclose(sent.logp_gen, received.logp_gen, atol=1e-3 if name == "compact" else 0)


def test_bytes_and_error_are_measured() -> None:
    found = measure_groups(draw_groups(49_152, 200, num_tokens=3000, seed=0), repeats=1)
    assert 8.0 < found["msgpack"]["bytes_per_token"] < 8.5
    assert found["compact"]["bytes_per_token"] < 4.5 < found["exact"]["bytes_per_token"]
    assert 0 < found["compact"]["largest_error_nats"] < 1e-3
    assert found["exact"]["largest_error_nats"] == 0


def test_every_pair_has_a_row() -> None:
    heard: list[str] = []
    result = bench_wire(say=heard.append, vocabularies=(16, 500), completions=(3,), num_tokens=50, repeats=1)
    assert len(heard) == 2
    assert [(cell["vocabulary"], cell["completion"]) for cell in result["figures"]] == [(16, 3), (500, 3)]
    assert all(cell["gate"]["tokens_per_s"] > 0 for cell in result["figures"])
