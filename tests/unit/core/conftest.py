from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.core import FtisLoss, ftis_loss, group_advantages

FIXTURES = Path(__file__).parents[2] / "data" / "loss_fixtures.json"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `fixture_case` runs once for each case of the shared file."""
    if "fixture_case" in metafunc.fixturenames:
        cases = json.loads(FIXTURES.read_text())["cases"]
        names = [f"{n}-{case['settings']['weights']}-{case['settings']['rule']}" for n, case in enumerate(cases)]
        metafunc.parametrize("fixture_case", cases, ids=names)


@dataclass
class Batch:
    """Arguments of `ftis_loss`, that can be cut, permuted and padded."""

    theta_BT: Tensor
    old_BT: Tensor
    gen_BT: Tensor
    mask_BT: Tensor
    advantage_B: Tensor
    external_B: Tensor

    def loss(self, **settings: Any) -> FtisLoss:
        return ftis_loss(
            self.theta_BT, self.old_BT, self.gen_BT, self.mask_BT, self.advantage_B, self.external_B, **settings
        )

    def gradient(self, **settings: Any) -> Tensor:
        (gradient_BT,) = torch.autograd.grad(self.loss(**settings).loss, self.theta_BT)
        return gradient_BT

    def rows(self, index: Any) -> Batch:
        parts = (self.theta_BT, self.old_BT, self.gen_BT, self.mask_BT, self.advantage_B, self.external_B)
        theta_BT, *others = (part[index] for part in parts)
        return Batch(theta_BT.detach().clone().requires_grad_(), *others)


@pytest.fixture
def make_batch():
    """Build a random batch: 4 groups of 4, half of them external, ragged lengths 1 to 7."""

    def build(seed: int = 0, spread: float = 0.6, dtype: torch.dtype = torch.float64) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        B, T = 16, 7

        def normal(scale: float) -> Tensor:
            return scale * torch.randn(B, T, generator=generator, dtype=torch.float64)

        gen_BT = -normal(2.0).abs()
        old_BT = gen_BT + normal(spread)
        theta_BT = old_BT + normal(0.2)
        length_B = torch.randint(1, T + 1, (B,), generator=generator)
        group_B = torch.arange(B) // 4
        reward_B = torch.rand(B, generator=generator, dtype=torch.float64).round(decimals=1)
        return Batch(
            theta_BT.to(dtype).requires_grad_(),
            old_BT.to(dtype),
            gen_BT.to(dtype),
            torch.arange(T)[None] < length_B[:, None],
            group_advantages(reward_B, group_B),
            group_B % 2 == 1,
        )

    return build
