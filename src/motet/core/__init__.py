"""The maths of F-TIS: pure functions of tensors.

Knows torch and nothing else: no files, clock, random numbers, settings or records. Start with `motet.core.loss`.
Suffixes of names give shapes: B samples, T tokens of a completion, G samples of a group, K groups, N rows (tokens of
all completions in one line), D width of the hidden states, V size of the vocabulary. logp_theta, logp_old and logp_gen
are natural-log probabilities under the policy being trained, under it when the batch began, and under the sampler.
"""

from __future__ import annotations

from motet.core.advantages import group_advantages
from motet.core.choices import Estimator, Level, Reduction, Rule, RuleFunction, Scale, WeightFunction, WeightKind
from motet.core.diagnostics import loss_diagnostics
from motet.core.divergence import kl_gen_old
from motet.core.filters import DropReason, drop_reasons, keep_mask
from motet.core.importance import importance_weights
from motet.core.logprobs import chunked_logprobs
from motet.core.loss import FtisLoss, ftis_loss
from motet.core.output_layer import backward_through_head

__all__ = [
    "DropReason",
    "Estimator",
    "FtisLoss",
    "Level",
    "Reduction",
    "Rule",
    "RuleFunction",
    "Scale",
    "WeightFunction",
    "WeightKind",
    "backward_through_head",
    "chunked_logprobs",
    "drop_reasons",
    "ftis_loss",
    "group_advantages",
    "importance_weights",
    "keep_mask",
    "kl_gen_old",
    "loss_diagnostics",
]
