"""Norms and feed-forward layers that keep less for the backward pass and touch memory less often.

The classes of transformers are written in single tensor operations, each of which keeps its inputs. Here a root mean
square norm keeps its input and one number a token, and a gated feed-forward layer keeps its two projections: what lies
between is computed again in backward, at a small part of a matrix product's cost. A layer is only replaced if it
gives the same output on a trial, so an architecture that does something else keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_Activation = Callable[[Tensor], Tensor]


@torch.no_grad()
def make_lean(model: nn.Module) -> None:
    """Replace the layers of `model` that allow it, in place; parameters and their names stay."""
    for module in model.modules():
        for claims, lean in ((_looks_like_norm, _lean_norm), (_looks_like_gated, _lean_gated)):
            if claims(module):
                kind: Any = type(module)
                _replace_if_equal(module, lean(kind))


def _replace_if_equal(module: nn.Module, lean: type[nn.Module]) -> None:
    parameter = next(module.parameters())
    width = parameter.shape[-1]
    trial = torch.linspace(-3, 3, 4 * width, device=parameter.device).sin().mul(2).view(1, 4, width).to(parameter.dtype)
    expected, before = module(trial), type(module)
    module.__class__ = lean
    tolerance = 1e-5 if parameter.dtype == torch.float32 else 2e-2
    if not torch.allclose(module(trial), expected, rtol=tolerance, atol=tolerance):
        module.__class__ = before


def _looks_like_norm(module: nn.Module) -> bool:
    names = [name for name, _ in module.named_parameters()]
    return "RMSNorm" in type(module).__name__ and names == ["weight"] and epsilon_of(module) is not None


def epsilon_of(module: nn.Module) -> float | None:
    """What a norm adds below its root, by either of its names; None: it has neither."""
    value = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return value if isinstance(value, float) else None


@cache
def _lean_norm(original: Any) -> type[nn.Module]:
    # Gemma's weights are offsets from 1, and its product is rounded once.
    offset = 1.0 if original.__name__.startswith("Gemma") else 0.0

    class LeanNorm(original):  # type: ignore[misc]  # the class is only known here
        """The same norm."""

        def forward(self, hidden: Tensor) -> Tensor:
            """Normalise (..., D)."""
            output: Tensor
            if not torch.is_grad_enabled() and hidden.dtype == torch.float32:  # one call, which small models feel
                weight = self.weight + offset if offset else self.weight
                return nn.functional.rms_norm(hidden, weight.shape, weight, epsilon_of(self))
            output = _Norm.apply(hidden, self.weight, epsilon_of(self), offset)  # type: ignore[no-untyped-call]
            return output

    LeanNorm.__name__ = LeanNorm.__qualname__ = original.__name__
    return LeanNorm


class _Norm(torch.autograd.Function):
    """y = w x / sqrt(mean(x^2) + epsilon), in float32 where the model computes in less."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, epsilon: float, offset: float) -> Tensor:
        """(..., D) and (D,) -> (..., D)."""
        exact = _at_least_float32(hidden)
        scale: Tensor = torch.linalg.vector_norm(exact, dim=-1, keepdim=True).square_().div_(hidden.shape[-1])
        scale = scale.add_(epsilon).rsqrt_()
        ctx.save_for_backward(hidden, weight, scale)
        ctx.offset = offset
        normed = exact.mul(scale)
        if offset:
            return normed.mul_(_at_least_float32(weight) + offset).to(hidden.dtype)
        return normed.to(hidden.dtype).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """dx = s (w dy - n mean(w dy n)) with n = s x; dw = sum(dy n)."""
        hidden, weight, scale = ctx.saved_tensors
        gradient = _at_least_float32(gradients[0])
        normed = _at_least_float32(hidden) * scale
        by_weight = (gradient * normed).flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        by_normed = gradient * (_at_least_float32(weight) + ctx.offset)
        along = torch.linalg.vecdot(by_normed, normed).unsqueeze(-1).div_(hidden.shape[-1])
        by_hidden = by_normed.sub_(normed.mul_(along)).mul_(scale)
        return by_hidden.to(hidden.dtype), by_weight, None, None


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _looks_like_gated(module: nn.Module) -> bool:
    children = dict(module.named_children())
    return set(children) == {"gate_proj", "up_proj", "down_proj", "act_fn"} and not list(
        children["act_fn"].parameters()
    )


@cache
def _lean_gated(original: Any) -> type[nn.Module]:
    class LeanGated(original):  # type: ignore[misc]  # the class is only known here
        """The same layer."""

        def forward(self, hidden: Tensor) -> Tensor:
            """down(act(gate(x)) * up(x)), (..., D) -> (..., D)."""
            gate, up, down = self.gate_proj(hidden), self.up_proj(hidden), self.down_proj
            output: Tensor
            if not torch.is_grad_enabled():
                output = down(self.act_fn(gate) * up)
            elif type(down) is nn.Linear:
                output = _GatedDown.apply(gate, up, down.weight, down.bias, self.act_fn)  # type: ignore[no-untyped-call]
            else:  # an adapter sits on it
                output = down(_Gated.apply(gate, up, self.act_fn))  # type: ignore[no-untyped-call]
            return output

    LeanGated.__name__ = LeanGated.__qualname__ = original.__name__
    return LeanGated


class _Gated(torch.autograd.Function):
    """y = act(gate) * up; keeps gate and up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, activation: _Activation) -> Tensor:
        """(..., F) twice -> (..., F)."""
        ctx.save_for_backward(gate, up)
        ctx.activation = activation
        return activation(gate) * up

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of gate and up."""
        gate, up = ctx.saved_tensors
        by_gate, by_up, _ = _gated_backward(gate, up, ctx.activation, gradients[0])
        return by_gate, by_up, None


class _GatedDown(torch.autograd.Function):
    """y = W (act(gate) * up) + b; keeps gate and up."""

    @staticmethod
    def forward(
        ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None, activation: _Activation
    ) -> Tensor:
        """(..., F) twice, (D, F), (D,) -> (..., D)."""
        ctx.save_for_backward(gate, up, weight)
        ctx.activation = activation
        return nn.functional.linear(activation(gate).mul_(up), weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, None]:
        """Gradients of gate, up, weight and bias."""
        gate, up, weight = ctx.saved_tensors
        gradient = gradients[0]
        by_gate, by_up, product = _gated_backward(gate, up, ctx.activation, gradient @ weight)
        rows = gradient.flatten(0, -2)
        by_weight = rows.T @ product.flatten(0, -2) if ctx.needs_input_grad[2] else None
        by_bias = rows.sum(0) if ctx.needs_input_grad[3] else None
        return by_gate, by_up, by_weight, by_bias, None


def _gated_backward(
    gate: Tensor, up: Tensor, activation: _Activation, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of gate and up, and the product once more."""
    with torch.enable_grad():
        leaf = gate.detach().requires_grad_()
        active = activation(leaf)
    (by_gate,) = torch.autograd.grad(active, leaf, gradient * up)
    return by_gate, gradient * active.detach(), active.detach() * up
