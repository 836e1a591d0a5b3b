"""From a name to a policy: end tokens, devices, and one clear line for each thing that can be wrong with a folder."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from motet.errors import EnvironmentFault, UsageError
from motet.models import Workload, check_dtype, load_policy, tiny_path
from motet.models.loading import resolve_device


@pytest.fixture
def folder(tmp_path):
    """A copy of a packaged model that a test may damage."""
    return shutil.copytree(tiny_path("tiny:small"), tmp_path / "model")


def edit(path, **changes):
    content = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            content.pop(key, None)
        else:
            content[key] = value
    path.write_text(json.dumps(content))


def refused(name, code="E-MODEL-02"):
    with pytest.raises(UsageError) as caught:
        load_policy(str(name), device="cpu")
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.code == code
    return message


@pytest.mark.parametrize("name", ["tiny:small", "tiny:large"])
def test_a_packaged_model(name):
    policy = load_policy(name, device="cpu")
    assert policy.label == name
    assert policy.device == torch.device("cpu")
    assert policy.tokenizer.end_token_ids == (1,)
    assert policy.tokenizer.vocab_size == policy.vocab_size == 16
    assert {p.dtype for p in policy.trainable().values()} == {torch.float32}


def test_a_folder_gives_what_the_package_gives(folder):
    policy, packaged = load_policy(str(folder), device="cpu"), load_policy("tiny:small", device="cpu")
    assert policy.label == str(folder)
    assert policy.tokenizer.fingerprint == packaged.tokenizer.fingerprint
    for name, parameter in packaged.trainable().items():
        assert torch.equal(parameter, policy.trainable()[name])


def test_dtype(folder):
    policy = load_policy(str(folder), dtype=torch.bfloat16, device="cpu")
    assert {p.dtype for p in policy.trainable().values()} == {torch.bfloat16}


def test_all_end_tokens_of_both_files_count(folder):
    edit(folder / "generation_config.json", eos_token_id=[4, 9])
    assert load_policy(str(folder), device="cpu").tokenizer.end_token_ids == (1, 4, 9)


def test_no_end_token(folder):
    edit(folder / "generation_config.json", eos_token_id=None)
    edit(folder / "config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    message = refused(folder)
    assert "end token" in message
    assert "eos_token_id in generation_config.json" in message


def test_a_missing_folder(tmp_path):
    message = refused(tmp_path / "nowhere")
    assert "nowhere" in message
    assert "does not exist" in message


def test_a_folder_without_a_model(tmp_path):
    assert "has no config.json" in refused(tmp_path)


def test_an_adapter_without_its_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "an adapter without its model" in refused(tmp_path)


def test_a_name_that_nobody_knows():
    with pytest.raises(EnvironmentFault, match="no-such-owner/no-such-model") as caught:
        load_policy("no-such-owner/no-such-model", device="cpu")
    assert caught.value.code == "E-MODEL-09"


def test_no_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    assert "no tokenizer" in refused(folder, "E-MODEL-11")


def test_pickled_weights_are_not_opened(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "safetensors" in refused(folder)


def test_code_of_a_model_is_not_run(folder):
    (folder / "modeling.py").write_text("raise SystemExit")
    edit(
        folder / "config.json",
        model_type="own",
        auto_map={"AutoConfig": "modeling.C", "AutoModelForCausalLM": "modeling.M"},
    )
    assert "runs no code of models" in refused(folder, "E-MODEL-18")


@pytest.mark.parametrize("kind", ["t5", "vit"])
def test_a_model_of_another_kind(folder, kind):
    edit(folder / "config.json", model_type=kind, architectures=None, is_encoder_decoder=kind == "t5")
    message = refused(folder, "E-MODEL-18")
    assert kind in message
    assert "no causal language model" in message


def test_a_model_whose_tokens_see_later_ones(folder):
    config = AutoConfig.for_model(
        "bert", vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = AutoModelForCausalLM.from_config(config)
    (folder / "config.json").unlink()
    model.save_pretrained(folder)
    assert "see later ones" in refused(folder, "E-MODEL-18")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_attention_of_the_library(attention):
    policy, usual = (
        load_policy("tiny:small", device="cpu", attention=attention),
        load_policy("tiny:small", device="cpu"),
    )
    assert not policy.takes_plans
    assert usual.takes_plans
    assert policy.config._attn_implementation == attention
    ids, positions = torch.arange(6)[None], torch.arange(6)[None]
    with torch.no_grad():
        torch.testing.assert_close(policy.hidden_states(ids, positions), usual.hidden_states(ids, positions))


def test_an_attention_that_is_not_here():
    with pytest.raises(EnvironmentFault, match="flash_attention_2") as caught:
        load_policy("tiny:small", device="cpu", attention="flash_attention_2")
    assert caught.value.code == "E-MODEL-17"


def test_half_precision_needs_a_gpu():
    with pytest.raises(UsageError, match="fp16") as caught:
        load_policy("tiny:small", device="cpu", dtype=torch.float16)
    assert caught.value.code == "E-MODEL-15"
    check_dtype(torch.bfloat16, torch.device("cpu"))


def test_too_little_memory_is_said_before_the_weights_are_read(folder, monkeypatch):
    monkeypatch.setattr("motet.models.loading._WORTH_A_LOOK", 1)
    monkeypatch.setattr("motet.models.memory.free_memory", lambda _: 100_000)
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="GiB free") as caught:
        load_policy(str(folder), device="cpu", workload=Workload())
    assert caught.value.code == "E-MODEL-16"


def test_nothing_is_printed(folder, capfd):
    load_policy(str(folder), device="cpu", gradient_checkpointing=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "config.json").write_text("{}"),
        lambda folder: edit(folder / "config.json", model_type="no_such_type"),
        lambda folder: edit(folder / "config.json", hidden_size=128, head_dim=32),
        lambda folder: edit(folder / "config.json", num_hidden_layers=3),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "model.safetensors").write_bytes(b"nonsense"),
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:9999]),
        lambda folder: (folder / "tokenizer.json").write_text('{"version": "1.0"}'),
        lambda folder: (folder / "tokenizer.json").write_text("{"),
    ],
    ids=["config-cut", "config-empty", "unknown-type", "other-shapes", "too-few-weights", "no-weights",
         "weights-nonsense", "weights-cut", "tokenizer-empty", "tokenizer-cut"],
)  # fmt: skip
def test_a_damaged_folder_is_one_line(folder, damage):
    damage(folder)
    assert str(folder) in refused(folder)


def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in {"cpu", "cuda"}


@pytest.mark.parametrize("name", ["cuda:97", "mps", "hip"])
def test_a_device_that_is_not_here(name):
    with pytest.raises(UsageError, match=name) as caught:
        resolve_device(name)
    assert caught.value.code == "E-MODEL-06"
    assert '"cpu"' in str(caught.value)
