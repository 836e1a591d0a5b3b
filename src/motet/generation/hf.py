"""Sampling from a local Hugging Face model: each prompt prefilled once, finished rows leave the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from motet.errors import RunFailed
from motet.generation.generator import Completion
from motet.models import Policy


class HFGenerator:
    """Implements `Generator` on a `Policy`.

    Args:
        policy: the model to sample from; its current weights are used at each call.
        max_rows: completions that are sampled side by side. A memory setting; it changes which random numbers a
            completion gets, so it is part of what makes a run repeatable.
    """

    def __init__(self, policy: Policy, *, max_rows: int = 512) -> None:
        self._policy = policy
        self._max_rows = max_rows

    @torch.no_grad()
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
        rng = torch.Generator(device=self._policy.device).manual_seed(seed)
        results: list[list[Completion]] = [[] for _ in prompts]
        for wanted in self._batches(counts):
            owners, row_counts = zip(*wanted, strict=True)
            batch = _RowBatch(self._policy, [prompts[i] for i in owners], row_counts, max_new_tokens)
            completions = batch.sample(temperature=temperature, rng=rng)
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


class _RowBatch:
    """The rows that are sampled side by side: cache, attention mask and what was sampled so far.

    Prompts are padded on the left, so that all rows predict their next token at the same column.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], row_counts: Sequence[int], max_new_tokens: int
    ) -> None:
        from transformers import DynamicCache

        self._policy = policy
        self._max_new_tokens = max_new_tokens
        device = policy.device
        width = max(len(prompt) for prompt in prompts)
        token_ids = torch.zeros(len(prompts), width, dtype=torch.long)
        real = torch.zeros(len(prompts), width + max_new_tokens, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            token_ids[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
            real[row, width - len(prompt) :] = 1
        positions = (real[:, :width].cumsum(1) - 1).clamp(min=0).to(device)
        self._cache = DynamicCache(config=policy.config)
        real = real.to(device)
        hidden = policy.hidden_states(
            token_ids.to(device), positions, attention_mask_BT=real[:, :width], cache=self._cache
        )
        row_of = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(row_counts)).to(device)
        self._cache.batch_select_indices(row_of)
        self._hidden_ND = hidden[:, -1][row_of]
        self._real = real[row_of]
        self._position = positions[row_of, -1:]
        self._width = width
        self._num_rows = len(row_of)
        self._end_ids = torch.tensor(policy.tokenizer.end_token_ids, device=device)

    def sample(self, *, temperature: float, rng: torch.Generator) -> list[Completion]:
        rows = torch.arange(self._num_rows, device=self._policy.device)
        token_ids = torch.zeros(self._num_rows, self._max_new_tokens, dtype=torch.long, device=rows.device)
        logp = torch.zeros(self._num_rows, self._max_new_tokens, device=rows.device)
        length = torch.full((self._num_rows,), self._max_new_tokens, device=rows.device)
        stopped = torch.zeros(self._num_rows, dtype=torch.bool, device=rows.device)
        for step in range(self._max_new_tokens):
            chosen, chosen_logp = _draw(self._log_probs(temperature), rng if temperature else None)
            token_ids[rows, step] = chosen
            logp[rows, step] = chosen_logp
            going_on = ~torch.isin(chosen, self._end_ids)
            if not bool(going_on.all()):
                ended = rows[~going_on]
                stopped[ended] = True
                length[ended] = step + 1
                keep = going_on.nonzero().squeeze(1)
                rows, chosen = rows[keep], chosen[keep]
                self._keep(keep)
            if len(rows) == 0 or step + 1 == self._max_new_tokens:
                break
            self._advance(chosen, step)
        return _to_completions(token_ids, logp, length, stopped)

    def _log_probs(self, temperature: float) -> torch.Tensor:
        """Log-probs of every row's next id; those of temperature 1 for greedy sampling."""
        log_probs = torch.log_softmax(self._policy.logits(self._hidden_ND) / (temperature or 1.0), dim=-1)
        if bool(log_probs.isnan().any()):
            raise RunFailed(
                f"{self._policy.label}: an output of the model is not a number; its weights are beyond repair: "
                "lower learner.learning_rate, and start anew or from an earlier checkpoint",
                code="E-LEARN-02",
            )
        return log_probs

    def _keep(self, keep: torch.Tensor) -> None:
        self._cache.batch_select_indices(keep)
        self._real, self._position = self._real[keep], self._position[keep]

    def _advance(self, chosen: torch.Tensor, step: int) -> None:
        self._position = self._position + 1
        seen = self._width + step + 1
        self._hidden_ND = self._policy.hidden_states(
            chosen[:, None], self._position, attention_mask_BT=self._real[:, :seen], cache=self._cache
        )[:, 0]


def _draw(log_probs: torch.Tensor, rng: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
    """One id for each row and its log-prob, from the whole distribution; the likeliest id without a generator."""
    if rng is None:
        chosen = log_probs.argmax(dim=-1)
    else:
        chosen = torch.multinomial(log_probs.exp(), 1, generator=rng).squeeze(1)
    return chosen, log_probs.gather(1, chosen[:, None]).squeeze(1)


def _to_completions(
    token_ids: torch.Tensor, logp: torch.Tensor, length: torch.Tensor, stopped: torch.Tensor
) -> list[Completion]:
    ids = token_ids.cpu().numpy().astype(np.uint32)
    log_probs = logp.cpu().numpy().astype(np.float32)
    return [
        Completion(ids[row, :count].copy(), log_probs[row, :count].copy(), "stop" if ended else "length")
        for row, (count, ended) in enumerate(zip(length.tolist(), stopped.tolist(), strict=True))
    ]
