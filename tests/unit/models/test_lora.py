"""Adapters: they alone train, the model underneath stays, and layers that do not fit are named."""

from __future__ import annotations

import builtins

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from motet.errors import EnvironmentFault, UsageError
from motet.models import tiny_path
from motet.models.lora import LoraOptions

IDS = torch.tensor([[3, 11, 5, 11, 9, 12]])
POSITIONS = torch.arange(6)[None]


def options(target="all-linear", rank=2):
    return LoraOptions(rank=rank, alpha=4.0, target_modules=target)


def logits(policy):
    with torch.no_grad():
        return policy.logits(policy.hidden_states(IDS, POSITIONS)[0])


def test_only_the_adapter_trains(tiny_policy):
    plain, policy = tiny_policy(), tiny_policy(lora=options())
    assert policy.trainable()
    assert all("lora_" in name for name in policy.trainable())
    assert policy.num_parameters == plain.num_parameters + sum(p.numel() for p in policy.trainable().values())
    assert not any("lm_head" in name or "embed" in name for name in policy.trainable())
    assert torch.equal(logits(plain), logits(policy)), "an adapter begins as no change at all"


def test_a_step_moves_the_adapter_and_nothing_else(tiny_policy):
    policy = tiny_policy(lora=options())
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    at_first = logits(policy)
    adamw = torch.optim.AdamW(policy.trainable().values(), lr=0.1)
    for _ in range(2):  # A has no gradient as long as B is 0
        adamw.zero_grad()
        policy.logits(policy.hidden_states(IDS, POSITIONS)[0])[:, 3].sum().backward()
        adamw.step()
    moved = {name for name, p in policy.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == set(policy.trainable())
    assert float((logits(policy) - at_first).abs().max()) > 0.01


def test_the_seed_draws_the_adapter(tiny_policy):
    first, again, other = (tiny_policy(lora=options(), seed=seed).trainable() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_global_random_state_stays(tiny_policy):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    tiny_policy(lora=options())
    assert torch.equal(torch.get_rng_state(), before)


def test_named_layers(tiny_policy):
    policy = tiny_policy(lora=options(("q_proj", "down_proj"), rank=3))
    assert {name.split(".lora_")[0].rsplit(".", 1)[-1] for name in policy.trainable()} == {"q_proj", "down_proj"}
    assert {min(p.shape) for p in policy.trainable().values()} == {3}


def test_an_unknown_layer_is_answered_with_the_known_ones(tiny_policy):
    with pytest.raises(UsageError, match=r"'q_porj'.*down_proj.*q_proj.*v_proj") as caught:
        tiny_policy(lora=options(("v_proj", "q_porj")))
    assert caught.value.code == "E-MODEL-05"


def test_no_adapter_on_the_output_layer(tiny_policy):
    with pytest.raises(UsageError, match=r"'lm_head' is the output layer") as caught:
        tiny_policy(lora=options(("q_proj", "lm_head")))
    assert caught.value.code == "E-MODEL-05"


def test_without_peft(tiny_policy, monkeypatch):
    real = builtins.__import__

    def without_peft(name, *rest):
        if name == "peft":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    with pytest.raises(EnvironmentFault, match="pip install") as caught:
        tiny_policy(lora=options())
    assert caught.value.code == "E-MODEL-04"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_saved_adapter_fits_the_base_model(tiny_policy, tmp_path):
    policy = tiny_policy(lora=options())
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.1)
    policy.save(tmp_path)
    base = AutoModelForCausalLM.from_pretrained(tiny_path("tiny:small"), dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, tmp_path).eval()
    with torch.no_grad():
        theirs = loaded(input_ids=IDS).logits[0]
    torch.testing.assert_close(theirs, logits(policy), atol=1e-5, rtol=1e-5)
