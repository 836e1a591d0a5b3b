"""One id for each row from the whole distribution, by inverse cumulative sums: nothing is sorted or cut off."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.models import Policy

_BLOCK = 128  # ids whose probability is summed before one of them is looked for
_MAX_ELEMENTS = 2**24  # of a buffer of probabilities: 64 MiB; more rows are drawn in pieces


def uniform_numbers(max_new_tokens: int, num_rows: int, rng: torch.Generator, device: torch.device) -> Tensor:
    """The random numbers of a batch, (T, N) in [0, 1): one for each token of each row, whichever rows end early."""
    dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no more
    return torch.rand(max_new_tokens, num_rows, dtype=dtype, generator=rng).to(device)


def draw(policy: Policy, hidden_ND: Tensor, *, temperature: float, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """An id for each row and its log-prob.

    Args:
        policy: gives the logits.
        hidden_ND: last hidden states.
        temperature: 0 takes the likeliest id; log-probs are then those of temperature 1.
        uniform_N: a number in [0, 1) for each row.

    Returns:
        Ids, (N,), and log-probs in fp32, (N,). Where a row's logits are not all numbers its log-prob is NaN.
    """
    num_rows = max(1, _MAX_ELEMENTS // policy.vocab_size)
    pieces = [
        _draw_piece(policy.logits(hidden), temperature, uniform)
        for hidden, uniform in zip(hidden_ND.split(num_rows), uniform_N.split(num_rows), strict=True)
    ]
    if len(pieces) == 1:
        return pieces[0]
    ids, logp = zip(*pieces, strict=True)
    return torch.cat(ids), torch.cat(logp)


def _draw_piece(logits_NV: Tensor, temperature: float, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    if temperature not in (0.0, 1.0):
        logits_NV = logits_NV.div_(temperature)
    probability_NV = torch.softmax(logits_NV, dim=-1)
    chosen = probability_NV.argmax(dim=-1) if temperature == 0.0 else invert(probability_NV, uniform_N)
    return chosen, probability_NV.gather(1, chosen[:, None]).squeeze(1).log()


def invert(probability_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """The id at which the cumulative probability reaches 1 - u; never one of probability 0.

    Large vocabularies are summed in blocks first, and only the block that was met is searched: the sums keep double
    precision without a second buffer of the size of the first.

    >>> probability = torch.tensor([[0.5, 0.0, 0.25, 0.25]] * 4)
    >>> invert(probability, torch.tensor([0.0, 0.3, 0.5, 0.99])).tolist()
    [3, 2, 0, 0]

    Args:
        probability_NV: probabilities; they need not add up to exactly 1.
        uniform_N: numbers in [0, 1), in the precision of the search.
    """
    target_N1 = (1.0 - uniform_N)[:, None]  # in (0, 1]: the id found has a share in its sum
    vocab_size = probability_NV.shape[1]
    if vocab_size <= 8 * _BLOCK:
        return _search(probability_NV, target_N1)[0].squeeze(1)
    num_blocks = vocab_size // _BLOCK
    whole, rest = probability_NV.split([num_blocks * _BLOCK, vocab_size - num_blocks * _BLOCK], dim=1)
    sums = whole.unflatten(1, (num_blocks, _BLOCK)).sum(dim=2)
    if rest.shape[1]:
        sums = torch.cat([sums, rest.sum(dim=1, keepdim=True)], dim=1)
    block_N1, cumulative, reached = _search(sums, target_N1)
    above = cumulative.gather(1, block_N1)
    below = cumulative.gather(1, (block_N1 - 1).clamp_(min=0)).masked_fill(block_N1 == 0, 0.0)
    ids = block_N1 * _BLOCK + torch.arange(_BLOCK, device=block_N1.device)
    part = probability_NV.gather(1, ids.clamp(max=vocab_size - 1)).masked_fill(ids >= vocab_size, 0.0)
    ids_N1 = block_N1 * _BLOCK + _search(part, (reached - below) / (above - below))[0]
    return ids_N1.clamp_(max=vocab_size - 1).squeeze(1)  # a row that is not a number ends anywhere


def _search(weight_NV: Tensor, target_N1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the cumulative weight reaches `target` of the total; the cumulative weight, and what it had to reach."""
    cumulative = weight_NV.cumsum(dim=1, dtype=target_N1.dtype)
    reached = target_N1 * cumulative[:, -1:]
    # Weights that are not numbers are never reached.
    found = torch.searchsorted(cumulative, reached).clamp_(max=weight_NV.shape[1] - 1)
    return found, cumulative, reached
