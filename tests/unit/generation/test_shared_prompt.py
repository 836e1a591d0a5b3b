"""Prompts shared by plan against prompts padded and copied: the same completions, whatever the layer asks for."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch

from motet.errors import MotetError
from motet.generation import HFGenerator, shared_prompt
from motet.generation.padded import PaddedRows
from motet.generation.shared_prompt import SharedPromptRows

SIZES = {
    "vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.25,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
ARCHITECTURES = {
    "llama": {},
    "qwen3": {},
    "mistral": {"sliding_window": 6},
    "gemma2": {"sliding_window": 6, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "gemma3_text": {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]},
    "gpt_oss": {"sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1},
}
LENGTHS = (1, 20, 7, 20, 3)  # shorter and longer than the window


def build(architecture, *, seed=0, end_token_ids=(1, 4), **config):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from motet.models import Policy, Tokenizer, tiny_path

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        causal = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(architecture, **{**SIZES, **ARCHITECTURES[architecture], **config})
        ).float()
        with torch.no_grad():
            for name, parameter in causal.named_parameters():
                if name.endswith("sinks"):
                    parameter.normal_()
    inner = AutoTokenizer.from_pretrained(tiny_path("tiny:small"))
    tokenizer = Tokenizer(inner, end_token_ids=end_token_ids, vocab_size=causal.config.vocab_size)
    policy = Policy(architecture, model=causal, causal=causal, tokenizer=tokenizer, device=torch.device("cpu"))
    assert policy.takes_plans
    return policy


def prompts_of(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(2, 16, size=length).tolist() for length in lengths]


def generate(policy, prompts, *, plans=True, num_completions=4, max_new_tokens=12, temperature=1.0, seed=0, **options):
    policy.takes_plans = plans
    return HFGenerator(policy, fuse=False, **options).generate(
        prompts, num_completions=num_completions, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed
    )


def assert_same(found, expected, atol=1e-5):
    assert [len(group) for group in found] == [len(group) for group in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.finish_reason == other.finish_reason
        np.testing.assert_allclose(one.logp_gen, other.logp_gen, atol=atol, rtol=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.6])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_same_completions_as_padded_rows(architecture, temperature):
    policy = build(architecture)
    found = generate(policy, prompts_of(), temperature=temperature)
    assert_same(found, generate(policy, prompts_of(), plans=False, temperature=temperature))
    if temperature:
        assert len({len(completion.token_ids) for group in found for completion in group}) > 2


@pytest.mark.parametrize("counts", [1, 2, 64, [40, 1, 0, 1, 1], [0, 0, 3, 0, 1]])
def test_group_sizes(counts):
    policy = build("llama")
    found = generate(policy, prompts_of(), num_completions=counts)
    assert_same(found, generate(policy, prompts_of(), plans=False, num_completions=counts))


@pytest.mark.parametrize("lengths", [(1,), (1, 1, 1), (9, 9), (33,)])
def test_prompt_lengths(lengths):
    policy = build("gemma2")
    prompts = prompts_of(lengths)
    assert_same(generate(policy, prompts), generate(policy, prompts, plans=False))


@pytest.mark.parametrize("max_new_tokens", [1, 2, 40])
def test_limits(max_new_tokens):
    policy = build("gemma3_text", end_token_ids=(1,))
    found = generate(policy, prompts_of(), max_new_tokens=max_new_tokens)
    assert_same(found, generate(policy, prompts_of(), plans=False, max_new_tokens=max_new_tokens))


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@pytest.mark.parametrize(("name", "value"), [("_PREFILL_TOKENS", 8), ("_PREFILL_TOKENS", 1), ("FIRST_ROOM", 1)])
def test_portions_of_prompts_and_room_for_new_tokens_change_nothing(monkeypatch, architecture, name, value):
    policy = build(architecture)
    expected = generate(policy, prompts_of(), max_new_tokens=20)
    monkeypatch.setattr(shared_prompt, name, value)
    assert_same(generate(policy, prompts_of(), max_new_tokens=20), expected)


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_when_ended_rows_leave_changes_nothing(monkeypatch, share):
    policy = build("gemma2")
    expected = generate(policy, prompts_of(), num_completions=9, max_new_tokens=20)
    monkeypatch.setattr("motet.generation.rows._ENDED_SHARE", share)
    assert_same(generate(policy, prompts_of(), num_completions=9, max_new_tokens=20), expected)


def test_few_rows_at_a_time():
    policy = build("qwen3")
    found = generate(policy, prompts_of(), num_completions=5, max_rows=3)
    assert_same(found, generate(policy, prompts_of(), plans=False, num_completions=5, max_rows=3))


def test_a_wide_vocabulary():
    policy = build("llama", end_token_ids=(1,), vocab_size=2050)
    found = generate(policy, prompts_of())
    assert_same(found, generate(policy, prompts_of(), plans=False))
    assert max(int(completion.token_ids.max()) for group in found for completion in group) > 1500


def test_half_precision_is_near_the_padded_path():
    policy = build("llama")
    policy.cast(torch.bfloat16)
    found = generate(policy, prompts_of(), max_new_tokens=1, num_completions=8)
    expected = generate(policy, prompts_of(), plans=False, max_new_tokens=1, num_completions=8)
    same = [
        (one.logp_gen[0], other.logp_gen[0])
        for one, other in zip(chain(*found), chain(*expected), strict=True)
        if one.token_ids[0] == other.token_ids[0]
    ]
    assert len(same) > 30
    np.testing.assert_allclose(*zip(*same, strict=True), atol=0.1, rtol=0)
    assert all(np.isfinite(c.logp_gen).all() for group in generate(policy, prompts_of()) for c in group)


@torch.inference_mode()
def test_memory_of_a_prompt_does_not_grow_with_its_completions():
    policy = build("llama")
    held = {}
    for count in (1, 64):
        rows = SharedPromptRows(policy, prompts_of((20,)), [count], max_new_tokens=12)
        rows.start()
        rows.advance(torch.full((count,), 3))
        held[count] = sum(tensor.numel() for pair in rows._plan._shared.values() for tensor in pair)
    assert held[1] == held[64] == 2 * 2 * 2 * 20 * 8


@pytest.mark.parametrize("kind", [SharedPromptRows, PaddedRows])
@torch.inference_mode()
def test_rows_that_are_kept_go_on_as_if_alone(kind):
    policy = build("gemma2")
    rows = kind(policy, prompts_of((4, 9)), [3, 2], max_new_tokens=8)
    assert rows.start().shape == (5, 32)
    rows.advance(torch.tensor([3, 4, 5, 6, 7]))
    rows.keep(torch.tensor([1, 4]))
    found = rows.advance(torch.tensor([8, 9]))
    alone = kind(policy, prompts_of((4, 9)), [1, 1], max_new_tokens=8)
    alone.start()
    alone.advance(torch.tensor([4, 7]))
    torch.testing.assert_close(found, alone.advance(torch.tensor([8, 9])), atol=1e-5, rtol=0)


@pytest.mark.parametrize("plans", [True, False])
def test_a_broken_model_is_a_failed_run_either_way(plans):
    policy = build("llama")
    with torch.no_grad():
        next(policy.model.parameters()).fill_(torch.nan)
    with pytest.raises(MotetError, match="not a number"):
        generate(policy, prompts_of(), plans=plans)
