"""How the rows of a micro-batch lie in one forward pass, and which rows go together.

Packed: one row of tokens without padding, each prompt once before all of its completions. Padded, for architectures
that do not take plans: a row for each rollout, padded on the right. Both give the same log-probs;
packing computes less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from motet.learner.batch import Batch
from motet.learner.packed_attention import Cluster, PackedPlan
from motet.models import Policy

_Ids = NDArray[np.int64]
_Cell = tuple[tuple[int, ...], list[int]]
"""A prompt's ids, and the rows that answer it."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """One forward pass over some rows.

    Legend: M completion tokens of the rows, row after row.

    Attributes:
        token_ids: (n, L); n is 1 if packed.
        positions: (n, L).
        predictor_M: place in the flattened (n * L) of the token whose hidden state predicts the target.
        target_M: ids of the completion tokens.
        plan: who sees whom; None if padded.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    predictor_M: torch.Tensor
    target_M: torch.Tensor
    plan: PackedPlan | None

    def hidden_states(self, policy: Policy) -> torch.Tensor:
        """Hidden states of all tokens, (n * L, D)."""
        return policy.hidden_states(self.token_ids, self.positions, plan=self.plan).flatten(0, 1)


def rows_by_prompt(batch: Batch, rows_B: torch.Tensor, *, last_B: torch.Tensor) -> torch.Tensor:
    """Numbers of the true rows, those of one prompt together, prompts of nothing but rows of `last_B` at the end."""
    prompts: dict[tuple[int, ...], list[int]] = {}
    for row in rows_B.nonzero().squeeze(1).tolist():
        prompts.setdefault(tuple(batch.prompt_ids[row]), []).append(row)
    members = sorted(prompts.values(), key=lambda rows: bool(last_B[rows].all()))
    return torch.tensor([row for rows in members for row in rows], dtype=torch.long)


def lay_out(batch: Batch, rows: torch.Tensor, *, packed: bool, device: torch.device) -> Layout:
    """The forward pass over `rows`, in their order; rows of one prompt that follow each other share it if packed."""
    return (_packed if packed else _padded)(batch, rows.tolist(), device)


def micro_batches(
    batch: Batch, rows: torch.Tensor, *, max_tokens: int, packed: bool, enough_tokens: int | None = None
) -> list[torch.Tensor]:
    """Row numbers in slices of at most `max_tokens` tokens of a forward pass (a single longer row goes alone).

    Args:
        batch: the batch.
        rows: the row numbers to spread, 1-D. Packed: rows of one prompt must follow each other to share it.
        max_tokens: tokens of a slice, padding included.
        packed: how the slices will be laid out.
        enough_tokens: packed slices grow beyond this only to keep a prompt and its completions together.
    """
    if len(rows) == 0:
        return []
    if packed:
        return _packed_slices(batch, rows, max_tokens, enough_tokens or max_tokens)
    return _padded_slices(batch, rows, max_tokens)


