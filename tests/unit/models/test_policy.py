"""Hidden states, output layer and soft cap of a policy; what it refuses; what it saves."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.errors import EnvironmentFault

IDS = torch.tensor([[3, 11, 5, 11, 9, 12]])
POSITIONS = torch.arange(6)[None]


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2"])
def test_hidden_states_and_output_layer_give_the_models_logits(random_policy, architecture):
    policy = random_policy(architecture)
    with torch.no_grad():
        expected = policy.model(input_ids=IDS).logits
        ours = policy.logits(policy.hidden_states(IDS, POSITIONS)[0])
    torch.testing.assert_close(ours, expected[0].float(), atol=1e-5, rtol=1e-5)


def test_the_soft_cap_bounds_the_logits(random_policy):
    policy = random_policy("gemma2", final_logit_softcapping=0.5)
    assert policy.softcap == 0.5
    with torch.no_grad():
        logits = policy.logits(policy.hidden_states(IDS, POSITIONS)[0])
        uncapped = policy.head(policy.hidden_states(IDS, POSITIONS)[0])
    assert float(uncapped.abs().max()) > 0.5
    torch.testing.assert_close(logits, 0.5 * torch.tanh(uncapped / 0.5))


def test_an_output_layer_of_its_own(random_policy):
    policy = random_policy("qwen3")
    assert any("lm_head" in name for name in policy.trainable())
    tied = random_policy("llama")
    assert not any("lm_head" in name for name in tied.trainable())


@pytest.mark.parametrize("architecture", ["cohere", "granite"])
def test_scaled_logits_are_refused(random_policy, architecture):
    with pytest.raises(EnvironmentFault, match=f"random:{architecture}.*cannot score this architecture") as caught:
        random_policy(architecture)
    assert caught.value.code == "E-MODEL-03"


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_bf16_weights_pass_the_check(random_causal, random_policy, architecture):
    from motet.models import Policy

    causal = random_causal(architecture).to(torch.bfloat16)
    tokenizer = random_policy(architecture).tokenizer
    policy = Policy("bf16", model=causal, causal=causal, tokenizer=tokenizer, device=torch.device("cpu"))
    with torch.no_grad():
        assert policy.logits(policy.hidden_states(IDS, POSITIONS)[0]).dtype == torch.float32


def test_positions_count_not_columns(random_policy):
    policy = random_policy()
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), IDS], dim=1)
    mask = torch.tensor([[0] * 3 + [1] * 6])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        left_padded = policy.hidden_states(padded, positions, attention_mask_BT=mask)[:, 3:]
        plain = policy.hidden_states(IDS, POSITIONS)
        right_padded = policy.hidden_states(torch.cat([IDS, IDS], dim=1), torch.arange(12)[None])[:, :6]
    torch.testing.assert_close(left_padded, plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(right_padded, plain, atol=1e-5, rtol=1e-5)


def test_dropout_is_off(random_policy):
    policy = random_policy("llama", attention_dropout=0.5)
    assert not policy.model.training
    logits = [policy.logits(policy.hidden_states(IDS, POSITIONS)[0]) for _ in range(2)]
    assert torch.equal(*logits)


def test_numbers_of_parameters(random_policy):
    policy = random_policy()
    assert policy.num_parameters == sum(p.numel() for p in policy.model.parameters())
    assert policy.num_parameters == sum(p.numel() for p in policy.trainable().values())
    assert policy.vocab_size == 16


def test_casting_leaves_the_buffers(random_policy):
    policy = random_policy()
    policy.cast(torch.bfloat16)
    assert {p.dtype for p in policy.model.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in policy.model.buffers()} == {torch.float32}
    names = [name for name, _ in policy.model.named_parameters()]
    assert policy.head.weight.data_ptr() == policy.model.get_input_embeddings().weight.data_ptr(), names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_saved_policy_is_an_ordinary_folder(tmp_path, random_policy, architecture, dtype):
    policy = random_policy(architecture)
    policy.cast(dtype)
    policy.save(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    with torch.no_grad():
        ours = policy.logits(policy.hidden_states(IDS, POSITIONS)[0])
        theirs = loaded(input_ids=IDS).logits[0].float()
    assert loaded.dtype == dtype
    torch.testing.assert_close(theirs, ours)
    assert tokenizer.encode("3+5=") == policy.tokenizer.encode_prompt("3+5=")
