from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from motet.bench.batch import FIRST_ID, BatchPlan, BenchBatch, advantages_kept, draw_batch, shares, with_log_probs
from motet.core import drop_reasons, group_advantages, kl_gen_old
from motet.core.filters import DropReason

LIMIT_NATS = 50.0


def settled(plan: BatchPlan) -> tuple[BenchBatch, dict[bytes, NDArray[np.float32]]]:
    """The batch with log-probs around those of a made-up model, and that model's own by a completion's bytes."""
    rng = np.random.default_rng(1)
    own: dict[bytes, NDArray[np.float32]] = {}

    def log_probs(prompt: Sequence[int], token_ids: NDArray[np.uint32]) -> NDArray[np.float32]:
        key = bytes(str(list(prompt)), "ascii") + token_ids.tobytes()
        return own.setdefault(key, (-3 * rng.random(len(token_ids))).astype(np.float32))

    return with_log_probs(draw_batch(plan), log_probs), own


def test_a_typical_batch_has_the_shares_that_are_promised() -> None:
    found = shares(draw_batch(BatchPlan(44, 24, vocab_size=1000)))
    assert found["external"] == 0.5
    assert found["external_dropped"] == 0.5
    assert 0 < found["external_dropped_kl"] <= 0.125
    assert found["groups_without_variance"] == 3 / 8
    assert found["learned"] == 0.5


@pytest.mark.parametrize(("prompts", "group_size"), [(8, 8), (16, 8), (12, 16), (6, 64), (24, 4)])
def test_shares_hold_for_other_sizes(prompts: int, group_size: int) -> None:
    found = shares(draw_batch(BatchPlan(10, 8, prompts, group_size, vocab_size=50)))
    assert found["external"] == 0.5
    assert found["external_dropped"] == pytest.approx(0.5, abs=0.05)
    assert found["groups_without_variance"] == pytest.approx(1 / 3, abs=0.06)


@pytest.mark.parametrize("group_size", [2, 3, 8])
def test_nothing_can_be_skipped_of_a_full_batch(group_size: int) -> None:
    found = shares(draw_batch(BatchPlan(44, 24, 8, group_size, "full", vocab_size=1000)))
    assert found["learned"] == 1.0
    assert found["external"] == found["groups_without_variance"] == 0.0


def test_a_group_of_two_still_makes_a_batch() -> None:
    advantages, fates = advantages_kept(draw_batch(BatchPlan(5, 4, 4, 2)))
    assert len(advantages) == len(fates) == 8


def test_lengths_are_as_planned_and_ids_are_none_of_the_special_ones() -> None:
    batch = draw_batch(BatchPlan(200, 200, vocab_size=100, prompts=32))
    prompts = [len(ids) for ids in batch.prompts.values()]
    completions = [len(rollout.token_ids) for group in batch.groups for rollout in group.rollouts]
    assert min(prompts) >= 180
    assert max(prompts) <= 220
    assert min(completions) >= 50
    assert max(completions) == 200
    ids = np.concatenate([rollout.token_ids for group in batch.groups for rollout in group.rollouts])
    assert ids.min() == FIRST_ID
    assert ids.max() == 99


def test_equal_seeds_draw_equal_batches_and_others_others() -> None:
    first, again, other = (draw_batch(BatchPlan(9, 8, seed=seed)) for seed in (1, 1, 2))
    assert first.prompts == again.prompts != other.prompts


def test_the_filter_of_the_loss_drops_exactly_what_the_batch_says() -> None:
    import torch

    batch, own = settled(BatchPlan(44, 24, vocab_size=1000))
    advantages, fates = advantages_kept(batch)
    rows = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
    external = torch.tensor([group.peer == "peer" for group, _ in rows])
    advantage_B = group_advantages(
        torch.tensor([rollout.reward for _, rollout in rows]),
        torch.tensor([batch.groups.index(group) for group, _ in rows]),
    )
    width = max(len(rollout.token_ids) for _, rollout in rows)
    old, gen, mask = (torch.zeros(len(rows), width) for _ in range(3))
    for number, (group, rollout) in enumerate(rows):
        key = bytes(str(batch.prompts[group.prompt_id]), "ascii") + rollout.token_ids.tobytes()
        length = len(rollout.token_ids)
        old[number, :length] = torch.from_numpy(own[key])
        gen[number, :length] = torch.from_numpy(rollout.logp_gen)
        mask[number, :length] = 1
    reasons = drop_reasons(advantage_B, kl_gen_old(old, gen, mask), external, kl_limit_nats=LIMIT_NATS)
    expected = {"worse": (DropReason.ADVANTAGE,), "far": (DropReason.KL,), "learned": (DropReason.KEPT,)}
    expected["silent"] = (DropReason.KEPT, DropReason.ADVANTAGE)
    assert all(reason in expected[fate] for reason, fate in zip(reasons.tolist(), fates, strict=True))
    assert Counter(fates) == {"learned": 32, "silent": 24, "worse": 6, "far": 2}
    learned = torch.tensor([fate == "learned" for fate in fates])
    np.testing.assert_allclose(advantages[learned.numpy()], advantage_B[learned].numpy(), rtol=1e-5)
    assert not advantages[~learned.numpy()].any()


def test_log_probs_are_never_above_zero() -> None:
    batch, _ = settled(BatchPlan(20, 24))
    assert max(float(rollout.logp_gen.max()) for group in batch.groups for rollout in group.rollouts) <= 0
