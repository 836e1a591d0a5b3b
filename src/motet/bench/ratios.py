"""`bench --quick`: how much faster this repository's fast paths are than its plain ones, against stored ratios."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from motet.bench.arm import GENERATE_ARMS, LEARNER_ARMS
from motet.bench.batch import BatchKind, BatchPlan
from motet.bench.generate_setup import GenerateSetup
from motet.bench.learner_setup import LearnerSetup
from motet.bench.machine import describe_machine, now
from motet.bench.models import BenchModel
from motet.bench.process import Say, call, take_turns
from motet.bench.wire import draw_groups, measure_groups

EXPECTED = Path(__file__).with_name("expected.json")
LEAST_SHARE: Final = 0.7
"""A ratio of times may fall to this share of the stored one: machines differ, and so do their moods."""
LEAST_SHARE_OF_BYTES: Final = 0.98
"""Bytes do not depend on the machine."""
_MODEL = "llama:256x8x8192"
_KINDS: tuple[BatchKind, ...] = ("ftis", "full")


@dataclass(frozen=True, slots=True)
class Judgement:
    """One ratio beside its stored value.

    Attributes:
        name: what is compared, such as "learner/ftis".
        found: how often better the fast way is, now.
        stored: the same when it was stored; None if it never was.
        least: the smallest value that is let pass; None without a stored one.
    """

    name: str
    found: float
    stored: float | None
    least: float | None

    @property
    def slower(self) -> bool:
        """True if it fell below what is let pass."""
        return self.least is not None and self.found < self.least


def judge(found: Mapping[str, float], stored: Mapping[str, float]) -> list[Judgement]:
    """Each ratio that was found, beside its stored value.

    >>> [verdict.slower for verdict in judge({"learner/ftis": 2.0, "wire/bytes": 2.0}, {"learner/ftis": 2.8})]
    [False, False]
    >>> judge({"learner/ftis": 2.0}, {"learner/ftis": 3.0})[0].slower
    True
    """
    verdicts = []
    for name, value in found.items():
        before = stored.get(name)
        share = LEAST_SHARE_OF_BYTES if name.endswith("/bytes") else LEAST_SHARE
        verdicts.append(Judgement(name, value, before, None if before is None else share * before))
    return verdicts


def read_expected(path: Path = EXPECTED) -> dict[str, float]:
    """The stored ratios; none if there is no file."""
    if not path.exists():
        return {}
    stored: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["ratios"]
    return stored


def store_expected(result: Mapping[str, Any], path: Path = EXPECTED) -> None:
    """Keep these ratios as what is expected from now on."""
    kept = {
        "date": result["date"],
        "machine": {key: result["machine"][key] for key in ("cpu", "cores_usable", "omp_num_threads", "versions")},
        "ratios": {name: round(value, 3) for name, value in result["ratios"].items()},
    }
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def bench_quick(*, say: Say, repeats: int = 3) -> dict[str, Any]:
    """The ratios, in about two minutes: learner on a small random model, sampler on a tiny one, wire."""
    ratios: dict[str, float] = {}
    seconds: dict[str, Any] = {}
    for kind in _KINDS:
        found = _learner(kind, repeats, say)
        seconds[f"learner/{kind}"] = found
        ratios[f"learner/{kind}"] = found["plain"] / found["fast"]
    found = _sampler(repeats, say)
    seconds["generate"] = found
    ratios["generate/plain"] = found["plain"] / found["fast"]
    ratios["generate/hf"] = found["hf"] / found["fast"]
    say("wire")
    wire = measure_groups(draw_groups(49_152, 24, num_tokens=60_000, seed=0), repeats=9)
    ratios["wire/bytes"] = wire["msgpack"]["bytes_per_token"] / wire["compact"]["bytes_per_token"]
    for way in ("encode", "decode"):
        key = f"{way}_tokens_per_s"
        ratios[f"wire/{way}"] = wire["compact"][key] / wire["msgpack"][key]
    return {
        "bench": "quick",
        "date": now(),
        "machine": describe_machine(),
        "settings": {"model": _MODEL, "repeats": repeats},
        "ratios": ratios,
        "figures": {"seconds": seconds, "wire": wire},
    }


def _learner(kind: BatchKind, repeats: int, say: Say) -> dict[str, float]:
    model = BenchModel(_MODEL)
    prepared = call(
        "motet.bench.learner_arms:prepare", (model, BatchPlan(44, 24, kind=kind)), say=say, text=f"batch {kind}"
    )
    setup = LearnerSetup(model, prepared["batch"], "fp32", 4096)
    arms = {name: (LEARNER_ARMS[name], setup) for name in ("plain", "fast")}
    turns = take_turns(arms, repeats=repeats, say=say)
    return {name: statistics.median(found.seconds) for name, found in turns.items()}


def _sampler(repeats: int, say: Say) -> dict[str, float]:
    setup = GenerateSetup(BenchModel("tiny:large"), 24, 8, 8, 32, "fp32")
    turns = take_turns({name: (target, setup) for name, target in GENERATE_ARMS.items()}, repeats=repeats + 2, say=say)
    return {name: statistics.median(found.seconds) for name, found in turns.items()}
