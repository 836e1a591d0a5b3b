"""AdamW on fp32 master weights, with a schedule, a gradient clip and a finite check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

_FIRST_SCALE = 2**16  # fp16's smallest number is about 2**-24
_LARGEST_SCALE = 2**24
_STEPS_UNTIL_LARGER = 200


class LossScale:
    """What an fp16 loss is multiplied by, so that small gradients do not become 0; 1 for other dtypes.

    Halved when a gradient overflows, doubled after 200 steps without.

    >>> scale = LossScale(torch.float16)
    >>> scale.update(finite=False)
    >>> scale.value
    32768

    Attributes:
        value: a power of two.
        steps: steps since it last changed.
    """

    def __init__(self, compute_dtype: torch.dtype) -> None:
        self._needed = compute_dtype == torch.float16
        self.value = _FIRST_SCALE if self._needed else 1
        self.steps = 0

    def update(self, *, finite: bool) -> None:
        """Note how a step went."""
        if not self._needed:
            return
        self.steps = self.steps + 1 if finite else 0
        if not finite:
            self.value = max(1, self.value // 2)
        elif self.steps == _STEPS_UNTIL_LARGER:
            self.value, self.steps = min(_LARGEST_SCALE, 2 * self.value), 0


@dataclass(frozen=True, slots=True)
class OptimizerOptions:
    """The optimiser step.

    Attributes:
        learning_rate: peak rate.
        num_steps: steps of the whole run, for the schedule.
        schedule: course of the rate after the warm-up.
        final_learning_rate: rate of the last step under "linear" and "cosine".
        warmup_steps: steps over which the rate rises linearly to its peak.
        weight_decay: decoupled decay.
        max_grad_norm: gradients of a larger norm are scaled down to it.
    """

    learning_rate: float
    num_steps: int
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_learning_rate: float = 0.0
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, ...

        >>> options = OptimizerOptions(learning_rate=1.0, num_steps=6, schedule="linear", warmup_steps=2)
        >>> [round(options.rate(step), 2) for step in range(6)]
        [0.5, 1.0, 1.0, 0.67, 0.33, 0.0]
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return self.learning_rate
        span = max(1, self.num_steps - 1 - self.warmup_steps)
        done = min(1.0, (step - self.warmup_steps) / span)
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * left


class MasterOptimizer:
    """AdamW whose weights and moments are fp32 whatever the model computes in.

    A bf16 model cannot hold a step of AdamW at small rates: the change is below its resolution. So each trained
    parameter has an fp32 master; gradients are added up in fp32 and the model gets the rounded master back.
    An fp32 model is its own master.

    Args:
        parameters: the trained parameters by name, in fp32; the caller casts the model to `compute_dtype` afterwards.
        options: rate, decay and clip.
        compute_dtype: what the model computes in.
    """

    def __init__(
        self, parameters: Mapping[str, torch.nn.Parameter], options: OptimizerOptions, *, compute_dtype: torch.dtype
    ) -> None:
        self.options = options
        self.scale = LossScale(compute_dtype)
        self.names = list(parameters)
        self._compute = list(parameters.values())
        if compute_dtype == torch.float32:
            self.masters: list[torch.Tensor] = list(self._compute)
        else:
            self.masters = [p.detach().float().clone() for p in self._compute]
        self.adamw = torch.optim.AdamW(
            self.masters, lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )

    def collect_gradients(self) -> None:
        """After each backward pass: move low-precision gradients, without their scale, into the masters'."""
        for master, parameter in zip(self.masters, self._compute, strict=True):
            if master is parameter or parameter.grad is None:
                continue
            gradient = parameter.grad.float().div_(self.scale.value)
            if master.grad is None:
                master.grad = gradient
            else:
                master.grad.add_(gradient)
            parameter.grad = None

    def take_gradients(self) -> list[torch.Tensor]:
        """The gradients collected so far, one for each parameter, which are forgotten here; 0 where there is none."""
        taken = [torch.zeros_like(m) if m.grad is None else m.grad for m in self.masters]
        self.forget_gradients()
        return taken

    def put_gradients(self, gradients: Sequence[torch.Tensor]) -> None:
        """Step with these, one for each parameter."""
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = gradient

    def adaptive_rates(self) -> list[torch.Tensor]:
        """What AdamW multiplies each entry of a gradient by, the learning rate aside; 1 before the first step."""
        _, beta = self.adamw.param_groups[0]["betas"]
        eps = self.adamw.param_groups[0]["eps"]
        rates = []
        for master in self.masters:
            state = self.adamw.state.get(master)
            if state:
                mean_square = state["exp_avg_sq"] / (1 - beta ** float(state["step"]))
                rates.append(1 / (mean_square.sqrt() + eps))
            else:
                rates.append(torch.ones_like(master))
        return rates

    def forget_gradients(self) -> None:
        """Drop the gradients collected so far."""
        self.adamw.zero_grad(set_to_none=True)

    def step(self, number: int) -> tuple[float, bool]:
        """Take step `number` with the gradients collected so far, then forget them.

        Returns:
            The gradient's norm before clipping, and whether the step was taken (False: it was not finite).
        """
        norm = torch.nn.utils.clip_grad_norm_(self.masters, self.options.max_grad_norm)
        finite = bool(torch.isfinite(norm))
        self.scale.update(finite=finite)
        if finite:
            for group in self.adamw.param_groups:
                group["lr"] = self.options.rate(number)
            self.adamw.step()
            self.publish()
        self.forget_gradients()
        return float(norm), finite

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the model."""
        for master, parameter in zip(self.masters, self._compute, strict=True):
            if master is not parameter:
                parameter.copy_(master)
