"""Sampling from a local Hugging Face model: each prompt prefilled once, finished rows leave the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from motet.generation.generator import Completion
from motet.generation.padded import PaddedRows
from motet.generation.rows import sample_rows
from motet.generation.shared_prompt import SharedPromptRows
from motet.models import Policy


class HFGenerator:
    """Implements `Generator` on a `Policy`.

    Where the policy takes attention plans, the keys and values of a prompt are kept once for all its completions;
    else they are copied for each. Both ways draw the same random numbers.

    Args:
        policy: the model to sample from; its current weights are used at each call.
        max_rows: completions that are sampled side by side. A memory setting; it changes which random numbers a
            completion gets, so it is part of what makes a run repeatable.
    """

    def __init__(self, policy: Policy, *, max_rows: int = 512) -> None:
        self._policy = policy
        self._max_rows = max_rows

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: Sequence[int] | int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """See `Generator.generate`.

        Raises:
            RunFailed: E-LEARN-02 if the model's outputs are not numbers.
        """
        counts = [num_completions] * len(prompts) if isinstance(num_completions, int) else list(num_completions)
        rng = torch.Generator().manual_seed(seed)  # not on the device: every device gets the same numbers
        rows_kind = SharedPromptRows if self._policy.takes_plans else PaddedRows
        results: list[list[Completion]] = [[] for _ in prompts]
        for wanted in self._batches(counts):
            owners, row_counts = zip(*wanted, strict=True)
            completions = sample_rows(
                self._policy,
                rows_kind(self._policy, [prompts[i] for i in owners], row_counts, max_new_tokens=max_new_tokens),
                num_rows=sum(row_counts),
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                rng=rng,
            )
            row_owner = [owner for owner, count in wanted for _ in range(count)]
            for owner, completion in zip(row_owner, completions, strict=True):
                results[owner].append(completion)
        return results

    def _batches(self, counts: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
        """(prompt index, completions) of each batch of at most `max_rows` rows; a large group may be split."""
        batch: list[tuple[int, int]] = []
        room = self._max_rows
        for index, count in enumerate(counts):
            left = count
            while left > 0:
                take = min(left, room)
                batch.append((index, take))
                left -= take
                room -= take
                if room == 0:
                    yield batch
                    batch, room = [], self._max_rows
        if batch:
            yield batch
