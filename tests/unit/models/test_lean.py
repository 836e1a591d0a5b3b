"""Lean layers against the classes of transformers that they stand in for."""

from __future__ import annotations

import copy

import pytest
import torch

from motet.models.lean import make_lean

ARCHITECTURES = ["llama", "qwen3", "gemma2", "gemma3_text", "mistral"]


def gradients(model, token_ids, *, dtype=torch.float32):
    model.zero_grad()
    hidden = model.get_decoder()(input_ids=token_ids, use_cache=False).last_hidden_state
    torch.manual_seed(1)
    (hidden.float() * torch.randn(hidden.shape)).sum().backward()
    return hidden.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def replaced(model):
    return [name for name, module in model.named_modules() if type(module).__module__ == "motet.models.lean"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_same_output_and_same_gradients(random_causal, architecture):
    plain, lean = random_causal(architecture), random_causal(architecture)
    for model in (plain, lean):  # norms of weight 1 (or 0) would hide a lost weight
        for name, parameter in model.named_parameters():
            if "norm" in name:
                torch.manual_seed(len(name))
                parameter.data.add_(torch.randn_like(parameter) / 4)
    make_lean(lean)
    assert len(replaced(lean)) >= 3 * 2 + 1, "two norms and a feed-forward layer in both layers, and the last norm"
    token_ids = torch.randint(16, (2, 9), generator=torch.Generator().manual_seed(0))
    expected, expected_gradients = gradients(plain, token_ids)
    found, found_gradients = gradients(lean, token_ids)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert found_gradients.keys() == expected_gradients.keys()
    for name, gradient in found_gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], atol=2e-4, rtol=1e-4, msg=name)
    with torch.no_grad():
        torch.testing.assert_close(
            lean(input_ids=token_ids).logits, plain(input_ids=token_ids).logits, atol=2e-5, rtol=1e-5
        )


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_bf16_is_as_near_to_fp32_as_before(random_causal, architecture):
    exact, plain, lean = (random_causal(architecture) for _ in range(3))
    for model in (plain, lean):
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    make_lean(lean)
    assert replaced(lean)
    token_ids = torch.randint(16, (2, 9), generator=torch.Generator().manual_seed(0))
    _, of_exact = gradients(exact, token_ids)
    _, of_plain = gradients(plain, token_ids)
    _, of_lean = gradients(lean, token_ids)

    def error(found):
        return sum(float((found[name].float() - of_exact[name]).norm() ** 2) for name in found) ** 0.5

    assert 0 < error(of_lean) < 1.25 * error(of_plain)


def test_a_layer_that_computes_something_else_keeps_its_class(random_causal):
    model = random_causal("llama")
    norm, gated = model.model.norm, model.model.layers[0].mlp

    class CentredRMSNorm(type(norm)):
        def forward(self, hidden):
            return super().forward(hidden - hidden.mean(-1, keepdim=True))

    class HalvedMLP(type(gated)):
        def forward(self, hidden):
            return super().forward(hidden) / 2

    norm.__class__, gated.__class__ = CentredRMSNorm, HalvedMLP
    make_lean(model)
    assert type(norm) is CentredRMSNorm
    assert type(gated) is HalvedMLP
    assert "model.layers.1.mlp" in replaced(model)


def test_a_copy_is_lean_and_independent(random_causal):
    model = random_causal("llama")
    make_lean(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.model.norm.weight.zero_()
    hidden = torch.ones(1, 2, 32)
    assert bool((twin.model.norm(hidden) == 0).all())
    assert not bool((model.model.norm(hidden) == 0).any())


def test_frozen_layers_pass_the_gradient_on(random_causal):
    model = random_causal("llama")
    make_lean(model)
    model.requires_grad_(requires_grad=False)
    model.model.embed_tokens.weight.requires_grad_()
    _, found = gradients(model, torch.arange(6)[None])
    assert list(found) == ["model.embed_tokens.weight"]
