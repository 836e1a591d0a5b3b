"""Gradient checkpointing: the same gradients, less kept, dropout off."""

from __future__ import annotations

import copy

import pytest
import torch

from motet.errors import UsageError
from motet.models.lora import LoraOptions
from motet.models.recompute import recompute_layers

IDS = torch.arange(40)[None] % 16
POSITIONS = torch.arange(40)[None]


class Causal:
    """A plan: every token sees itself and those before."""

    def attend(self, query_BHTd, key_BKTd, value_BKTd, rules):
        from motet.models import masked_attention

        allowed = torch.ones(query_BHTd.shape[2], key_BKTd.shape[2], dtype=torch.bool).tril()
        return masked_attention(query_BHTd, key_BKTd, value_BKTd, allowed, rules)


def gradients(policy, plan=None):
    """Gradients by name, and the bytes that the forward pass kept."""
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = policy.logits(policy.hidden_states(IDS, POSITIONS, plan=plan)[0])
    torch.log_softmax(logits, -1)[:, 3].sum().backward()
    return {name: parameter.grad.clone() for name, parameter in policy.trainable().items()}, sum(kept.values())


@pytest.mark.parametrize("planned", [False, True], ids=["padded", "planned"])
@pytest.mark.parametrize("lora", [None, LoraOptions(2, 4.0, "all-linear")], ids=["full", "lora"])
def test_the_same_gradients_and_less_memory(tiny_policy, lora, planned):
    plan = Causal() if planned else None
    plain, kept = gradients(tiny_policy("large", lora=lora), plan)
    policy = tiny_policy("large", lora=lora, gradient_checkpointing=True)
    again, kept_again = gradients(policy, plan)
    assert policy.takes_plans
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, rtol=1e-5, atol=1e-7, msg=name)
    assert kept_again < kept / 2


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gemma3_text", "gpt2"])
def test_dropout_stays_off(random_policy, architecture):
    dropout = {"gpt2": {"resid_pdrop": 0.5, "attn_pdrop": 0.5}}.get(architecture, {"attention_dropout": 0.5})
    policy = random_policy(architecture, **dropout)
    recompute_layers("m", policy.model)
    assert not any(module.training for module in policy.model.modules())
    first, second = (policy.hidden_states(IDS, POSITIONS) for _ in range(2))
    assert torch.equal(first, second)
    with torch.no_grad():
        torch.testing.assert_close(policy.hidden_states(IDS, POSITIONS), first, rtol=1e-5, atol=1e-5)


def test_a_copy_computes_with_its_own_weights(tiny_policy):
    policy = tiny_policy(gradient_checkpointing=True)
    twin = copy.deepcopy(policy)
    before = policy.hidden_states(IDS, POSITIONS)
    with torch.no_grad():
        for parameter in twin.trainable().values():
            parameter.mul_(0.5)
    assert torch.equal(policy.hidden_states(IDS, POSITIONS), before)
    assert not torch.equal(twin.hidden_states(IDS, POSITIONS), before)


def test_an_architecture_without_layers_of_that_kind():
    with pytest.raises(UsageError, match=r"gradient_checkpointing.*'m'") as caught:
        recompute_layers("m", torch.nn.Linear(2, 2))
    assert caught.value.code == "E-MODEL-18"
