"""The estimate of memory: its parts, what it advises, and that it is near what a real model takes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig

from motet.errors import UsageError
from motet.models import LoraOptions, Workload, memory, model_memory
from motet.models.skeleton import Training, count_parameters

CPU = torch.device("cpu")
FULL = Workload(precision="fp32", batch_tokens=1024, rows=16, row_tokens=128)


def estimate(num_trainable=135_000_000, workload=FULL, layers=30):
    config = AutoConfig.for_model(
        "llama", hidden_size=576, num_hidden_layers=layers, num_attention_heads=9, num_key_value_heads=3,
        intermediate_size=1536, vocab_size=49152,
    )  # fmt: skip
    return config, memory.estimate_memory(
        config, num_parameters=135_000_000, num_trainable=num_trainable, workload=workload, device=CPU
    )


def test_weights_and_optimiser_by_precision():
    _, fp32 = estimate()
    _, bf16 = estimate(workload=Workload(precision="bf16", batch_tokens=1024))
    assert (fp32.weights, fp32.masters, fp32.moments, fp32.gradients) == (540e6, 0, 1080e6, 540e6)
    assert (bf16.weights, bf16.masters, bf16.moments, bf16.gradients) == (270e6, 540e6, 1080e6, 810e6)
    assert bf16.activations == fp32.activations / 2
    assert fp32.total >= fp32.weights + fp32.moments + fp32.gradients


def test_comparing_gradients_holds_five_more():
    _, plain = estimate()
    _, weighed = estimate(workload=Workload(batch_tokens=1024, weighs_gradients=True))
    assert weighed.gradients == 6 * plain.gradients
    assert weighed.total - plain.total == 5 * plain.gradients


def test_less_is_needed_for_adapters_and_with_recomputation():
    full, adapter = estimate()[1], estimate(num_trainable=1_000_000)[1]
    less = estimate(workload=Workload(batch_tokens=1024, gradient_checkpointing=True))[1]
    assert adapter.moments == 8e6
    assert adapter.moments + adapter.gradients < (full.moments + full.gradients) / 100
    assert adapter.activations == 2 * full.activations
    assert less.activations < full.activations / 8


def test_counts_are_those_of_the_loaded_model(tiny_policy):
    for options in ({}, {"lora": LoraOptions(2, 4.0, "all-linear")}, {"freeze": ("model.embed_tokens.*",)}):
        policy = tiny_policy(**options)
        counted = count_parameters(policy.model.config, Training(**options))
        assert counted == (policy.num_parameters, sum(p.numel() for p in policy.trainable().values()))
    found = model_memory("tiny:small", workload=FULL, device="cpu")
    assert found.num_parameters == found.num_trainable == tiny_policy().num_parameters


@pytest.mark.parametrize(
    ("free_gib", "advice"),
    [(2.5, "checkpointing = true"), (1.4, "[node.lora], learner.gradient"), (0.3, "even with all of")],
)
def test_what_cannot_fit_is_refused_with_what_would(monkeypatch, free_gib, advice):
    monkeypatch.setattr(memory, "free_memory", lambda _: int(free_gib * 2**30))
    config, needed = estimate()
    with pytest.raises(UsageError) as caught:
        memory.check_memory("m", config, needed, FULL, device=CPU)
    message = str(caught.value)
    assert caught.value.code == "E-MODEL-16"
    assert advice in message, message
    assert "135 million" in message
    assert "GiB free" in message
    assert "\n" not in message


def test_what_fits_passes(monkeypatch):
    config, needed = estimate()
    memory.check_memory("m", config, needed, FULL, device=CPU)
    monkeypatch.setattr(memory, "free_memory", lambda _: None)
    memory.check_memory("m", config, needed, FULL, device=CPU)


def test_free_memory_of_this_machine_and_of_a_container(tmp_path):
    free = memory.free_memory(CPU)
    assert free is None or 2**20 < free < 2**50
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert memory._left_in_group(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left_in_group(tmp_path) is None
    assert memory._left_in_group(tmp_path / "none") is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    5 kB\n")
    assert memory._mem_available(tmp_path / "meminfo") == 5120
    assert memory._mem_available(tmp_path / "none") is None


_TRAIN = """
import sys, torch
torch.set_num_threads(1)
from motet.models import load_policy
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
load_policy("tiny:small", device="cpu")
before = peak()
policy = load_policy(sys.argv[1], device="cpu")
adamw = torch.optim.AdamW(policy.trainable().values(), lr=1e-6, fused=True)
ids = torch.arange(1024)[None] % 1000
logits = policy.logits(policy.hidden_states(ids, torch.arange(1024)[None])[0, -256:])
torch.log_softmax(logits, -1)[:, 3].sum().backward()
adamw.step()
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.real_model
def test_the_estimate_is_within_a_factor_of_a_real_step(tmp_path):
    """A third of SmolLM2's layers, at random weights: one step of 1024 tokens in a process of its own."""
    config = estimate(layers=10)[0]
    config.tie_word_embeddings, config.eos_token_id = True, 1
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from motet.models import tiny_path

    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_path("tiny:small")).save_pretrained(tmp_path)
    out = subprocess.run(
        [sys.executable, "-c", _TRAIN, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    measured = int(out.stdout)
    needed = model_memory(str(tmp_path), workload=FULL, device="cpu").total
    assert measured / 2 < needed < measured * 2, (needed, measured)
