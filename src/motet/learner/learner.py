"""One optimiser step from one round's groups."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

import torch

from motet.core import DropReason, drop_reasons, loss_diagnostics
from motet.errors import RunFailed
from motet.learner.batch import Batch, build_batch
from motet.learner.gradient import backward_rows
from motet.learner.influence import Influence, measure_influence
from motet.learner.layout import micro_batches, rows_by_prompt
from motet.learner.method import Method
from motet.learner.optimizer import MasterOptimizer, OptimizerOptions
from motet.learner.trust import Gradient, GradientTrust
from motet.models import Policy
from motet.records import Group

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_MAX_SKIPPED_IN_A_ROW = 10
_ENOUGH_TOKENS = 1024  # larger matrices are no faster on a processor; what they hold leaves its cache


@dataclass(frozen=True, slots=True)
class PeerUse:
    """What became of one peer's completions in a step.

    Attributes:
        kept: completions that the filter let through.
        dropped: completions dropped, by reason.
        worth: the part of their summed |advantage| that was learned from, by weight: 0 nothing, 1 as much as of own
            ones; None if they had no advantage.
    """

    kept: int
    dropped: Mapping[str, int]
    worth: float | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one call of `Learner.learn` did.

    Attributes:
        metrics: numbers by metric name.
        uses: what became of each peer's completions.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    uses: Mapping[str, PeerUse] = field(default_factory=dict)


@dataclass(slots=True)
class _Judged:
    """What is known of each row of a batch so far.

    Attributes:
        logp_old_BT: log-probs under the policy when the batch began; NaN where a row did not go forward.
        reason_B: `DropReason` of each.
    """

    logp_old_BT: torch.Tensor
    reason_B: torch.Tensor


class Counters(TypedDict):
    """What a learner counts, for a checkpoint."""

    rounds: int
    policy_step: int
    skipped_in_a_row: int
    loss_scale: NotRequired[int]
    steps_at_loss_scale: NotRequired[int]
    trust: NotRequired[dict[str, list[float]]]


class Learner:
    """Turns groups into optimiser steps of one policy.

    Args:
        policy: the model to train.
        method: the loss.
        optimizer: the optimiser's options.
        prompt_ids: own ids of the prompt with a given id.
        joined: horizontal collaboration: groups of one prompt and round are shares of one group.
        precision: what forward and backward compute in; casts the policy. Master weights are fp32 under all.
        max_batch_tokens: tokens of a micro-batch; bounds memory, changes no result.
        max_influence: largest share of a step that one peer may have (`motet.core.influence.scales_within`); None: no
            limit. A step in which it binds is computed twice: what everybody weighs is known after the first time.
        trust: learn from each peer as far as its gradient agrees with the node's own; then the loss is a mean over the
            node's own completions. None: from all alike.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        method: Method,
        optimizer: OptimizerOptions,
        prompt_ids: Callable[[str], Sequence[int]],
        joined: bool = False,
        precision: Literal["fp32", "bf16", "fp16"] = "fp32",
        max_batch_tokens: int = 4096,
        max_influence: float | None = None,
        trust: GradientTrust | None = None,
    ) -> None:
        self.policy = policy
        self.method = method
        dtype = _DTYPES[precision]
        self.optimizer = MasterOptimizer(policy.trainable(), optimizer, compute_dtype=dtype)
        policy.cast(dtype)
        self._prompt_ids = prompt_ids
        self._joined = joined
        self._max_batch_tokens = max_batch_tokens
        self._max_influence = 1.0 if max_influence is None else max_influence
        self._trust = trust
        self._rounds = 0
        self._policy_step = 0
        self._skipped_in_a_row = 0

    @property
    def policy_step(self) -> int:
        """Optimiser steps taken so far."""
        return self._policy_step

    def counters(self) -> Counters:
        """Plain data for a checkpoint."""
        counters: Counters = {
            "rounds": self._rounds,
            "policy_step": self._policy_step,
            "skipped_in_a_row": self._skipped_in_a_row,
            "loss_scale": self.optimizer.scale.value,
            "steps_at_loss_scale": self.optimizer.scale.steps,
        }
        return counters if self._trust is None else {**counters, "trust": self._trust.state()}

    def restore_counters(self, counters: Counters) -> None:
        """Take over the counters of a checkpoint. Raises KeyError, TypeError or ValueError if they are not such."""
        self._rounds = int(counters["rounds"])
        self._policy_step = int(counters["policy_step"])
        self._skipped_in_a_row = int(counters["skipped_in_a_row"])
        scale = self.optimizer.scale
        scale.value = int(counters.get("loss_scale", scale.value))
        scale.steps = int(counters.get("steps_at_loss_scale", scale.steps))
        if self._trust is not None:
            self._trust.restore(counters.get("trust", {}))

    def learn(self, own: Sequence[Group], foreign: Sequence[Group]) -> StepReport:
        """Take one optimiser step, or none if nothing is left to learn from.

        Rows that cannot be learned from get no forward pass: groups without variance, and what the filter drops
        whatever its KL. They count in the loss's denominator all the same. Without any row left the optimiser does
        not step: AdamW would move the weights by its momentum alone.

        Raises:
            RunFailed: E-LEARN-01 after ten steps in a row whose gradient was not finite.
        """
        number = self._rounds
        self._rounds += 1
        if not own and not foreign:
            return StepReport(metrics={"optim/skipped": 1.0})
        batch = build_batch(
            own,
            foreign,
            prompt_ids=self._prompt_ids,
            joined=self._joined,
            scale_rewards=self.method.scale_rewards,
            mask_truncated=self.method.truncated == "mask",
        )
        judged = _Judged(torch.full_like(batch.logp_gen_BT, torch.nan), _dropped_unseen(batch, self.method))
        learned_B = (judged.reason_B == int(DropReason.KEPT)) & (batch.advantage_B != 0)
        if self._trust is None:
            influence, metrics = self._gradient(batch, learned_B, judged)
        else:
            influence, metrics = self._trusted_gradient(batch, learned_B, judged, self._trust)
        learned_B &= (judged.reason_B == int(DropReason.KEPT)) & (influence.scaled(batch).advantage_B != 0)
        metrics |= {"samples/backward": float(learned_B.sum()), "optim/skipped": 1.0}
        if bool(learned_B.any()):
            metrics |= self._step(number)
        self.optimizer.forget_gradients()
        metrics |= _batch_metrics(batch)
        metrics |= loss_diagnostics(
            judged.logp_old_BT,
            batch.logp_gen_BT,
            batch.mask_BT,
            batch.advantage_B,
            batch.is_external_B,
            judged.reason_B,
            batch.group_B,
            weights=self.method.weights,
            cap=self.method.cap,
            level=self.method.level,
        )
        metrics |= influence.metrics()
        return StepReport(metrics=metrics, uses=_uses(batch, judged.reason_B, influence))

    def _gradient(self, batch: Batch, rows_B: torch.Tensor, judged: _Judged) -> tuple[Influence, dict[str, float]]:
        """The gradient of `rows_B`, with nobody beyond the limit of influence; who has how much of it, and metrics."""
        metrics = self._add_up(batch, rows_B, judged, self.method, denominator=len(batch))
        influence = self._influence(batch, judged)
        if influence.binds:
            self.optimizer.forget_gradients()
            scaled = influence.scaled(batch)
            rows_B = rows_B & (judged.reason_B == int(DropReason.KEPT)) & (scaled.advantage_B != 0)
            method = dataclasses.replace(self.method, rule="off")  # by the advantages before they were scaled
            metrics = self._add_up(scaled, rows_B, judged, method, denominator=len(batch))
        return influence, metrics

    def _trusted_gradient(
        self, batch: Batch, rows_B: torch.Tensor, judged: _Judged, trust: GradientTrust
    ) -> tuple[Influence, dict[str, float]]:
        """The same with each peer's part as far as it is trusted. Without a gradient of one's own there is none."""
        own_B, odd_B = ~batch.is_external_B, batch.group_B % 2 == 1
        parts = [own_B & ~odd_B, own_B & odd_B]
        peers = list(dict.fromkeys(p for p, own in zip(batch.peers, own_B.tolist(), strict=True) if not own))
        parts += [~own_B & torch.tensor([name == peer for name in batch.peers]) for peer in peers]
        found: list[dict[str, float]] = []

        def gradient_of(part_B: torch.Tensor) -> Gradient:
            found.append(
                self._add_up(batch, rows_B & part_B, judged, self.method, denominator=max(1, int(own_B.sum())))
            )
            return self.optimizer.take_gradients()

        first, second, *theirs = parts
        total = trust.combine(
            (gradient_of(first), gradient_of(second)),
            ((peer, gradient_of(part_B)) for peer, part_B in zip(peers, theirs, strict=True)),
            self.optimizer.adaptive_rates(),
        )
        self.optimizer.put_gradients(total)
        teaches = bool((rows_B & own_B).any())
        scales = {peer: trust.share(peer) if teaches else 0.0 for peer in peers}
        num_tokens = [int(batch.length_B[rows_B & part_B].sum()) for part_B in parts]
        counted = [(one, n, s) for one, n, s in zip(found, num_tokens, (1, 1, *scales.values()), strict=True) if one]
        metrics = {
            "loss/value": sum(scale * one["loss/value"] for one, _, scale in counted),
            "clip/share": sum(n * one["clip/share"] for one, n, _ in counted) / max(1, sum(num_tokens)),
        }
        return dataclasses.replace(self._influence(batch, judged), scales=scales), metrics if counted else {}

    def _influence(self, batch: Batch, judged: _Judged) -> Influence:
        return measure_influence(batch, judged.logp_old_BT, judged.reason_B, self.method, limit=self._max_influence)

    def _add_up(
        self, batch: Batch, rows_B: torch.Tensor, judged: _Judged, method: Method, *, denominator: int
    ) -> dict[str, float]:
        """Add up the gradient over micro-batches of `rows_B`; fills in their logp_old and the filter's reasons."""
        pending_B = batch.is_external_B & (method.rule != "off")
        packed = self.policy.takes_plans
        in_order = rows_by_prompt(batch, rows_B, last_B=pending_B)
        slices = micro_batches(
            batch,
            in_order,
            max_tokens=self._max_batch_tokens,
            packed=packed,
            enough_tokens=_ENOUGH_TOKENS if self.policy.device.type == "cpu" else None,
        )
        loss, num_clipped, num_tokens = 0.0, 0, 0
        scale = self.optimizer.scale.value
        for rows in slices:
            found = backward_rows(self.policy, batch, rows, method, denominator=denominator, scale=scale)
            self.optimizer.collect_gradients()
            judged.logp_old_BT[rows] = found.logp_old_nT.to(judged.logp_old_BT)
            judged.reason_B[rows] = found.reason_n.cpu()
            loss += found.loss
            num_clipped += found.num_clipped
            num_tokens += int(batch.length_B[rows].sum())
        return {"loss/value": loss, "clip/share": num_clipped / num_tokens} if slices else {}

    def _step(self, number: int) -> dict[str, float]:
        norm, taken = self.optimizer.step(number)
        self._skipped_in_a_row = 0 if taken else self._skipped_in_a_row + 1
        if self._skipped_in_a_row >= _MAX_SKIPPED_IN_A_ROW:
            raise RunFailed(
                f"{self.policy.label}: the gradient was not finite in {_MAX_SKIPPED_IN_A_ROW} steps in a row; "
                'lower learner.learning_rate, or use learner.precision = "fp32"',
                code="E-LEARN-01",
            )
        self._policy_step += taken
        return {
            "optim/grad_norm": norm,
            "optim/learning_rate": self.optimizer.options.rate(number),
            "optim/skipped": float(not taken),
        }


