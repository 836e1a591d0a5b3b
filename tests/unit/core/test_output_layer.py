"""The fused visit of the output layer against autograd through the whole logits."""

from __future__ import annotations

import pytest
import torch

from motet.core import backward_through_head, chunked_logprobs

LENGTHS = [3, 1, 7, 2]
D, V = 5, 11


def problem(*, dtype=torch.float64, bias=True):
    torch.manual_seed(0)
    head = torch.nn.Linear(D, V, bias=bias, dtype=dtype)
    num_tokens = sum(LENGTHS)
    hidden = torch.randn(num_tokens, D, dtype=dtype)
    target = torch.randint(V, (num_tokens,))
    temperature = torch.rand(num_tokens, dtype=torch.float64) + 0.5
    coefficient = torch.randn(num_tokens, dtype=torch.float64)
    return head, hidden, target, temperature, coefficient


def plainly(head, hidden, target, temperature, coefficient, *, softcap=None):
    """Gradients of sum(coefficient * logp), and the log-probs."""
    head.zero_grad()
    leaf = hidden.detach().clone().requires_grad_()
    logits = head(leaf)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logp = torch.log_softmax(logits / temperature[:, None], dim=-1).gather(1, target[:, None]).squeeze(1)
    (coefficient * logp).sum().backward()
    return leaf.grad, {name: p.grad.clone() for name, p in head.named_parameters()}, logp.detach()


def fused(head, hidden, target, temperature, coefficient, *, max_logits, softcap=None, silent=()):
    """The same by the function under test; `silent` completions answer None."""
    head.zero_grad()
    seen, ranges, bounds = [], [], [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]

    def gradient_of(first, last, logp):
        ranges.append((first, last))
        seen.append(logp.detach().clone())
        if set(range(first, last)) <= set(silent):
            return None
        return coefficient[bounds[first] : bounds[last]]

    grad = backward_through_head(
        hidden,
        head,
        target,
        temperature,
        LENGTHS,
        gradient_of,
        vocab_size=V,
        max_logits=max_logits,
        softcap=softcap,
    )
    return grad, {name: p.grad for name, p in head.named_parameters()}, torch.cat(seen), ranges


@pytest.mark.parametrize("softcap", [None, 0.7])
@pytest.mark.parametrize("max_logits", [10**6, 5 * V, 4 * V, V, 1])
def test_gradients_and_log_probs_whatever_the_chunks(max_logits, softcap):
    head, hidden, target, temperature, coefficient = problem()
    expected_grad, expected_head, expected_logp = plainly(
        head, hidden, target, temperature, coefficient, softcap=softcap
    )
    grad, of_head, logp, ranges = fused(
        head, hidden, target, temperature, coefficient, max_logits=max_logits, softcap=softcap
    )
    torch.testing.assert_close(grad, expected_grad)
    torch.testing.assert_close(of_head, expected_head)
    torch.testing.assert_close(logp, expected_logp)
    assert [row for first, last in ranges for row in range(first, last)] == list(range(len(LENGTHS))), "each once"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.nn.Linear, type("Wrapped", (torch.nn.Linear,), {})])
@pytest.mark.parametrize("is_tempered", [True, False])
def test_gradients_add_up_by_hand_and_by_autograd(kind, bias, is_tempered):
    """Twice the same: the second time gradients are there already."""
    head, hidden, target, temperature, coefficient = problem(bias=bias)
    temperature = temperature if is_tempered else torch.ones_like(temperature)
    expected_grad, expected_head, _ = plainly(head, hidden, target, temperature, coefficient)
    head.__class__ = kind
    head.zero_grad()
    bounds = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    for times in (1, 2):
        grad = backward_through_head(
            *(hidden, head, target, temperature, LENGTHS),
            lambda first, last, _: coefficient[bounds[first] : bounds[last]],
            vocab_size=V,
            max_logits=5 * V,
        )
        torch.testing.assert_close(grad, expected_grad)
        for name, parameter in head.named_parameters():
            torch.testing.assert_close(parameter.grad, times * expected_head[name])


@pytest.mark.parametrize("kind", [torch.nn.Linear, type("Wrapped", (torch.nn.Linear,), {})])
def test_a_frozen_head_passes_the_gradient_on_and_gets_none(kind):
    head, hidden, target, temperature, coefficient = problem()
    expected, _, _ = plainly(head, hidden, target, temperature, coefficient)
    head.__class__ = kind
    head.requires_grad_(requires_grad=False).zero_grad()
    bounds = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    grad = backward_through_head(
        *(hidden, head, target, temperature, LENGTHS),
        lambda first, last, _: coefficient[bounds[first] : bounds[last]],
        vocab_size=V,
    )
    torch.testing.assert_close(grad, expected)
    assert all(parameter.grad is None for parameter in head.parameters())


def test_whole_completions_stay_together():
    problem_ = problem()
    assert fused(*problem_, max_logits=8 * V)[3] == [(0, 2), (2, 3), (3, 4)]
    assert fused(*problem_, max_logits=10 * V)[3] == [(0, 2), (2, 4)]


def test_what_has_no_gradient_adds_none():
    head, hidden, target, temperature, coefficient = problem()
    zeroed = coefficient.clone()
    zeroed[4:11] = 0
    expected_grad, expected_head, _ = plainly(head, hidden, target, temperature, zeroed)
    for max_logits in (8 * V, 2 * V):
        grad, of_head, *_ = fused(head, hidden, target, temperature, coefficient, max_logits=max_logits, silent=[2])
        torch.testing.assert_close(grad, expected_grad)
        torch.testing.assert_close(of_head, expected_head)


def test_a_frozen_head_still_passes_the_gradient_on():
    head, hidden, target, temperature, coefficient = problem()
    expected, *_ = plainly(head, hidden, target, temperature, coefficient)
    head.requires_grad_(requires_grad=False)
    grad, of_head, *_ = fused(head, hidden, target, temperature, coefficient, max_logits=4 * V)
    torch.testing.assert_close(grad, expected)
    assert all(gradient is None for gradient in of_head.values())


def test_bf16_computes_the_softmax_in_fp32():
    head, hidden, target, temperature, coefficient = problem(dtype=torch.bfloat16)
    _, _, logp, _ = fused(head, hidden, target, temperature.float(), coefficient.float(), max_logits=4 * V)
    expected = chunked_logprobs(hidden, head, target, temperature.float(), vocab_size=V)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, expected.detach())
