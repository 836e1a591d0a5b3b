"""TRL's own GRPO loss, run live on the same numbers.

Optional: needs `trl==1.16.0` (the extra "trl") and runs with `pytest -m oracle`. When TRL corrects for vLLM's log-probs
it truncates the ratio at a cap, which is the weight of F-TIS. It has no filter, so it gets filtered advantages.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.core import ftis_loss, group_advantages, keep_mask, kl_gen_old

pytestmark = pytest.mark.oracle
TRL_VERSION = "1.16.0"
B, G, T = 24, 4, 9


@pytest.fixture(scope="module")
def grpo_trainer() -> Any:
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("trl is not installed (pip install 'motet[trl]')")
    if version != TRL_VERSION:
        pytest.skip(f"trl {version} is installed; this test knows the inside of {TRL_VERSION}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.trainer.grpo_trainer import GRPOTrainer
    return GRPOTrainer


def trl_loss(trainer_class: Any, theta_BT: Tensor, inputs: dict[str, Tensor], epsilon: tuple[float, float]) -> Tensor:
    """`GRPOTrainer._compute_loss` with the log-probs supplied and everything switched off that is not GRPO."""
    trainer = object.__new__(trainer_class)

    def unchanged(value: Any, reduction: str | None = None) -> Any:
        return value

    settings = {
        "accelerator": SimpleNamespace(
            gather=unchanged, reduce=unchanged, gather_for_metrics=unchanged, num_processes=1
        ),
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1, report_to=[]),
        "model": SimpleNamespace(training=True),
        "_metrics": {"train": defaultdict(list)},
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "beta": 0.0,
        "loss_type": "grpo",
        "epsilon_low": epsilon[0],
        "epsilon_high": epsilon[1],
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "current_gradient_accumulation_steps": 1,
        "_entropy_bonus_enabled": False,
        "aux_loss_enabled": False,
        "max_completion_length": theta_BT.shape[1],
        "_get_per_token_logps_and_entropies": lambda *_, **__: (theta_BT, torch.zeros_like(theta_BT), None),
    }
    for name, value in settings.items():
        object.__setattr__(trainer, name, value)
    return trainer._compute_loss(None, inputs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", ["none", "vanilla", "truncated"])
@pytest.mark.parametrize("rule", ["either", "both", "off"])
@pytest.mark.parametrize("epsilon", [(0.2, 0.2), (0.1, 0.3)])
def test_same_loss_and_gradient(grpo_trainer, seed, weights, rule, epsilon):
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(B, T, generator=generator, dtype=torch.float64)

    gen_BT = -normal(2.0).abs()
    old_BT = gen_BT + normal(0.7)
    theta_BT = (old_BT + normal(0.2)).requires_grad_()
    length_B = torch.randint(1, T + 1, (B,), generator=generator)
    mask_BT = torch.arange(T)[None] < length_B[:, None]
    group_B = torch.arange(B) // G
    external_B = group_B % 2 == 1
    advantage_B = group_advantages(torch.rand(B, generator=generator, dtype=torch.float64), group_B)

    result = ftis_loss(
        theta_BT, old_BT, gen_BT, mask_BT, advantage_B, external_B,
        epsilon=epsilon[0], epsilon_high=epsilon[1], weights=weights, rule=rule, kl_limit_nats=2.0,
    )  # fmt: skip
    (gradient_BT,) = torch.autograd.grad(result.loss, theta_BT)

    ratio_BT = (old_BT - gen_BT).exp()
    weight_BT = {"none": torch.ones_like(ratio_BT), "vanilla": ratio_BT, "truncated": ratio_BT.clamp(max=2.0)}[weights]
    keep_B = keep_mask(advantage_B, kl_gen_old(old_BT, gen_BT, mask_BT), external_B, rule=rule, kl_limit_nats=2.0)
    assert rule == "off" or not keep_B.all()
    inputs = {
        "prompt_ids": torch.zeros(B, 2, dtype=torch.long),
        "prompt_mask": torch.ones(B, 2, dtype=torch.long),
        "completion_ids": torch.zeros(B, T, dtype=torch.long),
        "completion_mask": mask_BT.long(),
        "advantages": torch.where(keep_B, advantage_B, 0.0),
        "old_per_token_logps": old_BT,
        "sampling_per_token_logps": gen_BT,
        "importance_sampling_ratio": weight_BT,
        "num_items_in_batch": mask_BT.sum(),
    }
    expected = trl_loss(grpo_trainer, theta_BT, inputs, epsilon)
    (expected_BT,) = torch.autograd.grad(expected, theta_BT)
    torch.testing.assert_close(result.loss, expected, rtol=0, atol=1e-7)
    torch.testing.assert_close(gradient_BT, expected_BT, rtol=0, atol=1e-7)
