"""Sampling from a local Hugging Face model: each prompt prefilled once, finished rows leave the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from motet.generation.fused import FusedRows, can_fuse, fits
from motet.generation.generator import Completion
from motet.generation.padded import PaddedRows
from motet.generation.rows import DecodedRows, sample_rows
from motet.generation.shared_prompt import SharedPromptRows
from motet.models import Policy
from motet.models.decoding import FusedDecoder


class HFGenerator:
    """Implements `Generator` on a `Policy`.

    Where the policy takes attention plans, the keys and values of a prompt are kept once for all its completions, and
    if its decoder is of the ordinary kind, its weights are made ready once a call; else keys and values are copied for
    each completion. All ways draw the same random numbers.

    Args:
        policy: the model to sample from; its current weights are used at each call.
        max_rows: completions that are sampled side by side. A memory setting; it changes which random numbers a
            completion gets, so it is part of what makes a run repeatable.
        fuse: take `FusedRows` where the model allows it.
    """

    def __init__(self, policy: Policy, *, max_rows: int = 512, fuse: bool = True) -> None:
        self._policy = policy
        self._max_rows = max_rows
        self._can_fuse = None if fuse else False  # None: not tried yet

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
        new_rows = self._way(max(map(len, prompts), default=0), max_new_tokens)
        results: list[list[Completion]] = [[] for _ in prompts]
        for wanted in self._batches(counts):
            owners, row_counts = zip(*wanted, strict=True)
            completions = sample_rows(
                self._policy,
                new_rows(self._policy, [prompts[i] for i in owners], row_counts, max_new_tokens=max_new_tokens),
                num_rows=sum(row_counts),
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                rng=rng,
            )
            row_owner = [owner for owner, count in wanted for _ in range(count)]
            for owner, completion in zip(row_owner, completions, strict=True):
                results[owner].append(completion)
        return results

    def _way(self, longest_prompt: int, max_new_tokens: int) -> Callable[..., DecodedRows]:
        """The fastest way of decoding that this model takes."""
        if not self._policy.takes_plans:
            return PaddedRows
        if self._can_fuse is None:
            self._can_fuse = can_fuse(self._policy)
        if not (self._can_fuse and fits(self._policy, longest_prompt + max_new_tokens)):
            return SharedPromptRows
        return partial(FusedRows, decoder=FusedDecoder(self._policy))

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
