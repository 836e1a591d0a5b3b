"""The loop over tokens: what every way of decoding shares, so that all of them draw the same random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet.errors import RunFailed
from motet.generation.drawing import draw, uniform_numbers
from motet.generation.generator import Completion
from motet.models import Policy

_ENDED_SHARE = 1 / 4  # of the rows: then those that ended are taken out


class DecodedRows(Protocol):
    """Completions side by side inside a model: what was fed so far, as keys and values."""

    def start(self) -> Tensor:
        """Hidden states that predict every row's first id, (N, D)."""
        ...

    def keep(self, kept: Tensor) -> None:
        """Forget all rows but those of these numbers (ascending)."""
        ...

    def advance(self, token_ids_N: Tensor) -> Tensor:
        """Feed one id to every row; hidden states that predict the next ones, (N, D)."""
        ...


def sample_rows(
    policy: Policy,
    decoded: DecodedRows,
    *,
    num_rows: int,
    max_new_tokens: int,
    temperature: float,
    rng: torch.Generator,
) -> list[Completion]:
    """Sample rows to their ends.

    Rows that ended are taken out when a quarter have; until then they cost a little work and change nothing.

    Raises:
        RunFailed: E-LEARN-02 if the model's outputs are not numbers.
    """
    end_ids = policy.tokenizer.end_token_ids
    uniform_TN = uniform_numbers(max_new_tokens, num_rows, rng, policy.device)
    token_ids_TN = np.zeros((max_new_tokens, num_rows), dtype=np.int64)
    logp_TN = torch.zeros(max_new_tokens, num_rows, device=policy.device)
    rows, running = np.arange(num_rows), np.ones(num_rows, dtype=np.bool_)
    rows_there: Tensor | slice = slice(None)  # the same, where the model is; at first all
    hidden = decoded.start()
    for step in range(max_new_tokens):
        chosen, logp = draw(policy, hidden, temperature=temperature, uniform_N=uniform_TN[step, rows_there])
        token_ids_TN[step, rows] = chosen_here = chosen.cpu().numpy()
        logp_TN[step, rows_there] = logp
        for end_id in end_ids:
            running &= chosen_here != end_id
        num_running = int(np.count_nonzero(running))
        if num_running == 0 or step + 1 == max_new_tokens:
            break
        if len(rows) - num_running >= max(1, _ENDED_SHARE * len(rows)):
            rows, kept = rows[running], torch.from_numpy(running.nonzero()[0]).to(policy.device)
            rows_there, chosen, running = torch.from_numpy(rows).to(policy.device), chosen[kept], running[running]
            decoded.keep(kept)
        hidden = decoded.advance(chosen)
    if bool(logp_TN.isnan().any()):
        raise _broken(policy)
    return _to_completions(token_ids_TN, logp_TN.cpu().numpy(), end_ids)


def _broken(policy: Policy) -> RunFailed:
    return RunFailed(
        f"{policy.label}: an output of the model is not a number; its weights are beyond repair: "
        "lower learner.learning_rate, and start anew or from an earlier checkpoint",
        code="E-LEARN-02",
    )


def _to_completions(
    token_ids_TN: NDArray[np.int64], logp_TN: NDArray[np.float32], end_ids: Sequence[int]
) -> list[Completion]:
    """Each row up to its first end id; what stands behind it was drawn for a row that had not left yet."""
    is_end_NT = np.isin(token_ids_TN, list(end_ids)).T
    ids_NT = np.ascontiguousarray(token_ids_TN.T, dtype=np.uint32)
    logp_NT = np.ascontiguousarray(logp_TN.T)
    stopped: NDArray[np.bool_] = np.any(is_end_NT, axis=1)
    length = np.where(stopped, is_end_NT.argmax(axis=1) + 1, is_end_NT.shape[1])
    return [
        Completion(ids[:count].copy(), logp[:count].copy(), "stop" if ended else "length")
        for ids, logp, count, ended in zip(ids_NT, logp_NT, length, stopped, strict=True)
    ]
