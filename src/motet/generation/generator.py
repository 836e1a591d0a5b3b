"""The Generator protocol: prompts in, groups of sampled completions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from motet.records import FinishReason


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """A sampled completion, not yet scored.

    Attributes:
        token_ids: sampled ids including the end token, if one was sampled. uint32, (T,), T >= 1.
        logp_gen: log-prob of each id under the untruncated distribution at the temperature. float32, (T,), nats.
        finish_reason: "stop" or "length".
    """

    token_ids: NDArray[np.uint32]
    logp_gen: NDArray[np.float32]
    finish_reason: FinishReason


class Generator(Protocol):
    """Samples completions. MUST sample untruncated (no top-k, top-p, min-p) and MUST return the log-probs of the
    distribution that was sampled. The same seed and weights MUST give the same completions on the same machine."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: Sequence[int] | int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """Completions per prompt, in the order of `prompts`.

        Args:
            prompts: token ids of each prompt.
            num_completions: how many completions for each prompt (one number for all, or one each).
            max_new_tokens: limit of a completion's length.
            temperature: 0 means greedy (log-probs are then those of temperature 1).
            seed: seeds this call alone; no global random state is touched.
        """
        ...
