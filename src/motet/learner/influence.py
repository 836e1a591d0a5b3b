"""No peer decides a step alone: its part of the summed |advantage x weight| is measured and scaled down to a limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from motet.core import DropReason, importance_weights
from motet.core.influence import sample_influence, scales_within
from motet.learner.batch import Batch
from motet.learner.method import Method


@dataclass(frozen=True, slots=True)
class Influence:
    """What each peer has of a step.

    Attributes:
        own: summed |A_i| mean_t w_it of this node's own samples.
        peers: the same of the kept samples of each peer, before scaling.
        offers: summed |A_i| of all samples of each peer: what a weight of 1 without a filter would make of them.
        scales: by what each peer's coefficients are scaled (`motet.core.influence.scales_within`).
    """

    own: float
    peers: Mapping[str, float]
    offers: Mapping[str, float]
    scales: Mapping[str, float]

    @property
    def binds(self) -> bool:
        """True if some peer is scaled."""
        return min(self.scales.values(), default=1.0) < 1

    def worth(self, peer: str) -> float | None:
        """The part of a peer's offer that has influence, at most 1; None if it offered nothing."""
        offer = self.offers[peer]
        return min(1.0, self.peers[peer] * self.scales[peer] / offer) if offer > 0 else None

    def scaled(self, batch: Batch) -> Batch:
        """The batch with the advantages of the peers' rows scaled: the loss is linear in them."""
        scale_B = [
            self.scales[peer] if external else 1.0
            for peer, external in zip(batch.peers, batch.is_external_B.tolist(), strict=True)
        ]
        return dataclasses.replace(batch, advantage_B=batch.advantage_B * torch.tensor(scale_B))

    def metrics(self) -> dict[str, float]:
        """Shares after scaling; nothing without a peer."""
        if not self.peers:
            return {}
        after = [influence * self.scales[peer] for peer, influence in self.peers.items()]
        total = self.own + sum(after)
        metrics = {
            "external/influence_max": max(after) / total if total else 0.0,
            "external/influence_scale": min(self.scales.values()),
        }
        if self.binds:
            metrics["external/influence_share"] = sum(after) / total if total else 0.0
        return metrics


def measure_influence(
    batch: Batch, logp_old_BT: torch.Tensor, reason_B: torch.Tensor, method: Method, *, limit: float
) -> Influence:
    """Influence of everybody in the kept rows of a batch whose log-probs and drop reasons are known.

    Args:
        batch: the batch.
        logp_old_BT: log-probs under our policy; NaN where a row did not go forward, which has no influence.
        reason_B: `DropReason` of each row.
        method: the loss, whose weights count.
        limit: largest share of one peer; 1 for none.
    """
    weight_BT = importance_weights(
        logp_old_BT, batch.logp_gen_BT, batch.mask_BT, kind=method.weights, cap=method.cap, level=method.level
    )
    influence_B = sample_influence(batch.advantage_B, weight_BT, batch.mask_BT)
    influence_B = torch.where(reason_B == int(DropReason.KEPT), influence_B, 0.0)
    own = float(influence_B[~batch.is_external_B].sum())
    peers = _by_peer(batch, influence_B)
    offers = _by_peer(batch, batch.advantage_B.abs())
    scale_P = scales_within(own, torch.tensor(list(peers.values()), dtype=torch.float64), limit)
    return Influence(own, peers, offers, dict(zip(peers, scale_P.tolist(), strict=True)))


def _by_peer(batch: Batch, value_B: torch.Tensor) -> dict[str, float]:
    """Sums over the external samples of each peer."""
    sums: dict[str, float] = {}
    for peer, external, value in zip(batch.peers, batch.is_external_B.tolist(), value_B.tolist(), strict=True):
        if external:
            sums[peer] = sums.get(peer, 0.0) + value
    return sums
