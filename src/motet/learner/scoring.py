"""Log-probs of given completions under the policy: the learner's side of what the sampler recorded."""

from __future__ import annotations

import torch

from motet.core import chunked_logprobs
from motet.learner.batch import Batch
from motet.models import Policy


def score_rows(policy: Policy, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
    """Log-probs of the completions of `rows`, each under its sampler's temperature. Differentiable.

    Rows are padded on the right with explicit positions: causal attention never looks there, so no mask is needed.

    Args:
        policy: the model.
        batch: the batch.
        rows: row numbers, shape (n,).

    Returns:
        (n, T) with T of the batch, 0 behind the end of a completion, fp32.
    """
    numbers = rows.tolist()
    prompt_length = [len(batch.prompt_ids[i]) for i in numbers]
    total = [prompt + int(batch.length_B[i]) for prompt, i in zip(prompt_length, numbers, strict=True)]
    token_ids = torch.zeros(len(numbers), max(total), dtype=torch.long)
    predicts = torch.zeros(len(numbers), max(total), dtype=torch.bool)
    for row, (i, prompt) in enumerate(zip(numbers, prompt_length, strict=True)):
        token_ids[row, :prompt] = torch.as_tensor(batch.prompt_ids[i])
        token_ids[row, prompt : total[row]] = torch.from_numpy(batch.rollouts[i].token_ids.astype("int64"))
        predicts[row, prompt - 1 : total[row] - 1] = True
    device = policy.device
    token_ids, predicts = token_ids.to(device), predicts.to(device)
    # The last column predicts nothing.
    inputs, predicts = token_ids[:, :-1], predicts[:, :-1]
    positions = torch.arange(inputs.shape[1], device=device).expand_as(inputs)
    hidden_ND = policy.hidden_states(inputs, positions)[predicts]
    mask = batch.mask_BT[rows].to(device)
    logp_N = chunked_logprobs(
        hidden_ND,
        policy.head,
        token_ids[:, 1:][predicts],
        batch.temperature_B[rows].to(device)[:, None].expand_as(mask)[mask],
        vocab_size=policy.vocab_size,
        softcap=policy.softcap,
    )
    return torch.zeros(mask.shape, device=device, dtype=logp_N.dtype).masked_scatter(mask, logp_N)
