"""The output layer's part of a backward pass, a chunk of completions at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from motet.core.logprobs import chunked_logprobs

GradientOf = Callable[[int, int, Tensor], "Tensor | None"]
"""d loss / d logp of the tokens of completions `first` to `last` (exclusive), given their log-probs; None: all zero."""


def backward_through_head(
    hidden_MD: Tensor,
    head: Callable[[Tensor], Tensor],
    target_M: Tensor,
    temperature_M: Tensor,
    lengths: Sequence[int],
    gradient_of: GradientOf,
    *,
    vocab_size: int,
    max_logits: int = 2**24,
    softcap: float | None = None,
) -> Tensor:
    """Log-probs, their loss and its gradient in one visit: logits are computed once and never kept.

    Whole completions are taken together as long as their logits fit a chunk, so that a loss that needs a completion's
    every token can be differentiated while the logits are there. With p = softmax(logits / T) and g = d loss / d logp:

        d loss / d logits = g / T * (onehot(target) - p)

    A completion that is longer than a chunk is visited twice, as in `chunked_logprobs`.

    Args:
        hidden_MD: hidden states that predict the targets, completion after completion, shape (M, D).
        head: the output layer, (n, D) to (n, V); its parameters' gradients are added to.
        target_M: token ids, shape (M,).
        temperature_M: temperature of each token's sampler, shape (M,).
        lengths: tokens of each completion; they add up to M.
        gradient_of: the loss's gradient, completion range by completion range, in order; called once for each.
        vocab_size: V.
        max_logits: most logits in one chunk, unless a single row has more.
        softcap: if given, logits become softcap * tanh(logits / softcap) first.

    Returns:
        d loss / d hidden, shape (M, D).

    Example:
        The mean of two log-probs of a uniform distribution over 2 tokens:

        >>> head = torch.nn.Linear(1, 2, bias=False)
        >>> _ = torch.nn.init.zeros_(head.weight)
        >>> hidden, target = torch.ones(2, 1), torch.tensor([0, 1])
        >>> half = lambda first, last, logp: torch.full_like(logp, 0.5)
        >>> backward_through_head(hidden, head, target, torch.ones(2), [1, 1], half, vocab_size=2).flatten()
        tensor([0., 0.])
        >>> head.weight.grad.flatten()
        tensor([0., 0.])
    """
    rows = max(1, max_logits // vocab_size)
    grad_MD = torch.zeros_like(hidden_MD)
    is_tempered = bool((temperature_M != 1).any())

    def backward(start: int, end: int, gradient: Callable[[Tensor], Tensor | None]) -> None:
        """Tokens `start` to `end`: log-probs, then their gradient, then the head's."""
        raw_nV, through_head = _apply(head, hidden_MD[start:end])
        logits_nV = raw_nV.to(torch.promote_types(raw_nV.dtype, torch.float32))
        if softcap is not None:
            logits_nV = softcap * torch.tanh(logits_nV / softcap)
        temperature_n1 = temperature_M[start:end, None].to(logits_nV.dtype)
        target_n1 = target_M[start:end, None]
        logp_nV = torch.log_softmax(logits_nV / temperature_n1 if is_tempered else logits_nV, dim=-1)
        gradient_n = gradient(logp_nV.gather(1, target_n1).squeeze(1))
        if gradient_n is None:
            return
        scale_n1 = gradient_n.to(logp_nV.dtype)[:, None] / temperature_n1
        grad_nV = logp_nV.exp_().mul_(-scale_n1).scatter_add_(1, target_n1, scale_n1)
        if softcap is not None:
            grad_nV *= 1 - (logits_nV / softcap) ** 2
        grad_MD[start:end] = through_head(grad_nV.to(raw_nV.dtype))

    def known(gradient_n: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda _: gradient_n

    def visit(first: int, last: int, start: int, end: int) -> None:
        if end - start <= rows:
            backward(start, end, lambda logp_n: gradient_of(first, last, logp_n))
            return
        with torch.no_grad():
            logp_n = chunked_logprobs(
                hidden_MD[start:end],
                head,
                target_M[start:end],
                temperature_M[start:end],
                vocab_size=vocab_size,
                max_logits=max_logits,
                softcap=softcap,
            )
        gradient_n = gradient_of(first, last, logp_n)
        if gradient_n is not None:
            for part in range(start, end, rows):
                stop = min(part + rows, end)
                backward(part, stop, known(gradient_n[part - start : stop - start]))

    for span in _spans(lengths, rows):
        visit(*span)
    return grad_MD


def _apply(head: Callable[[Tensor], Tensor], hidden_nD: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Logits, and what turns their gradient into that of the hidden states while it adds to that of the parameters."""
    if type(head) is torch.nn.Linear:
        with torch.no_grad():
            return head(hidden_nD), lambda grad_nV: _through_linear(head, hidden_nD, grad_nV)
    with torch.enable_grad():
        leaf_nD = hidden_nD.detach().requires_grad_()
        raw_nV = head(leaf_nD)

    def through_head(grad_nV: Tensor) -> Tensor:
        raw_nV.backward(grad_nV)
        assert leaf_nD.grad is not None
        return leaf_nD.grad

    return raw_nV.detach(), through_head


@torch.no_grad()
def _through_linear(head: torch.nn.Linear, hidden_nD: Tensor, grad_nV: Tensor) -> Tensor:
    """By hand, because autograd makes a gradient of the weight's size for each chunk before it adds it."""
    if head.weight.requires_grad:
        if head.weight.grad is None:
            head.weight.grad = grad_nV.T @ hidden_nD
        else:
            head.weight.grad.addmm_(grad_nV.T, hidden_nD)
    if head.bias is not None and head.bias.requires_grad:
        by_bias = grad_nV.sum(0)
        head.bias.grad = by_bias if head.bias.grad is None else head.bias.grad.add_(by_bias)
    return grad_nV @ head.weight


def _spans(lengths: Sequence[int], max_rows: int) -> Iterator[tuple[int, int, int, int]]:
    """Completions `first` to `last` and their tokens `start` to `end`, as many as fit; a longer one goes alone."""
    first = start = end = 0
    for last, length in enumerate(lengths):
        if end > start and end + length - start > max_rows:
            yield first, last, start, end
            first, start = last, end
        end += length
    if end > start:
        yield first, len(lengths), start, end
