from __future__ import annotations

from pathlib import Path

import pytest
import torch

from motet.bench.models import BenchModel, build_policy, check_model, size_of
from motet.errors import UsageError


@pytest.mark.parametrize("name", ["smollm2-135m", "tiny:small", "llama:64x1x50"])
def test_models_that_are_known(name: str) -> None:
    check_model(name)


def test_a_folder_with_a_config_is_a_model_and_one_without_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model"):
        check_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    check_model(str(tmp_path))


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(UsageError, match='did you mean "smollm2-135m"') as caught:
        check_model("smollm-135m")
    assert caught.value.code == "E-BENCH-01"


def test_weights_come_from_the_seed() -> None:
    first, again, other = (build_policy(BenchModel("llama:64x1x50", seed=seed)) for seed in (0, 0, 1))
    weights = [policy.head.weight for policy in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_plain_means_that_attention_is_not_planned() -> None:
    fast, plain = (build_policy(BenchModel("tiny:small"), plain=plain) for plain in (False, True))
    assert fast.takes_plans
    assert not plain.takes_plans


def test_the_size_by_hand() -> None:
    size = size_of(build_policy(BenchModel("llama:64x2x50")))
    assert (size.layers, size.heads_width, size.hidden, size.vocab, size.adapter_weights) == (2, 64, 64, 50, 0)
    assert size.matrix_weights == 2 * (4 * 64 * 64 + 3 * 64 * 168)  # 168: 64 * 8 / 3, rounded down to eights


def test_an_adapter_leaves_the_matrices_as_they_are() -> None:
    pytest.importorskip("peft", reason="needs the extra lora")
    whole, adapted = (size_of(build_policy(BenchModel("llama:64x2x50", lora=lora))) for lora in (False, True))
    assert whole.matrix_weights == adapted.matrix_weights
    assert adapted.adapter_weights == 2 * 16 * (4 * (64 + 64) + 3 * (64 + 168))
