"""`bench generate`: the same completions sampled by `model.generate`, by motet's plain paths and by its fast ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from motet.bench.arm import GENERATE_ARMS
from motet.bench.generate_setup import GenerateSetup
from motet.bench.learner import Dtype, add_ratios, choose_dtype, common_figures, measure_rates
from motet.bench.machine import describe_machine, now
from motet.bench.models import BenchModel
from motet.bench.process import Say, take_turns


@dataclass(frozen=True, slots=True)
class GenerateBench:
    """What is measured. Attributes as those of `GenerateSetup`.

    Attributes:
        dtype: "auto": whichever has the higher rate of matrix products here.
        repeats: measured steps of each arm.
        arms: who takes part.
    """

    model: BenchModel
    prompt: int = 44
    prompts: int = 8
    group_size: int = 8
    new_tokens: int = 32
    dtype: Dtype = "auto"
    repeats: int = 5
    arms: tuple[str, ...] = ("hf", "plain", "fast")
    seed: int = 0


def bench_generate(bench: GenerateBench, *, say: Say) -> dict[str, Any]:
    """Measure, and return every figure as plain data.

    Raises:
        MotetError: E-BENCH-03 if an arm breaks down, or the arm's own.
    """
    measured = measure_rates(say)
    rates = {dtype: rate["flop_per_s"] for dtype, rate in measured["rates"].items()}
    dtype = choose_dtype(bench.dtype, rates)
    setup = GenerateSetup(
        bench.model, bench.prompt, bench.prompts, bench.group_size, bench.new_tokens, dtype, bench.seed
    )
    turns = take_turns({arm: (GENERATE_ARMS[arm], setup) for arm in bench.arms}, repeats=bench.repeats, say=say)
    figures = {arm: common_figures(found, tokens=found.last["did"]["tokens"]) for arm, found in turns.items()}
    add_ratios(figures, against=("hf", "plain"))
    return {
        "bench": "generate",
        "date": now(),
        "machine": {**describe_machine(), "threads": measured["threads"], "device": measured["device"]},
        "settings": {**asdict(bench), "dtype": dtype},
        "rates": {"before": rates},
        "figures": figures,
    }
