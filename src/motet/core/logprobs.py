"""Log-probs of given tokens from hidden states, without the whole (N, V) tensor of logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def chunked_logprobs(
    hidden_ND: Tensor,
    head: Callable[[Tensor], Tensor],
    target_N: Tensor,
    temperature_N: Tensor,
    *,
    vocab_size: int,
    max_logits: int = 2**24,
    softcap: float | None = None,
) -> Tensor:
    """Log-prob of each target token under softmax(logits / temperature), a chunk of rows at a time.

    Backward recomputes each chunk's logits instead of keeping them, so that at most one chunk exists at any time.
    The softmax is computed in at least float32 whatever the head computes in.

    Args:
        hidden_ND: final hidden states, one row for each token to score, shape (N, D).
        head: maps (n, D) to logits (n, V): the model's output layer. Must be deterministic and row-wise.
        target_N: token ids, shape (N,), in [0, V).
        temperature_N: temperature of each row's sampler, shape (N,), above 0.
        vocab_size: V, the width of the head's output.
        max_logits: most logits in one chunk; decides memory, not the result. A chunk has at least one row.
        softcap: if given, logits become softcap * tanh(logits / softcap) first (a part of some models).

    Returns:
        Log-probs in nats, shape (N,), at least float32; with a graph to `hidden_ND` and to the head's parameters.

    Raises:
        ValueError: shapes differ, or a number that must be positive is not.

    Example:
        Logits 0 and log 3 at temperature 1: probabilities 1/4 and 3/4.

        >>> logits_NV = torch.tensor([[1.0, 3.0]]).log()
        >>> chunked_logprobs(logits_NV, torch.nn.Identity(), torch.tensor([1]), torch.ones(1), vocab_size=2).exp()
        tensor([0.7500])
    """
    num_rows = len(hidden_ND)
    if hidden_ND.ndim != 2 or target_N.shape != (num_rows,) or temperature_N.shape != (num_rows,):
        shapes = [tuple(tensor.shape) for tensor in (hidden_ND, target_N, temperature_N)]
        msg = f"hidden states, targets and temperatures must be (N, D), (N,), (N,); got {shapes}"
        raise ValueError(msg)
    if vocab_size < 1 or max_logits < 1 or not bool((temperature_N > 0).all()):
        msg = "vocab_size, max_logits and every temperature must be above 0"
        raise ValueError(msg)

    def score(hidden_nD: Tensor, target_n: Tensor, temperature_n: Tensor) -> Tensor:
        logits_nV = head(hidden_nD)
        logits_nV = logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32))
        if softcap is not None:
            logits_nV = softcap * torch.tanh(logits_nV / softcap)
        logp_nV = torch.log_softmax(logits_nV / temperature_n[:, None].to(logits_nV.dtype), dim=-1)
        return logp_nV.gather(1, target_n[:, None]).squeeze(1)

    rows = max(1, max_logits // vocab_size)
    chunks = zip(*(torch.split(tensor, rows) for tensor in (hidden_ND, target_N, temperature_N)), strict=True)
    if not torch.is_grad_enabled() or num_rows <= rows:
        return torch.cat([score(*chunk) for chunk in chunks])
    # The head draws nothing at random, so no random state needs to be kept for the second forward pass.
    return torch.cat([checkpoint(score, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks])
