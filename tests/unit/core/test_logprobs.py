from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from motet.core import chunked_logprobs

N, D, V = 11, 5, 7


class CountingHead(nn.Module):
    """A linear layer that notes the shape of each of its outputs."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(V, D, generator=generator, dtype=torch.float64).to(dtype))
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, hidden_nD: Tensor) -> Tensor:
        logits_nV = hidden_nD @ self.weight.T
        self.shapes.append(tuple(logits_nV.shape))
        return logits_nV


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(N, D, generator=generator, dtype=torch.float64).requires_grad_()
    target_N = torch.randint(0, V, (N,), generator=generator)
    temperature_N = 0.5 + torch.rand(N, generator=generator, dtype=torch.float64)
    return hidden_ND, target_N, temperature_N


def plain(hidden_ND: Tensor, head: CountingHead, target_N: Tensor, temperature_N: Tensor) -> Tensor:
    logp_NV = ((hidden_ND @ head.weight.T) / temperature_N[:, None]).log_softmax(-1)
    return logp_NV[torch.arange(N), target_N]


@pytest.mark.parametrize("max_logits", [1, V, 3 * V + 2, 10 * V, N * V, 2**24])
def test_equals_the_whole_softmax_in_value_and_gradient(max_logits):
    hidden_ND, target_N, temperature_N = batch()
    head = CountingHead()
    coefficient_N = torch.linspace(-1, 2, N, dtype=torch.float64)

    expected_N = plain(hidden_ND, head, target_N, temperature_N)
    expected = torch.autograd.grad((expected_N * coefficient_N).sum(), [hidden_ND, head.weight])
    logp_N = chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V, max_logits=max_logits)
    got = torch.autograd.grad((logp_N * coefficient_N).sum(), [hidden_ND, head.weight])

    torch.testing.assert_close(logp_N, expected_N, rtol=0, atol=1e-12)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("max_logits", [1, V, 3 * V + 2, 10 * V])
def test_no_more_logits_than_allowed_exist_at_once(max_logits):
    hidden_ND, target_N, temperature_N = batch()
    head = CountingHead()
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logp_N = chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V, max_logits=max_logits)
    rows = max(1, max_logits // V)
    assert max(shape[0] for shape in head.shapes) <= rows
    assert sum(shape[0] for shape in head.shapes) == N
    assert max(saved, default=0) < N * V  # the graph keeps no whole tensor of logits between forward and backward

    head.shapes.clear()
    logp_N.sum().backward()
    assert sum(shape[0] for shape in head.shapes) == N  # backward computes each chunk once more
    assert max(shape[0] for shape in head.shapes) <= rows


def test_one_chunk_or_no_gradient_means_one_forward_pass():
    hidden_ND, target_N, temperature_N = batch()
    head = CountingHead()
    chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V).sum().backward()
    assert head.shapes == [(N, V)]
    head.shapes.clear()
    with torch.no_grad():
        logp_N = chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V, max_logits=5 * V)
    assert head.shapes == [(5, V), (5, V), (1, V)]
    assert not logp_N.requires_grad


def test_temperature_belongs_to_the_row():
    # Logits 0 and log 9: at temperature 1 the second has 9/10; at temperature 2 the odds are sqrt 9 = 3, so 3/4.
    logits_NV = torch.tensor([[1.0, 9.0], [1.0, 9.0]]).log()
    logp_N = chunked_logprobs(
        logits_NV, nn.Identity(), torch.tensor([1, 1]), torch.tensor([1.0, 2.0]), vocab_size=2, max_logits=2
    )
    assert logp_N.exp().tolist() == pytest.approx([0.9, 0.75])


def test_softcap():
    hidden_ND, target_N, temperature_N = batch()
    head = CountingHead()
    logits_NV = 3.0 * torch.tanh(hidden_ND @ head.weight.T / 3.0) / temperature_N[:, None]
    expected_N = logits_NV.log_softmax(-1)[torch.arange(N), target_N]
    logp_N = chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V, max_logits=4 * V, softcap=3.0)
    torch.testing.assert_close(logp_N, expected_N, rtol=0, atol=1e-12)


def test_the_softmax_of_a_low_precision_head_is_in_single_precision():
    hidden_ND, target_N, temperature_N = batch()
    head = CountingHead(torch.bfloat16)
    hidden_ND = hidden_ND.detach().bfloat16()
    logp_N = chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V, max_logits=2 * V)
    assert logp_N.dtype == torch.float32
    logits_NV = head(hidden_ND).double() / temperature_N[:, None]
    expected_N = logits_NV.log_softmax(-1)[torch.arange(N), target_N]
    torch.testing.assert_close(logp_N.double(), expected_N, rtol=0, atol=1e-5)


def test_nothing_to_score():
    logp_N = chunked_logprobs(torch.zeros(0, D), CountingHead(torch.float32), torch.zeros(0).long(), torch.ones(0),
                              vocab_size=V)  # fmt: skip
    assert logp_N.shape == (0,)


def test_malformed_arguments_raise():
    hidden_ND, target_N, temperature_N = batch()
    head = CountingHead()
    with pytest.raises(ValueError, match=r"\(11, 5\), \(10,\), \(11,\)"):
        chunked_logprobs(hidden_ND, head, target_N[:-1], temperature_N, vocab_size=V)
    for bad in (0.0, -1.0, math.nan):
        temperature_N[3] = bad
        with pytest.raises(ValueError, match="every temperature must be above 0"):
            chunked_logprobs(hidden_ND, head, target_N, temperature_N, vocab_size=V)
