"""Decoding for any architecture: prompts padded on the left, the cache of transformers, one copy of it for each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from motet.models import Policy


class PaddedRows:
    """Implements `DecodedRows`. Each prompt is prefilled once; its cache is then copied for each of its rows.

    Args:
        policy: the model.
        prompts: ids of each prompt; all rows predict their next id at the same column.
        row_counts: completions of each prompt, 1 or more.
        max_new_tokens: limit of a completion's length.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], row_counts: Sequence[int], *, max_new_tokens: int
    ) -> None:
        from transformers import DynamicCache

        self._policy = policy
        width = max(len(prompt) for prompt in prompts)
        token_ids = torch.zeros(len(prompts), width, dtype=torch.long)
        real = torch.zeros(len(prompts), width + max_new_tokens, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            token_ids[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
            real[row, width - len(prompt) :] = 1
        positions = (real[:, :width].cumsum(1) - 1).clamp(min=0)
        self._token_ids, self._real, self._position = (t.to(policy.device) for t in (token_ids, real, positions))
        self._row_of = torch.repeat_interleave(torch.tensor(row_counts)).to(policy.device)
        self._cache = DynamicCache(config=policy.config)
        self._seen = width

    def start(self) -> Tensor:
        """See `DecodedRows.start`."""
        hidden = self._policy.hidden_states(
            self._token_ids, self._position, attention_mask_BT=self._real[:, : self._seen], cache=self._cache
        )
        self._position = self._position[:, -1:]
        self.keep(self._row_of)
        return hidden[:, -1][self._row_of]

    def keep(self, kept: Tensor) -> None:
        """See `DecodedRows.keep`."""
        self._cache.batch_select_indices(kept)
        self._real, self._position = self._real[kept], self._position[kept]

    def advance(self, token_ids_N: Tensor) -> Tensor:
        """See `DecodedRows.advance`."""
        self._position = self._position + 1
        self._seen += 1
        return self._policy.hidden_states(
            token_ids_N[:, None], self._position, attention_mask_BT=self._real[:, : self._seen], cache=self._cache
        )[:, 0]
