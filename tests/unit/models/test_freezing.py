"""Frozen parts stay, and a pattern that means nothing is answered with what there is."""

from __future__ import annotations

import pytest

from motet.errors import UsageError
from motet.models.lora import LoraOptions


def refused(tiny_policy, *patterns):
    with pytest.raises(UsageError) as caught:
        tiny_policy(freeze=patterns)
    assert caught.value.code == "E-MODEL-14"
    return str(caught.value)


def test_patterns_exclude_parameters(tiny_policy):
    everything = set(tiny_policy().trainable())
    left = set(tiny_policy(freeze=("model.embed_tokens.*", "*.layers.0.*")).trainable())
    assert left
    assert everything - left == {n for n in everything if "embed_tokens" in n or ".layers.0." in n}


def test_a_matrix_of_two_names_goes_by_both(random_causal):
    from motet.models.freezing import freeze

    causal = random_causal("llama")
    freeze(causal, ["lm_head.weight"])
    assert not causal.get_input_embeddings().weight.requires_grad


def test_parts_of_an_adapter(tiny_policy):
    lora = LoraOptions(rank=2, alpha=4.0, target_modules="all-linear")
    left = tiny_policy(lora=lora, freeze=("model.layers.0.*",)).trainable()
    assert left
    assert all(".layers.0." not in name for name in left)


def test_an_unknown_name_is_answered_with_near_ones(tiny_policy):
    message = refused(tiny_policy, "model.embed_token.weight")
    assert '"model.embed_token.weight"' in message
    assert "model.embed_tokens.weight" in message


def test_something_must_train(tiny_policy):
    assert "nothing to train" in refused(tiny_policy, "*")
