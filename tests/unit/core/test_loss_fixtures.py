"""The loss against numbers computed by TRL 1.16.0 and verl (see the note in the file)."""

from __future__ import annotations

import pytest
import torch

from motet.core import ftis_loss, group_advantages, keep_mask, loss_diagnostics


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_every_number_of_the_case(fixture_case):
    settings, expected = fixture_case["settings"], fixture_case["expect"]
    old_BT, gen_BT = tensor(fixture_case["logp_old"]), tensor(fixture_case["logp_gen"])
    theta_BT = tensor(fixture_case["logp_theta"]).requires_grad_()
    mask_BT = torch.arange(old_BT.shape[1])[None] < torch.tensor(fixture_case["length"])[:, None]
    external_B, group_B = torch.tensor(fixture_case["is_external"]), torch.tensor(fixture_case["group"])

    advantage_B = group_advantages(tensor(fixture_case["reward"]), group_B)
    torch.testing.assert_close(advantage_B, tensor(expected["advantage"]), rtol=0, atol=1e-7)

    result = ftis_loss(theta_BT, old_BT, gen_BT, mask_BT, advantage_B, external_B, **settings)
    result.loss.backward()
    assert result.loss.item() == pytest.approx(expected["loss"], abs=1e-7)
    torch.testing.assert_close(theta_BT.grad, tensor(expected["grad_logp_theta"]), rtol=0, atol=1e-7)
    torch.testing.assert_close(result.kl_B, tensor(expected["kl_sum_k3"]), rtol=0, atol=1e-7)
    assert result.keep_B.tolist() == expected["keep"]
    rule, limit = settings["rule"], settings["kl_limit_nats"]
    assert keep_mask(advantage_B, result.kl_B, external_B, rule=rule, kl_limit_nats=limit).tolist() == expected["keep"]
    torch.testing.assert_close(result.weight_BT, tensor(expected["weight"]) * mask_BT, rtol=0, atol=1e-7)

    # The file's metrics are over all samples; ours are over external ones, so here all are called external.
    all_B = torch.ones_like(external_B)
    numbers = loss_diagnostics(
        old_BT, gen_BT, mask_BT, advantage_B, all_B, result.reason_B, group_B, cap=settings["cap"]
    )
    assert numbers["kl_gen_old/token_mean"] == pytest.approx(expected["k3_token_mean"], abs=1e-7)
    assert numbers["weight/mean_before_cap"] == pytest.approx(expected["weight_mean"], abs=1e-7)
    assert numbers["weight/capped_share"] == pytest.approx(expected["share_over_cap"], abs=1e-7)
