"""motet's own learner as an arm, on its fast paths and on its plain ones; and what is prepared for all arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motet.bench.batch import BatchPlan, draw_batch, with_log_probs
from motet.bench.clock import Parts
from motet.bench.flops import count_step
from motet.bench.learner_setup import LEARNING_RATE, LearnerSetup
from motet.bench.models import BenchModel, build_policy, size_of
from motet.learner import Learner, Method, OptimizerOptions, StepReport


class FastLearner:
    """`Learner.learn`, as a run calls it."""

    plain = False

    def __init__(self, setup: LearnerSetup) -> None:
        policy = build_policy(setup.model, plain=self.plain)
        batch = setup.batch
        self._batch = batch
        self._parts = Parts()
        self._reports: list[StepReport] = []
        self._learner = Learner(
            policy,
            method=Method(),
            optimizer=OptimizerOptions(learning_rate=LEARNING_RATE, num_steps=10_000),
            prompt_ids=lambda prompt_id: batch.prompts[prompt_id],
            precision=setup.dtype,
            max_batch_tokens=setup.max_batch_tokens,
        )
        optimizer = self._learner.optimizer
        for name in ("collect_gradients", "step"):
            setattr(optimizer, name, self._parts.timed(f"{name}_s", getattr(optimizer, name)))
        self.settings = {
            "dtype": setup.dtype,
            "masters": "fp32",
            "max_batch_tokens": setup.max_batch_tokens,
            "takes_plans": policy.takes_plans,
        }

    def step(self) -> dict[str, float]:
        """One call of `learn`; seconds of the optimiser's part."""
        self._reports.append(self._learner.learn(self._batch.own, self._batch.foreign))
        parts = self._parts.take()
        return {"optimizer_s": sum(parts.values()), **parts}

    def figures(self) -> dict[str, Any]:
        """Metrics of the first step: what was learned from, and the numbers in which plain and fast must agree."""
        wanted = ("loss/value", "optim/grad_norm", "samples/backward", "filter/dropped_share", "filter/dropped/kl")
        return {name: self._reports[0].metrics[name] for name in wanted if name in self._reports[0].metrics}


class PlainLearner(FastLearner):
    """The same with padded rows, each with its own copy of the prompt."""

    plain = True


def prepare(argument: tuple[BenchModel, BatchPlan]) -> dict[str, Any]:
    """Draw the batch, score it once with the model (for logp_gen), and count the step's floating-point operations."""
    model, plan = argument
    policy = build_policy(model, plain=True)

    @torch.no_grad()
    def log_probs(prompt: Sequence[int], token_ids: NDArray[np.uint32]) -> NDArray[np.float32]:
        completion = torch.from_numpy(token_ids.astype(np.int64)).to(policy.device)
        ids = torch.cat([torch.tensor(list(prompt), device=policy.device), completion])
        positions = torch.arange(len(ids) - 1, device=policy.device)[None]
        hidden = policy.hidden_states(ids[None, :-1], positions)[0, len(prompt) - 1 :]
        logp = torch.log_softmax(policy.logits(hidden), dim=-1).gather(1, completion[:, None])[:, 0]
        scored: NDArray[np.float32] = logp.cpu().numpy()
        return scored

    drawn = draw_batch(
        BatchPlan(plan.prompt, plan.completion, plan.prompts, plan.group_size, plan.kind, policy.vocab_size, plan.seed)
    )
    batch = with_log_probs(drawn, log_probs, seed=plan.seed)
    return {
        "batch": batch,
        "flops": count_step(batch, size_of(policy)),
        "parameters": policy.num_parameters,
        "trained_parameters": sum(parameter.numel() for parameter in policy.trainable().values()),
    }
