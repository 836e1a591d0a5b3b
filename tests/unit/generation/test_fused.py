"""Fused steps against the model's own layers: the same completions, and refused wherever they would differ."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch

from motet.generation import HFGenerator, fused
from motet.generation.fused import FusedRows, can_fuse
from motet.models.decoding import FusedDecoder
from motet.models.lora import LoraOptions

LENGTHS = (1, 20, 7, 20, 3)
ORDINARY = {
    "llama": {},
    "qwen3": {},
    "mistral": {"sliding_window": 64},
}


def prompts_of(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(2, 16, size=length).tolist() for length in lengths]


def generate(policy, *, fuse, lengths=LENGTHS, num_completions=4, max_new_tokens=12, temperature=1.0, **options):
    return HFGenerator(policy, fuse=fuse, **options).generate(
        prompts_of(lengths),
        num_completions=num_completions,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=0,
    )


def assert_same_either_way(policy, **options):
    assert can_fuse(policy)
    found, expected = (generate(policy, fuse=fuse, **options) for fuse in (True, False))
    assert [len(group) for group in found] == [len(group) for group in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.finish_reason == other.finish_reason
        np.testing.assert_allclose(one.logp_gen, other.logp_gen, atol=1e-5, rtol=1e-5)
    return found


@pytest.fixture
def norms_of_any_weight():
    """Gives norms, and biases where there are any, weights that cannot be forgotten unnoticed."""

    def change(policy):
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if "norm" in name or name.endswith("bias"):
                    parameter.add_(torch.randn(parameter.shape, generator=rng) / 3)
        return policy

    return change


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.6])
@pytest.mark.parametrize("architecture", ORDINARY)
def test_same_completions_as_the_model_itself(random_policy, norms_of_any_weight, architecture, temperature):
    policy = norms_of_any_weight(random_policy(architecture, end_token_ids=(1, 4), **ORDINARY[architecture]))
    found = assert_same_either_way(policy, temperature=temperature)
    if temperature:
        assert len({len(completion.token_ids) for completion in chain(*found)}) > 2


@pytest.mark.parametrize(
    "config",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"head_dim": 16},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
        {"rms_norm_eps": 0.5},
        {"vocab_size": 2050},
    ],
    ids=str,
)
def test_kinds_of_llamas(random_policy, norms_of_any_weight, config):
    assert_same_either_way(norms_of_any_weight(random_policy("llama", **config)))


@pytest.mark.parametrize("counts", [1, 2, 40, [40, 1, 0, 1, 1], [0, 0, 3, 0, 1]])
def test_group_sizes(random_policy, counts):
    assert_same_either_way(random_policy(end_token_ids=(1, 4)), num_completions=counts)


@pytest.mark.parametrize("lengths", [(1,), (1, 1, 1), (9, 9), (33,)])
def test_prompt_lengths(random_policy, lengths):
    assert_same_either_way(random_policy(), lengths=lengths)


@pytest.mark.parametrize("max_new_tokens", [1, 2, 40])
@pytest.mark.parametrize("room", [1, 64])
def test_limits_and_room(random_policy, monkeypatch, max_new_tokens, room):
    monkeypatch.setattr(fused, "FIRST_ROOM", room)
    assert_same_either_way(random_policy(), max_new_tokens=max_new_tokens)


def test_few_rows_at_a_time_and_prompts_in_portions(random_policy, monkeypatch):
    monkeypatch.setattr("motet.generation.shared_prompt._PREFILL_TOKENS", 8)
    assert_same_either_way(random_policy(), num_completions=5, max_rows=3)
    assert_same_either_way(random_policy(), num_completions=5)


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_when_ended_rows_leave_changes_nothing(random_policy, monkeypatch, share):
    monkeypatch.setattr("motet.generation.rows._ENDED_SHARE", share)
    assert_same_either_way(random_policy(end_token_ids=(1, 4, 5)), num_completions=9, max_new_tokens=20)


@pytest.mark.parametrize("size", ["small", "large"])
def test_packaged_models(tiny_policy, size):
    assert_same_either_way(tiny_policy(size), num_completions=8, max_new_tokens=24)


def test_an_adapter_that_has_learned(tiny_policy):
    policy = tiny_policy(lora=LoraOptions(rank=2, alpha=4.0, target_modules=["q_proj", "v_proj", "down_proj"]))
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) / 5)
    assert_same_either_way(policy)


def test_weights_that_changed_between_calls_are_read_again(random_policy):
    policy = random_policy()
    generator = HFGenerator(policy)
    prompts = prompts_of()
    options = {"num_completions": 4, "max_new_tokens": 6, "temperature": 1.0, "seed": 0}
    before = generator.generate(prompts, **options)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.3)
    after = generator.generate(prompts, **options)
    expected = HFGenerator(policy, fuse=False).generate(prompts, **options)
    ids = [[c.token_ids.tolist() for c in chain(*groups)] for groups in (before, after, expected)]
    assert ids[1] == ids[2] != ids[0]


def test_the_models_layers_see_prompts_alone(random_policy):
    policy = random_policy()
    generator = HFGenerator(policy)
    generator.generate([[3]], num_completions=1, max_new_tokens=1, temperature=1.0, seed=0)
    shapes = []
    handle = policy.model.get_decoder().register_forward_pre_hook(
        lambda _, __, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    generator.generate(prompts_of(), num_completions=4, max_new_tokens=9, temperature=1.0, seed=0)
    handle.remove()
    assert shapes == [(1, sum(LENGTHS))]


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("gemma2", {}),
        ("gemma3_text", {}),
        ("gpt_oss", {}),
        ("granite", {"logits_scaling": 1.0, "residual_multiplier": 0.5}),
        ("mistral", {}),  # a window of 6
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}}),
    ],
)
def test_other_decoders_go_their_own_way(random_policy, architecture, config):
    policy = random_policy(architecture, **config)
    assert policy.takes_plans
    assert not can_fuse(policy)
    generate(policy, fuse=True, max_new_tokens=3)


def test_large_models_go_their_own_way(random_policy, monkeypatch):
    policy = random_policy()
    monkeypatch.setattr(fused, "_MOST_PARAMETERS", policy.num_parameters - 1)
    assert not can_fuse(policy)
    monkeypatch.setattr(fused, "_MOST_PARAMETERS", policy.num_parameters)
    assert can_fuse(policy)


def test_half_precision_goes_its_own_way(random_policy):
    policy = random_policy()
    policy.cast(torch.bfloat16)
    assert not can_fuse(policy)


def test_a_layer_that_computes_something_else_is_found_out(random_policy):
    policy = random_policy()
    attention = policy.model.model.layers[1].self_attn

    class Halved(type(attention)):
        def forward(self, *args, **kwargs):
            output, shares = super().forward(*args, **kwargs)
            return output / 2, shares

    assert can_fuse(policy)
    attention.__class__ = Halved
    assert not can_fuse(policy)


def test_an_adapter_of_another_kind_goes_its_own_way(tiny_policy):
    policy = tiny_policy(lora=LoraOptions(rank=2, alpha=4.0, target_modules="all-linear"))
    assert can_fuse(policy)
    layer = next(module for module in policy.model.modules() if hasattr(module, "lora_variant"))
    layer.lora_variant["default"] = object()
    with pytest.raises(NotImplementedError, match="another kind"):
        FusedDecoder(policy)


def test_a_window_that_is_too_short_for_the_call_goes_the_other_way(random_policy):
    policy = random_policy("mistral", sliding_window=24)
    assert can_fuse(policy)
    for max_new_tokens in (4, 5):  # the longest prompt has 20
        assert_same_either_way(policy, max_new_tokens=max_new_tokens)


@torch.inference_mode()
def test_rows_that_are_kept_go_on_as_if_alone(random_policy):
    policy = random_policy()
    rows = FusedRows(policy, prompts_of((4, 9)), [3, 2], max_new_tokens=8, decoder=FusedDecoder(policy))
    assert rows.start().shape == (5, 32)
    rows.advance(torch.tensor([3, 4, 5, 6, 7]))
    rows.keep(torch.tensor([1, 4]))
    found = rows.advance(torch.tensor([8, 9]))
    alone = FusedRows(policy, prompts_of((4, 9)), [1, 1], max_new_tokens=8, decoder=FusedDecoder(policy))
    alone.start()
    alone.advance(torch.tensor([4, 7]))
    torch.testing.assert_close(found, alone.advance(torch.tensor([8, 9])), atol=1e-5, rtol=0)
