"""How much of a step comes from whom, and the scales that keep anybody's part within bounds."""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDING = 1e-9


def sample_influence(advantage_B: Tensor, weight_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """|A_i| mean_t w_it of each sample: the size of its coefficients in the loss; shape (B,), float64.

    >>> sample_influence(torch.tensor([-2.0]), torch.tensor([[1.0, 0.5, 0.0]]), torch.tensor([[1, 1, 0]]))
    tensor([1.5000], dtype=torch.float64)
    """
    mean_B = weight_BT.double().sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
    return advantage_B.double().abs() * mean_B


def scales_within(own: float, influence_P: Tensor, limit: float) -> Tensor:
    """By what to scale each peer's coefficients, so that none has more than `limit` of the step; shape (P,), 0 to 1.

    With I_o and I_p the influences of this node and of each peer, the scales s_p <= 1 are the largest with

        s_p I_p <= limit * ( I_o + sum_q s_q I_q )        for each peer p

    so the share is that *after* scaling of the total *after* scaling. Own samples are never scaled, nor is a peer
    within the limit. All that are scaled end with one influence c; with k of them, and U the sum of the others,

        c = limit * (I_o + U + k c)        c = limit * (I_o + U) / (1 - k limit)

    Where nothing else teaches in a step (own groups without variance, say), one peer would have all of it whatever the
    scale: then it is 0, and so with k peers as long as k * limit < 1. A limit of 1 scales nothing.

    Args:
        own: I_o.
        influence_P: I_p, float64, finite, 0 or more.
        limit: largest share, above 0.

    >>> influence = torch.tensor([6.0, 1.0, 0.0], dtype=torch.float64)
    >>> scales_within(2.0, influence, 0.5)
    tensor([0.5000, 1.0000, 1.0000], dtype=torch.float64)
    >>> scales_within(0.0, influence[:1], 0.5), scales_within(2.0, influence, 1.0)
    (tensor([0.], dtype=torch.float64), tensor([1., 1., 1.], dtype=torch.float64))
    """
    scale_P = torch.ones_like(influence_P)
    sorted_P, order_P = influence_P.sort(descending=True)
    rest = own + float(influence_P.sum())
    if len(influence_P) == 0 or float(sorted_P[0]) <= limit * rest * (1 + _ROUNDING):
        return scale_P
    for k in range(1, len(influence_P) + 1):
        rest = own + float(sorted_P[k:].sum())
        ceiling = limit * rest / max(1 - k * limit, _ROUNDING)  # the loop ends before 1 - k * limit is 0 or less
        largest_other = float(sorted_P[k]) if k < len(sorted_P) else 0.0
        if ceiling >= largest_other:
            break
    scaled = order_P[:k]
    scale_P[scaled] = (ceiling / influence_P[scaled]).clamp(max=1.0)
    return scale_P