def _packed_slices(batch: Batch, rows: torch.Tensor, max_tokens: int, enough_tokens: int) -> list[torch.Tensor]:
    """Prompts with their completions, one after the other, in slices of about equal size.

    A prompt is repeated only if its completions do not fit one slice.
    """
    pieces = [piece for cell in _cells(batch, rows.tolist()) for piece in _split(batch, cell, max_tokens)]
    sizes = [_num_tokens(batch, piece) for piece in pieces]
    room = min(max_tokens, max(enough_tokens, max(sizes)))
    fair = sum(sizes) / -(-sum(sizes) // room)
    slices: list[list[int]] = []
    used = 0
    for (_, members), size in zip(pieces, sizes, strict=True):
        if not slices or used + size > min(max_tokens, fair * 1.15):
            slices.append([])
            used = 0
        slices[-1] += members
        used += size
    return [torch.tensor(members) for members in slices]


def _padded_slices(batch: Batch, rows: torch.Tensor, max_tokens: int) -> list[torch.Tensor]:
    total = [len(batch.prompt_ids[i]) + int(batch.length_B[i]) - 1 for i in rows.tolist()]
    order = sorted(range(len(total)), key=lambda i: (total[i], i))
    slices, start = [], 0
    for end in range(1, len(order) + 1):
        longest_with_next = total[order[end]] if end < len(order) else 0
        if end == len(order) or (end + 1 - start) * longest_with_next > max_tokens:
            slices.append(rows[torch.tensor(order[start:end])])
            start = end
    return slices


def _cells(batch: Batch, rows: Sequence[int]) -> list[_Cell]:
    cells: list[_Cell] = []
    for row in rows:
        prompt = tuple(batch.prompt_ids[row])
        if not cells or cells[-1][0] != prompt:
            cells.append((prompt, []))
        cells[-1][1].append(row)
    return cells


def _num_tokens(batch: Batch, cell: _Cell) -> int:
    prompt, members = cell
    return len(prompt) + sum(int(batch.length_B[row]) - 1 for row in members)


def _split(batch: Batch, cell: _Cell, max_tokens: int) -> list[_Cell]:
    """The cell in pieces that fit `max_tokens`, one row at least."""
    prompt, members = cell
    pieces: list[_Cell] = []
    for row in members:
        if not pieces or _num_tokens(batch, (prompt, [*pieces[-1][1], row])) > max_tokens:
            pieces.append((prompt, []))
        pieces[-1][1].append(row)
    return pieces


def _packed(batch: Batch, rows: Sequence[int], device: torch.device) -> Layout:
    ids: list[_Ids] = []
    positions: list[_Ids] = []
    predictors: list[_Ids] = []
    targets: list[_Ids] = []
    clusters: list[Cluster] = []
    start = 0
    for prompt, members in _cells(batch, rows):
        ids.append(np.array(prompt, dtype=np.int64))
        positions.append(np.arange(len(prompt)))
        start += len(prompt)
        last = np.array([start - 1])  # predicts the first token of every completion
        for row in members:
            answer = batch.rollouts[row].token_ids.astype(np.int64)
            num_inputs = len(answer) - 1  # the last token predicts nothing
            ids.append(answer[:-1])
            positions.append(np.arange(len(prompt), len(prompt) + num_inputs))
            predictors += [last, np.arange(start, start + num_inputs)]
            targets.append(answer)
            start += num_inputs
        clusters.append(Cluster(len(prompt), [len(batch.rollouts[row].token_ids) - 1 for row in members]))
    return Layout(
        token_ids=_tensor(ids, device)[None],
        positions=_tensor(positions, device)[None],
        predictor_M=_tensor(predictors, device),
        target_M=_tensor(targets, device),
        plan=PackedPlan(clusters, device=device),
    )


def _padded(batch: Batch, rows: Sequence[int], device: torch.device) -> Layout:
    """Causal attention never looks at padding on the right, so no mask is needed."""
    answers = [batch.rollouts[row].token_ids.astype(np.int64) for row in rows]
    prompt_length = [len(batch.prompt_ids[row]) for row in rows]
    width = max(prompt + len(answer) - 1 for prompt, answer in zip(prompt_length, answers, strict=True))
    token_ids = np.zeros((len(rows), width), dtype=np.int64)
    predictors: list[_Ids] = []
    for number, (row, prompt, answer) in enumerate(zip(rows, prompt_length, answers, strict=True)):
        token_ids[number, :prompt] = batch.prompt_ids[row]
        token_ids[number, prompt : prompt + len(answer) - 1] = answer[:-1]
        first = number * width + prompt - 1
        predictors.append(np.arange(first, first + len(answer)))
    return Layout(
        token_ids=torch.from_numpy(token_ids).to(device),
        positions=torch.arange(width, device=device).expand(len(rows), width),
        predictor_M=_tensor(predictors, device),
        target_M=_tensor(answers, device),
        plan=None,
    )


def _tensor(parts: Sequence[_Ids], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)
