from __future__ import annotations

import math

import pytest
import torch

from motet.core import DropReason, drop_reasons, keep_mask

K, A, KL, AKL, BAD, _ = DropReason
ADVANTAGE_B = torch.tensor([1.0, 0.0, -1.0, 1.0, 0.0, -1.0])
KL_B = torch.tensor([50.0, 0.0, 0.0, 50.1, 50.1, 50.1])


@pytest.mark.parametrize(
    ("rule", "expected_B"),
    [
        ("either", [K, A, A, KL, AKL, AKL]),
        ("both", [K, K, K, K, K, AKL]),  # "both" asks for A < 0: an advantage of 0 pushes nowhere
        ("off", [K, K, K, K, K, K]),
    ],
)
def test_external_samples(rule, expected_B):
    external_B = torch.ones(6, dtype=torch.bool)
    reason_B = drop_reasons(ADVANTAGE_B, KL_B, external_B, rule=rule)
    assert reason_B.tolist() == expected_B
    assert reason_B.dtype == torch.int8
    keep_B = keep_mask(ADVANTAGE_B, KL_B, external_B, rule=rule)
    assert keep_B.dtype == torch.bool
    assert keep_B.tolist() == [reason == K for reason in expected_B]


@pytest.mark.parametrize("rule", ["either", "both", "off"])
def test_own_samples_are_always_kept(rule):
    own_B = torch.zeros(6, dtype=torch.bool)
    assert keep_mask(ADVANTAGE_B, KL_B, own_B, rule=rule, kl_limit_nats=1e-9).all()
    nan_B = torch.full((6,), math.nan)
    assert keep_mask(nan_B, nan_B, own_B, rule=rule).all()


def test_the_limit_itself_is_kept():
    keep_B = keep_mask(torch.ones(2), torch.tensor([3.0, 3.0001]), torch.ones(2), kl_limit_nats=3.0)
    assert keep_B.tolist() == [True, False]


def test_nan_never_passes_the_filter():
    """Written as `A <= 0` and `KL > limit` the rule would let NaN through: it compares as false."""
    advantage_B = torch.tensor([math.nan, 1.0, math.nan])
    kl_B = torch.tensor([0.0, math.nan, math.nan])
    assert drop_reasons(advantage_B, kl_B, torch.ones(3)).tolist() == [A, KL, AKL]
    assert keep_mask(advantage_B, kl_B, torch.ones(3), rule="both").tolist() == [True, True, False]


def test_samples_that_are_not_finite_have_that_one_reason():
    finite_B = torch.tensor([False, False, True, True])
    external_B = torch.tensor([True, False, True, False])
    for rule in ("either", "both", "off"):
        reason_B = drop_reasons(-torch.ones(4), torch.full((4,), 99.0), external_B, rule=rule, finite_B=finite_B)
        assert reason_B.tolist() == [BAD, BAD, K if rule == "off" else AKL, K]


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"got \(2,\), \(3,\), \(2,\)"):
        keep_mask(torch.ones(2), torch.ones(3), torch.ones(2))
    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        keep_mask(torch.ones(2, 1), torch.ones(2, 1), torch.ones(2, 1))


def test_codes_are_stable():
    """Journals and archives hold the numbers."""
    assert {reason.name: int(reason) for reason in DropReason} == {
        "KEPT": 0,
        "ADVANTAGE": 1,
        "KL": 2,
        "ADVANTAGE_AND_KL": 3,
        "NON_FINITE": 4,
        "RULE": 5,
    }
