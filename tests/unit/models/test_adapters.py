"""Adapters of PEFT by type: they train, they count, and what cannot work says so in one line."""

from __future__ import annotations

import pytest
import torch

from motet.errors import UsageError
from motet.models.lora import LoraOptions

IDS = torch.tensor([[3, 11, 5, 11, 9, 12]])
POSITIONS = torch.arange(6)[None]
WORKING = [
    {"peft_type": "IA3"},
    {"peft_type": "LOHA", "r": 2, "target_modules": ["q_proj", "down_proj"]},
    {"peft_type": "LOKR", "r": 2, "target_modules": ["q_proj"]},
    {"peft_type": "LORA", "r": 2, "use_dora": True, "target_modules": "all-linear"},
    {"peft_type": "lora", "r": 2, "target_modules": ["q_proj"], "use_rslora": True},
    {"peft_type": "OFT", "r": 0, "oft_block_size": 4, "target_modules": ["q_proj"]},
    {"peft_type": "VERA", "r": 2, "target_modules": ["q_proj"]},
    {"peft_type": "LN_TUNING", "target_modules": ["input_layernorm"]},
]


def log_probs(policy):
    return torch.log_softmax(policy.logits(policy.hidden_states(IDS, POSITIONS)[0]), -1)


def refused(tiny_policy, code="E-MODEL-13", **options):
    with pytest.raises(UsageError) as caught:
        tiny_policy(**options)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("peft", WORKING, ids=lambda peft: peft["peft_type"])
def test_an_adapter_trains_and_is_scored(tiny_policy, peft):
    plain, policy = tiny_policy(), tiny_policy(peft=peft)
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    at_first = log_probs(policy).detach()
    torch.testing.assert_close(at_first, log_probs(plain).detach(), atol=2e-5, rtol=1e-5)
    adamw = torch.optim.AdamW(policy.trainable().values(), lr=0.1)
    for _ in range(3):
        adamw.zero_grad()
        log_probs(policy)[:, 3].sum().backward()
        adamw.step()
    moved = {name for name, p in policy.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert moved <= set(policy.trainable())
    after = log_probs(policy).detach()
    assert float((after - at_first).abs().max()) > 0.01
    with torch.no_grad():
        theirs = torch.log_softmax(policy.model(input_ids=IDS).logits[0].float(), -1)
    torch.testing.assert_close(after, theirs, atol=2e-5, rtol=1e-5)
    assert policy.takes_plans == plain.takes_plans


def test_the_seed_draws_the_adapter(tiny_policy):
    peft = {"peft_type": "LOHA", "r": 2, "target_modules": ["q_proj"]}
    state = torch.get_rng_state()
    first, again, other = (tiny_policy(peft=peft, seed=seed).trainable() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("peft", "words"),
    [
        ({}, ["peft_type", "IA3", "LORA"]),
        ({"peft_type": "IA4"}, ["'IA4'", "did you mean 'IA3'"]),
        ({"peft_type": "PREFIX_TUNING"}, ["virtual tokens"]),
        ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 4}, ["virtual tokens"]),
        ({"peft_type": "P_TUNING"}, ["virtual tokens"]),
        ({"peft_type": "ADALORA"}, ["every step"]),
        ({"peft_type": "IA3", "target_module": ["q_proj"]}, ["'target_module'", "did you mean 'target_modules'"]),
        ({"peft_type": "LORA", "lora_dropout": 0.1}, ["lora_dropout", "dropout stays 0"]),
        ({"peft_type": "LORA", "target_modules": ["no_such"]}, ["no_such"]),
        ({"peft_type": "LORA", "target_modules": ["q_proj", "lm_head"]}, ["output layer"]),
        ({"peft_type": "LORA", "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, ["output layer"]),
        ({"peft_type": "LORA", "task_type": "SEQ_CLS"}, ["task_type"]),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_what_cannot_work_is_one_line(tiny_policy, peft, words):
    message = refused(tiny_policy, peft=peft)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("place", [{"target_modules": ["embed_tokens"]}, {"modules_to_save": ["embed_tokens"]}])
def test_an_embedding_that_is_the_output_layer_too(tiny_policy, place):
    message = refused(tiny_policy, peft={"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], **place})
    assert "embedding" in message or "output layer" in message


def test_an_embedding_of_its_own(random_causal):
    from motet.models.adapters import add_adapter

    causal = random_causal("qwen3")
    model = add_adapter(causal, {"peft_type": "LORA", "r": 2, "target_modules": ["embed_tokens"]}, seed=0)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names
    assert all("embed_tokens" in name for name in names)


def test_two_adapters_are_one_too_many(tiny_policy):
    message = refused(tiny_policy, lora=LoraOptions(2, 4.0, "all-linear"), peft={"peft_type": "IA3"})
    assert "one of them" in message
