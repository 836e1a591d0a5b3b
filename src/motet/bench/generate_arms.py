"""Samplers as arms: `model.generate` as TRL calls it, and motet's own on its plain and its fast paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from motet.bench.batch import FIRST_ID
from motet.bench.generate_setup import GenerateSetup
from motet.bench.models import build_causal, build_policy
from motet.generation import HFGenerator


def draw_prompts(setup: GenerateSetup, vocab_size: int) -> list[list[int]]:
    """The prompts: the same for every arm."""
    rng = np.random.default_rng(setup.seed)
    low, high = max(1, round(setup.prompt * 0.9)), max(1, round(setup.prompt * 1.1))
    lengths = rng.integers(low, high + 1, setup.prompts)
    return [rng.integers(FIRST_ID, vocab_size, int(length)).tolist() for length in lengths]


class FastSampler:
    """`HFGenerator.generate`, as a run calls it."""

    plain = False

    def __init__(self, setup: GenerateSetup) -> None:
        policy = build_policy(setup.model, plain=self.plain)
        policy.cast(_dtype(setup))
        self._setup = setup
        self._prompts = draw_prompts(setup, policy.vocab_size)
        self._generator = HFGenerator(policy)
        self._calls = 0
        self._num_tokens = 0
        self.settings = {"dtype": setup.dtype, "takes_plans": policy.takes_plans}

    def step(self) -> dict[str, float]:
        """All completions of all prompts."""
        groups = self._generator.generate(
            self._prompts,
            num_completions=self._setup.group_size,
            max_new_tokens=self._setup.new_tokens,
            temperature=1.0,
            seed=self._setup.seed + self._calls,
        )
        self._calls += 1
        self._num_tokens = sum(len(completion.token_ids) for group in groups for completion in group)
        return {}

    def figures(self) -> dict[str, Any]:
        """Tokens of the last step."""
        return {"tokens": self._num_tokens}


class PlainSampler(FastSampler):
    """The same where attention cannot be planned."""

    plain = True


class HuggingFaceArm:
    """`model.generate` with the arguments that TRL's trainer gives it: G copies of each prompt, padded on the left."""

    def __init__(self, setup: GenerateSetup) -> None:
        causal, _ = build_causal(setup.model)
        self._model: Any = causal.eval()
        self._model.to(_dtype(setup))
        self._setup = setup
        prompts = draw_prompts(setup, int(causal.config.get_text_config().vocab_size))
        device = next(causal.parameters()).device
        rows = [prompt for prompt in prompts for _ in range(setup.group_size)]
        self._ids, self._mask = (tensor.to(device) for tensor in _left_padded(rows))
        self._calls = 0
        self._num_tokens = 0
        if causal.generation_config is not None:
            causal.generation_config.eos_token_id = None
        self._options = {
            "max_new_tokens": setup.new_tokens,
            "min_new_tokens": setup.new_tokens,
            "do_sample": True,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "pad_token_id": 0,
            "disable_compile": True,
        }
        self.settings = {"dtype": setup.dtype, **self._options}

    @torch.no_grad()
    def step(self) -> dict[str, float]:
        """All completions of all prompts."""
        torch.manual_seed(self._setup.seed + self._calls)
        output = self._model.generate(input_ids=self._ids, attention_mask=self._mask, **self._options)
        self._calls += 1
        self._num_tokens = (output.shape[1] - self._ids.shape[1]) * output.shape[0]
        return {}

    def figures(self) -> dict[str, Any]:
        """Tokens of the last step."""
        return {"tokens": self._num_tokens}


def _dtype(setup: GenerateSetup) -> torch.dtype:
    return torch.bfloat16 if setup.dtype == "bf16" else torch.float32


def _left_padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, width - len(row) :] = torch.tensor(list(row))
        mask[number, width - len(row) :] = 1
    return ids, mask
