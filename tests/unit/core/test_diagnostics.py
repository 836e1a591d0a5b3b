from __future__ import annotations

import math

import pytest
import torch

from motet.core import DropReason, drop_reasons, loss_diagnostics

LOG2 = math.log(2)
EXTERNAL_NAMES = {
    "kl_gen_old/token_mean",
    "kl_gen_old/sum_p50",
    "kl_gen_old/sum_p95",
    "weight/mean_before_cap",
    "weight/capped_share",
    "weight/effective_sample_size",
    "filter/dropped_share",
    "filter/dropped/advantage",
    "filter/dropped/kl",
    "filter/dropped/advantage_and_kl",
    "filter/dropped/non_finite",
    "filter/dropped/rule",
    "external/influence_share",
}
OWN_NAMES = {
    "self_check/non_finite_share",
    "self_check/logp_gap_mean",
    "self_check/logp_gap_max",
    "self_check/weight_mean",
}


def example(cap=2.0, **changes):
    """Rows 0, 1 own; 2 to 5 external. Ratios of tokens: 1 1 / 1 e^-0.1 | 2 1 / 4 4 / 1/2 (one token) / 1 NaN."""
    old_BT = torch.full((6, 2), -3.0, dtype=torch.float64)
    difference_BT = torch.tensor(
        [[0, 0], [0, -0.1], [LOG2, 0], [2 * LOG2, 2 * LOG2], [-LOG2, 9], [0, math.nan]], dtype=torch.float64
    )
    mask_BT = torch.tensor([[1, 1], [1, 1], [1, 1], [1, 1], [1, 0], [1, 1]])
    K, A, KL, _, BAD, _ = DropReason
    arguments = {
        "logp_old_BT": old_BT,
        "logp_gen_BT": old_BT - difference_BT,
        "mask_BT": mask_BT,
        "advantage_B": torch.tensor([1.0, -1.0, 2.0, 3.0, 0.0, 1.0], dtype=torch.float64),
        "is_external_B": torch.tensor([False, False, True, True, True, True]),
        "reason_B": torch.tensor([K, K, K, KL, A, BAD]),
        "group_B": torch.tensor([0, 0, 1, 1, 2, 3]),
    }
    return loss_diagnostics(**(arguments | changes), cap=cap)


def test_by_hand():
    numbers = example()
    assert set(numbers) == EXTERNAL_NAMES | OWN_NAMES | {"group/zero_variance_share"}
    k3 = {ratio: ratio - 1 - math.log(ratio) for ratio in (2, 4, 0.5)}
    # External tokens of finite rows: ratios 2, 1, 4, 4, 1/2.
    assert numbers["kl_gen_old/token_mean"] == pytest.approx((k3[2] + 2 * k3[4] + k3[0.5]) / 5)
    assert numbers["kl_gen_old/sum_p50"] == pytest.approx(k3[2])  # sums: 0.193, 0.307, 3.227
    assert numbers["kl_gen_old/sum_p95"] == pytest.approx(k3[2] + 0.9 * (2 * k3[4] - k3[2]))
    assert numbers["weight/mean_before_cap"] == pytest.approx(11.5 / 5)
    assert numbers["weight/capped_share"] == pytest.approx(2 / 5)  # a ratio equal to the cap is not over it
    assert numbers["weight/effective_sample_size"] == pytest.approx(11.5**2 / (5 * (4 + 1 + 16 + 16 + 0.25)))
    assert numbers["filter/dropped_share"] == pytest.approx(3 / 4)
    assert numbers["filter/dropped/advantage"] == pytest.approx(1 / 4)
    assert numbers["filter/dropped/kl"] == pytest.approx(1 / 4)
    assert numbers["filter/dropped/advantage_and_kl"] == 0
    assert numbers["filter/dropped/non_finite"] == pytest.approx(1 / 4)
    # Kept: |1| * 1, |-1| * (1 + e^-0.1)/2, and the external |2| * (2 + 1)/2 = 3.
    own = 1 + (1 + math.exp(-0.1)) / 2
    assert numbers["external/influence_share"] == pytest.approx(3 / (3 + own))
    assert numbers["group/zero_variance_share"] == pytest.approx(1 / 4)  # of groups 0, 1, 2, 3 only 2
    assert numbers["self_check/logp_gap_mean"] == pytest.approx(0.1 / 4)
    assert numbers["self_check/logp_gap_max"] == pytest.approx(0.1)
    assert numbers["self_check/weight_mean"] == pytest.approx((3 + math.exp(-0.1)) / 4)
    assert numbers["self_check/non_finite_share"] == 0


def test_alone_there_are_no_numbers_about_others():
    numbers = example(is_external_B=torch.zeros(6, dtype=torch.bool))
    assert set(numbers) == OWN_NAMES | {"group/zero_variance_share"}
    assert numbers["self_check/non_finite_share"] == pytest.approx(1 / 6)
    assert all(math.isfinite(value) for value in numbers.values())


def test_without_own_samples_there_is_no_self_check():
    numbers = example(is_external_B=torch.ones(6, dtype=torch.bool))
    assert set(numbers) == EXTERNAL_NAMES | {"group/zero_variance_share"}
    assert numbers["external/influence_share"] == 1.0


def test_external_samples_without_one_usable_number():
    numbers = example(logp_gen_BT=torch.full((6, 2), math.nan), reason_B=torch.full((6,), int(DropReason.NON_FINITE)))
    assert numbers["filter/dropped/non_finite"] == 1.0
    assert numbers["self_check/non_finite_share"] == 1.0
    assert numbers["external/influence_share"] == 0.0
    assert "weight/mean_before_cap" not in numbers
    assert "self_check/logp_gap_mean" not in numbers


def test_an_advantage_that_is_not_finite_spoils_no_number():
    advantage_B = torch.tensor([math.nan, -1.0, 2.0, 3.0, 0.0, math.inf])
    reason_B = torch.tensor([4, 0, 0, 2, 1, 4])
    numbers = example(advantage_B=advantage_B, reason_B=reason_B)
    assert all(math.isfinite(value) for value in numbers.values())


def test_settings_of_the_weight_matter_for_influence_and_cap():
    assert example(cap=1.5)["weight/capped_share"] == pytest.approx(3 / 5)
    own = 1 + (1 + math.exp(-0.1)) / 2
    assert example(cap=1.5)["external/influence_share"] == pytest.approx(2.5 / (2.5 + own))


def test_dropped_shares_add_up(make_batch):
    batch = make_batch()
    result = batch.loss(kl_limit_nats=0.5)
    group_B = torch.arange(16) // 4
    numbers = loss_diagnostics(
        batch.old_BT, batch.gen_BT, batch.mask_BT, batch.advantage_B, batch.external_B, result.reason_B, group_B
    )
    shares = [value for name, value in numbers.items() if name.startswith("filter/dropped/")]
    assert sum(shares) == pytest.approx(numbers["filter/dropped_share"])
    assert min(numbers["filter/dropped/advantage"], numbers["filter/dropped/kl"]) > 0


def test_no_kept_sample_has_no_influence():
    everything_B = torch.ones(6, dtype=torch.bool)
    reason_B = drop_reasons(-torch.ones(6), torch.zeros(6), everything_B)
    assert example(is_external_B=everything_B, reason_B=reason_B)["external/influence_share"] == 0.0
