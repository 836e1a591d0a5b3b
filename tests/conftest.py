"""Shared by all tests: one thread, no network, small models built on the spot.

Nothing here imports torch before a test asks for a model, so that the light suites stay light.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from motet.config import RunFile
    from motet.models import Policy

os.environ["OMP_NUM_THREADS"] = "1"  # what torch and every child process take their number of threads from
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts its background jobs so, and every command that a test interrupts would ignore that
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("motet", deadline=None, derandomize=True)
settings.load_profile("motet")

_SMALL = {
    "vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.25,  # large, so that the next token depends on the ones before
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}
_OF_ARCHITECTURE: dict[str, dict[str, object]] = {
    "llama": {},
    "qwen3": {"tie_word_embeddings": False},
    "gemma2": {
        "sliding_window": 6,
        "final_logit_softcapping": 5.0,
        "query_pre_attn_scalar": 8,
        "attn_implementation": "eager",
    },
    "gemma3_text": {"sliding_window": 6},
    "mistral": {"sliding_window": 6},
    "gpt_oss": {
        "sliding_window": 6,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    },
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 3.0},
}


@pytest.fixture
def tiny_policy() -> Callable[..., Policy]:
    """Loads a packaged model afresh: `tiny_policy("small")`."""

    def load(size: str = "small", **options: object) -> Policy:
        from motet.models import load_policy

        return load_policy(f"tiny:{size}", device="cpu", **options)

    return load


@pytest.fixture
def random_causal() -> Callable[..., object]:
    """Builds a Hugging Face model of random weights: `random_causal("gemma2", seed=1)`."""

    def build(architecture: str = "llama", *, seed: int = 0, **config: object) -> object:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        options = {**_SMALL, **_OF_ARCHITECTURE[architecture], **config}
        attention = options.pop("attn_implementation", "sdpa")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(
                AutoConfig.for_model(architecture, **options), attn_implementation=attention
            )
        return model.float()

    return build


@pytest.fixture
def random_policy(random_causal: Callable[..., object]) -> Callable[..., Policy]:
    """Builds a policy of random weights on the packaged tokenizer; several end tokens if wanted."""

    def build(
        architecture: str = "llama", *, seed: int = 0, end_token_ids: tuple[int, ...] = (1,), **config: object
    ) -> Policy:
        import torch
        from transformers import AutoTokenizer

        from motet.models import Policy, Tokenizer, tiny_path

        causal = random_causal(architecture, seed=seed, **config)
        inner = AutoTokenizer.from_pretrained(tiny_path("tiny:small"))
        tokenizer = Tokenizer(inner, end_token_ids=end_token_ids, vocab_size=causal.config.vocab_size)
        label = f"random:{architecture}"
        return Policy(label, model=causal, causal=causal, tokenizer=tokenizer, device=torch.device("cpu"))

    return build


@pytest.fixture(scope="session")
def vllm_stub() -> ModuleType:
    """The stub of a vLLM server, that speaks its protocol."""
    import vllm_stub

    return vllm_stub


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFile]:
    """Builds small run files: `make_run("a", nodes={"ann": "tiny:small"}, swarm={"pace": "free"})`."""
    from motet.config import RunFile

    def make(name: str = "run", *, nodes: dict[str, str] | None = None, **sections: dict[str, object]) -> RunFile:
        defaults: dict[str, dict[str, object]] = {
            "run": {"name": name, "rounds": 4, "seed": 3, "dir": str(tmp_path), "checkpoint_every": 2},
            "task": {"terms": (3, 4), "ood_terms": (5,)},
            "rollout": {"prompts_per_round": 6, "group_size": 4, "max_new_tokens": 10},
            "learner": {"learning_rate": 1e-3},
            "evaluation": {"every": 2, "num_prompts": 4, "final_num_prompts": 6},
        }
        if "name" in sections.get("task", {}):
            del defaults["task"]  # those are of the sums
        named = nodes or {"ann": "tiny:small", "bob": "tiny:small"}
        merged = {key: {**defaults.get(key, {}), **sections.get(key, {})} for key in {*defaults, *sections}}
        node = [{"name": name, "model": model, "device": "cpu"} for name, model in named.items()]
        return RunFile.model_validate({**merged, "node": node})

    return make