def _dropped_unseen(batch: Batch, method: Method) -> torch.Tensor:
    """`DropReason` of what the filter drops whatever its KL, which needs no forward pass; all others count as kept.

    A rule of the user's own may keep a completion for its KL, so it drops nothing unseen. Only at an advantage of 0,
    where a completion teaches nothing either way, its word on a KL of 0 is what is counted.
    """
    reason_B = drop_reasons(batch.advantage_B, torch.zeros(len(batch)), batch.is_external_B, rule=method.rule)
    return torch.where(batch.advantage_B == 0, reason_B, 0) if callable(method.rule) else reason_B


def _batch_metrics(batch: Batch) -> dict[str, float]:
    own_B = ~batch.is_external_B
    metrics = {"reward/mean": float(batch.reward_B.mean())}
    if bool(own_B.any()):
        metrics["reward/own_mean"] = float(batch.reward_B[own_B].mean())
        metrics["completion/length_mean"] = float(batch.length_B[own_B].double().mean())
        own = [r for r, is_own in zip(batch.rollouts, own_B.tolist(), strict=True) if is_own]
        metrics["completion/cut_share"] = sum(r.finish_reason == "length" for r in own) / len(own)
    if not bool(own_B.all()):
        metrics["reward/external_mean"] = float(batch.reward_B[batch.is_external_B].mean())
    return metrics


def _uses(batch: Batch, reason_B: torch.Tensor, influence: Influence) -> dict[str, PeerUse]:
    """Completions of a peer that is scaled to nothing are dropped: nothing was learned from them."""
    kept: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = {}
    for peer, is_external, reason in zip(batch.peers, batch.is_external_B.tolist(), reason_B.tolist(), strict=True):
        if not is_external:
            continue
        counts = dropped.setdefault(peer, Counter())
        if reason == int(DropReason.KEPT) and influence.scales[peer] > 0:
            kept[peer] += 1
        elif reason == int(DropReason.KEPT):
            counts["influence"] += 1
        else:
            counts[DropReason(reason).name.lower()] += 1
    return {peer: PeerUse(kept[peer], counts, influence.worth(peer)) for peer, counts in dropped.items()}
