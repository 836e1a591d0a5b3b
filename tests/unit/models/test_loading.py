"""From a name to a policy: end tokens, devices, and one clear line for each thing that can be wrong with a folder."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from motet.errors import UsageError
from motet.models import load_policy, tiny_path
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


def refused(name):
    with pytest.raises(UsageError) as caught:
        load_policy(str(name), device="cpu")
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.code == "E-MODEL-02"
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


def test_a_name_that_nobody_knows():
    assert "no-such-owner/no-such-model" in refused("no-such-owner/no-such-model")


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
        lambda folder: [path.unlink() for path in folder.glob("tokenizer*")],
        lambda folder: (folder / "tokenizer.json").write_text('{"version": "1.0"}'),
        lambda folder: (folder / "tokenizer.json").write_text("{"),
    ],
    ids=["config-cut", "config-empty", "unknown-type", "other-shapes", "too-few-weights", "no-weights",
         "weights-nonsense", "weights-cut", "no-tokenizer", "tokenizer-empty", "tokenizer-cut"],
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
