"""An exported folder loads in plain transformers and peft and computes what the policy does, or is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.errors import RunFailed, UsageError
from motet.integrations import hf_folder
from motet.integrations.hf_folder import Base, export_policy
from motet.models import LoraOptions, tiny_path

SAMPLES = [[5, 2, 7, 3, 1], [4, 4, 9], [6]]
BASE = Base(str(tiny_path("tiny:small")))


@pytest.fixture
def changed(tiny_policy):
    """A policy whose trained parameters are no longer those of its base."""

    def make(**options):
        policy = tiny_policy(**options)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in policy.trainable().values():
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
        return policy

    return make


def export(policy, folder, *, base=None, merge=False, card="# card\n", chat_template=None, samples=SAMPLES):
    return export_policy(
        policy, folder, base=base, merge=merge, card=card, chat_template=chat_template, samples=samples
    )


def lora():
    return LoraOptions(4, 8.0, "all-linear")


@torch.inference_mode()
def plain_logits(model):
    return model(input_ids=torch.tensor([SAMPLES[0]]), use_cache=False).logits


@torch.inference_mode()
def logits_of(policy):
    ids = torch.tensor([SAMPLES[0]])
    return policy.logits(policy.hidden_states(ids, torch.arange(ids.shape[1])[None]))


def test_a_whole_model(changed, tmp_path):
    policy = changed()
    check = export(policy, tmp_path / "deep/out", chat_template="{{ messages[0].content }}")
    assert check.num_tokens == 6
    assert check.max_difference < 1e-5
    folder = tmp_path / "deep/out"
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.allclose(plain_logits(model), logits_of(policy), atol=1e-5)
    assert not torch.allclose(
        plain_logits(AutoModelForCausalLM.from_pretrained(BASE.name)), logits_of(policy), atol=1e-2
    )
    assert (folder / "README.md").read_text() == "# card\n"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == list(
        policy.tokenizer.end_token_ids
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == "{{ messages[0].content }}"
    assert tokenizer.encode("3+5=") == policy.tokenizer.encode_prompt("3+5=")
    assert [path.name for path in folder.parent.iterdir()] == ["out"]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # between two packages
def test_an_adapter_alone(changed, tmp_path):
    peft = pytest.importorskip("peft", reason="needs the extra lora")
    policy = changed(lora=lora())
    assert export(policy, tmp_path / "out", base=BASE).max_difference < 1e-5
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == BASE.name
    assert config["target_modules"] == sorted(config["target_modules"])
    assert not (tmp_path / "out/model.safetensors").exists()
    model = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE.name), tmp_path / "out")
    assert torch.allclose(plain_logits(model), logits_of(policy), atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{"lora": lora()}, {"peft": {"peft_type": "IA3", "target_modules": ["q_proj"], "feedforward_modules": []}}],
)
def test_an_adapter_merged(options, changed, tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    policy = changed(**options)
    expected = logits_of(policy)
    assert export(policy, tmp_path / "out", merge=True).max_difference < 1e-4
    assert not (tmp_path / "out/adapter_config.json").exists()
    assert torch.allclose(plain_logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out")), expected, atol=1e-4)


def test_nothing_is_overwritten(changed, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    for taken in (folder, folder / "thesis.tex"):
        with pytest.raises(UsageError, match="is there already") as error:
            export(changed(), taken)
        assert error.value.code == "E-EXPORT-01"
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "thesis.tex"]
    (folder / "thesis.tex").unlink()
    export(changed(), folder)  # an empty folder is as good as none


def test_a_model_that_computes_something_else_is_removed(changed, tmp_path, monkeypatch):
    policy = changed()
    save = type(policy).save

    def damage(self, folder):
        save(self, folder)
        shuffled = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            shuffled.get_input_embeddings().weight += 0.5
        shuffled.save_pretrained(folder)

    monkeypatch.setattr(type(policy), "save", damage)
    with pytest.raises(RunFailed, match="log-probs that differ by up to") as error:
        export(policy, tmp_path / "out")
    assert error.value.code == "E-EXPORT-02"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_loaded_is_removed(changed, tmp_path, monkeypatch):
    policy = changed()
    save = type(policy).save

    def forget(self, folder):
        save(self, folder)
        (folder / "config.json").write_text('{"model_type": "no such"}')

    monkeypatch.setattr(type(policy), "save", forget)
    with pytest.raises(RunFailed, match="cannot be used") as error:
        export(policy, tmp_path / "out")
    assert error.value.code == "E-EXPORT-02"
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_that_cannot_be_merged(changed, tmp_path):
    with pytest.raises(UsageError, match="cannot be merged") as error:
        export(changed(), tmp_path / "out", merge=True)  # a whole model has no merge_and_unload
    assert error.value.code == "E-EXPORT-03"
    assert list(tmp_path.iterdir()) == []


def test_long_samples_are_shortened(changed, tmp_path, monkeypatch):
    monkeypatch.setattr(hf_folder, "_LONGEST_SAMPLE", 3)
    assert export(changed(), tmp_path / "out", samples=[[4] * 40, [5] * 2]).num_tokens == 2 + 1


def test_an_interrupted_export_leaves_nothing(changed, tmp_path, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(hf_folder, "_check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export(changed(), Path(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
