"""The method again, naively: one sample and one token at a time, with `math` alone.

Written from the formulas, not from `motet.core`; samples are ragged lists, so there is no padding and no mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Sample:
    theta: list[float]
    old: list[float]
    gen: list[float]
    advantage: float
    is_external: bool


@dataclass
class Settings:
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    weights: str = "truncated"
    cap: float = 2.0
    level: str = "token"
    rule: str = "either"
    kl_limit_nats: float = 50.0
    kl_estimator: str = "k3"
    kl_reduction: str = "sum"


def advantages(rewards: list[float], groups: list[int], scale: str = "std") -> list[float]:
    result = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        if min(members) == max(members):
            result.append(0.0)
            continue
        mean = math.fsum(members) / len(members)
        std = math.sqrt(math.fsum((r - mean) ** 2 for r in members) / (len(members) - 1))
        result.append((reward - mean) / (std + 1e-4) if scale == "std" else reward - mean)
    return result


def weights(old: list[float], gen: list[float], s: Settings) -> list[float]:
    if s.weights == "none":
        return [1.0] * len(old)
    differences = [o - g for o, g in zip(old, gen, strict=True)]
    if s.level == "sequence":
        differences = [math.fsum(differences)] * len(old)
    ratios = [math.exp(max(-20.0, min(20.0, d))) for d in differences]
    return [min(ratio, s.cap) if s.weights == "truncated" else ratio for ratio in ratios]


def kl(old: list[float], gen: list[float], s: Settings) -> float:
    terms = []
    for o, g in zip(old, gen, strict=True):
        d = o - g
        terms.append({"k1": -d, "k2": d * d / 2, "k3": math.exp(min(d, 20.0)) - 1 - min(d, 20.0)}[s.kl_estimator])
    total = math.fsum(terms)
    return total if s.kl_reduction == "sum" else total / max(1, len(terms))


def is_kept(sample: Sample, s: Settings) -> bool:
    if not sample.is_external or s.rule == "off":
        return True
    is_far = kl(sample.old, sample.gen, s) > s.kl_limit_nats
    if s.rule == "either":
        return sample.advantage > 0 and not is_far
    return not (sample.advantage < 0 and is_far)


def loss_and_gradient(samples: list[Sample], s: Settings) -> tuple[float, list[list[float]]]:
    """The loss, and its derivative with respect to each logp_theta."""
    loss = 0.0
    gradient = []
    for sample in samples:
        row = []
        scale = 1.0 / (len(samples) * max(1, len(sample.theta)))
        for theta, old, w in zip(sample.theta, sample.old, weights(sample.old, sample.gen, s), strict=True):
            if not is_kept(sample, s):
                row.append(0.0)
                continue
            ratio = math.exp(theta - old)
            plain = ratio * sample.advantage
            clipped = max(1 - s.epsilon, min(1 + s.epsilon_high, ratio)) * sample.advantage
            loss -= scale * w * min(plain, clipped)
            row.append(-scale * w * plain if plain <= clipped else 0.0)
        gradient.append(row)
    return loss, gradient
