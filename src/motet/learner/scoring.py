"""Log-probs of given completions under the policy: the learner's side of what the sampler recorded."""

from __future__ import annotations

import torch

from motet.core import chunked_logprobs
from motet.learner.batch import Batch
from motet.learner.layout import lay_out
from motet.models import Policy


def score_rows(policy: Policy, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
    """Log-probs of the completions of `rows`, each under its sampler's temperature. Differentiable.

    The plain way to what `motet.learner.gradient` computes together with its loss.

    Args:
        policy: the model.
        batch: the batch.
        rows: row numbers, shape (n,); rows of one prompt that follow each other share it.

    Returns:
        (n, T) with T of the batch, 0 behind the end of a completion, fp32.
    """
    layout = lay_out(batch, rows, packed=policy.takes_plans, device=policy.device)
    mask = batch.mask_BT[rows].to(policy.device)
    logp_M = chunked_logprobs(
        layout.hidden_states(policy).index_select(0, layout.predictor_M),
        policy.head,
        layout.target_M,
        batch.temperature_B[rows].to(policy.device)[:, None].expand_as(mask)[mask],
        vocab_size=policy.vocab_size,
        softcap=policy.softcap,
    )
    return torch.zeros(mask.shape, device=policy.device, dtype=logp_M.dtype).masked_scatter(mask, logp_M)
