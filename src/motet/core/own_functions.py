"""Weights and filters that are not ours: what such a function is given, and what it must return."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.core.choices import RuleFunction, WeightFunction


def own_weights(function: WeightFunction, logp_old_BT: Tensor, logp_gen_BT: Tensor, known_BT: Tensor) -> Tensor:
    """Weights by a function of one's own; a constant of the loss, 0 where not `known_BT`.

    The function gets copies, without a graph: both log-probs in float32 or wider, 0 where not known, and `known_BT` as
    its mask. What it returns elsewhere is not looked at.

    Raises:
        ValueError: what it returns is no tensor of floats like the log-probs, or has a weight below 0 or not finite.

    Example:
        >>> logp_BT = torch.tensor([[-1.0, torch.nan]])
        >>> own_weights(lambda old, gen, mask: old - gen + 3, logp_BT, logp_BT - 1, torch.tensor([[True, False]]))
        tensor([[4., 0.]])
    """
    dtype = torch.promote_types(torch.promote_types(logp_old_BT.dtype, logp_gen_BT.dtype), torch.float32)
    old_BT, gen_BT = (torch.where(known_BT, logp_BT.detach(), 0.0).to(dtype) for logp_BT in (logp_old_BT, logp_gen_BT))
    with torch.no_grad():
        weight_BT = function(old_BT, gen_BT, known_BT.clone())
    require_weights(weight_BT, known_BT, name=name_of(function))
    return torch.where(known_BT, weight_BT, 0.0).to(dtype)


def own_keeps(function: RuleFunction, advantage_B: Tensor, kl_B: Tensor, is_external_B: Tensor) -> Tensor:
    """True where a filter of one's own keeps a sample. The function gets copies, without a graph.

    Raises:
        ValueError: what it returns is no tensor of booleans like the advantages.
    """
    with torch.no_grad():
        keep_B = function(advantage_B.detach().clone(), kl_B.detach().clone(), is_external_B.bool().clone())
    require_keeps(keep_B, advantage_B, name=name_of(function))
    return keep_B


def require_weights(weight_BT: object, known_BT: Tensor, *, name: str) -> None:
    """Raise `ValueError` unless these are weights of the tokens `known_BT`.

    >>> require_weights(torch.ones(2, 1), torch.ones(2, 3), name="mine")
    Traceback (most recent call last):
    ValueError: mine returned shape (2, 1); a weight needs (2, 3), one for each token
    """
    weight_BT = _tensor_like(weight_BT, known_BT, name=name, what="a weight", each="one for each token")
    if not weight_BT.is_floating_point():
        raise ValueError(f"{name} returned {weight_BT.dtype}; a weight needs floats")
    known = weight_BT[known_BT.bool()]
    if not bool(torch.isfinite(known).all()):
        raise ValueError(f"{name} returned a weight that is not finite")
    if bool((known < 0).any()):
        raise ValueError(f"{name} returned a weight of {known.min().item():g}; a weight needs 0 or more")


def require_keeps(keep_B: object, advantage_B: Tensor, *, name: str) -> None:
    """Raise `ValueError` unless this says of each sample whether it is kept.

    >>> require_keeps(torch.ones(2), torch.ones(2), name="mine")
    Traceback (most recent call last):
    ValueError: mine returned torch.float32; a rule needs torch.bool, true where a sample is kept
    """
    keep_B = _tensor_like(keep_B, advantage_B, name=name, what="a rule", each="one for each sample")
    if keep_B.dtype != torch.bool:
        raise ValueError(f"{name} returned {keep_B.dtype}; a rule needs torch.bool, true where a sample is kept")


def name_of(function: object) -> str:
    """What messages call a function."""
    return str(getattr(function, "__name__", type(function).__name__))


def _tensor_like(result: object, like: Tensor, *, name: str, what: str, each: str) -> Tensor:
    if not isinstance(result, Tensor):
        raise ValueError(f"{name} returned {type(result).__name__}; {what} needs a tensor")
    if result.shape != like.shape:
        msg = f"{name} returned shape {tuple(result.shape)}; {what} needs {tuple(like.shape)}, {each}"
        raise ValueError(msg)
    if result.device != like.device:
        raise ValueError(f"{name} returned a tensor on {result.device}; {what} needs one on {like.device}")
    return result
