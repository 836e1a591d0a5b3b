"""`bench learner`: one optimiser step on the same batch, by TRL, by motet's plain paths and by its fast ones."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from motet.bench.arm import LEARNER_ARMS
from motet.bench.batch import BatchKind, BatchPlan, shares
from motet.bench.learner_setup import LearnerSetup, TrlSettings, documented
from motet.bench.machine import available_bytes, describe_machine, now
from motet.bench.models import BenchModel
from motet.bench.process import Say, Turns, call, take_turns
from motet.errors import EnvironmentFault

Dtype = Literal["auto", "fp32", "bf16"]
_FLOPS_OF = {"trl": "all", "trl-docs": "all", "plain": "repeated", "fast": "needed"}


@dataclass(frozen=True, slots=True)
class LearnerBench:
    """What is measured.

    Attributes:
        model: the model.
        prompt: mean length of a prompt.
        completion: longest completion.
        prompts: prompts of the batch.
        group_size: completions of each.
        kind: what the batch is made of.
        dtype: "auto": whichever has the higher rate of matrix products here.
        repeats: measured steps of each arm.
        arms: who takes part.
        max_batch_tokens: motet's micro-batches.
        trl_rows: completions of TRL's micro-batch; None: tried out.
        seed: of weights and batch.
    """

    model: BenchModel
    prompt: int = 44
    completion: int = 24
    prompts: int = 8
    group_size: int = 8
    kind: BatchKind = "ftis"
    dtype: Dtype = "auto"
    repeats: int = 5
    arms: tuple[str, ...] = ("trl", "plain", "fast")
    max_batch_tokens: int = 4096
    trl_rows: int | None = None
    seed: int = 0


def bench_learner(bench: LearnerBench, *, say: Say, note: Say) -> dict[str, Any]:
    """Measure, and return every figure as plain data.

    Args:
        bench: what is measured.
        say: hears the progress.
        note: hears, once, what the reader should know besides.

    Raises:
        MotetError: E-BENCH-02 if none of the arms can take part, E-BENCH-03 if one breaks down, or the arm's own.
    """
    arms = _present(bench.arms, note)
    measured = measure_rates(say)
    rates = {dtype: rate["flop_per_s"] for dtype, rate in measured["rates"].items()}
    dtype = choose_dtype(bench.dtype, rates)
    plan = BatchPlan(bench.prompt, bench.completion, bench.prompts, bench.group_size, bench.kind, seed=bench.seed)
    prepared = call(
        "motet.bench.learner_arms:prepare", (bench.model, plan), say=say, text="drawing and scoring the batch"
    )
    setups, trials = _setups(bench, arms, prepared, dtype, rates, say)
    turns = take_turns(
        {arm: (LEARNER_ARMS[arm], setup) for arm, setup in setups.items()}, repeats=bench.repeats, say=say
    )
    after = {name: rate["flop_per_s"] for name, rate in measure_rates(say, (dtype,))["rates"].items()}
    rate = max(rates[dtype], after[dtype])
    tokens = prepared["batch"].num_tokens
    figures = {
        arm: _figures(found, tokens=tokens, flops=prepared["flops"], kind=_FLOPS_OF[arm], rate=rate)
        for arm, found in turns.items()
    }
    add_ratios(figures, against=("trl", "plain"))
    return {
        "bench": "learner",
        "date": now(),
        "machine": {**describe_machine(), "threads": measured["threads"], "device": measured["device"]},
        "settings": {**asdict(bench), "dtype": dtype, "arms": list(figures)},
        "rates": {"before": rates, "after": after},
        "batch": {"completion_tokens": tokens, **shares(prepared["batch"])},
        "flops": prepared["flops"],
        "parameters": prepared["parameters"],
        "trained_parameters": prepared["trained_parameters"],
        "trl_trials": trials,
        "figures": figures,
    }


def measure_rates(say: Say, dtypes: tuple[str, ...] = ("fp32", "bf16")) -> dict[str, Any]:
    """Rates of matrix products, by dtype, measured in a process of their own."""
    return call("motet.bench.clock:measure_rates", dtypes, say=say, text="measuring the rate of matrix products")


def choose_dtype(wanted: Dtype, rates: dict[str, float]) -> Literal["fp32", "bf16"]:
    """The dtype that was asked for, or the one with the higher rate.

    >>> choose_dtype("auto", {"fp32": 2.0, "bf16": 1.0})
    'fp32'
    """
    if wanted != "auto":
        return wanted
    return "bf16" if rates["bf16"] > rates["fp32"] else "fp32"


def add_ratios(figures: dict[str, dict[str, Any]], *, against: Sequence[str]) -> None:
    """To each arm's figures add how often faster it is than another, and its peak memory as a share of the other's."""
    for other in against:
        if other not in figures:
            continue
        for figure in figures.values():
            figure[f"times_as_fast_as_{other}"] = figures[other]["seconds"] / figure["seconds"]
            figure[f"peak_to_{other}"] = figure["peak"] / figures[other]["peak"]


def common_figures(turns: Turns, *, tokens: int) -> dict[str, Any]:
    """Time, rate and memory of an arm, whatever it measures. `peak` is the GPU's where there is one."""
    seconds = statistics.median(turns.seconds)
    return {
        "seconds": seconds,
        "seconds_min": min(turns.seconds),
        "seconds_all": turns.seconds,
        "parts": {name: statistics.median(all_of_it) for name, all_of_it in turns.parts.items()},
        "tokens_per_s": tokens / seconds,
        "memory_before": turns.first["memory_before"],
        "peak": turns.last.get("device_peak", turns.last["peak"]),
        "host_peak": turns.last["peak"],
        "host_peak_above_before": turns.last["peak"] - turns.first["memory_before"],
        "peak_of_steps_only": turns.first["peak_of_steps_only"],
        "threads": turns.first["threads"],
        "device": turns.first["device"],
        "settings": turns.first["settings"],
        "did": turns.last["did"],
    }


def _present(wanted: tuple[str, ...], note: Say) -> list[str]:
    """The arms whose packages are installed."""
    if importlib.util.find_spec("trl") is not None:
        return list(wanted)
    present = [arm for arm in wanted if not arm.startswith("trl")]
    if len(present) < len(wanted):
        missing = "TRL is not installed: pip install 'motet[trl]'"
        if not present:
            raise EnvironmentFault(f"{missing}; no other arm was asked for", code="E-BENCH-02")
        note(f"{missing}; the other arms run without it")
    return present


def _setups(
    bench: LearnerBench,
    arms: Sequence[str],
    prepared: dict[str, Any],
    dtype: Literal["fp32", "bf16"],
    rates: dict[str, float],
    say: Say,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What each arm is made from, and what was tried to find TRL's best settings."""
    base = LearnerSetup(bench.model, prepared["batch"], dtype, bench.max_batch_tokens)
    setups = dict.fromkeys(arms, base)
    trials: list[dict[str, Any]] = []
    num_rows = bench.prompts * bench.group_size
    if "trl-docs" in setups:
        setups["trl-docs"] = replace(base, trl=documented(num_rows))
    if "trl" in setups and bench.trl_rows is not None:
        mode: Any = "fp32" if dtype == "fp32" else "bf16-weights"
        setups["trl"] = replace(base, trl=TrlSettings(mode, bench.trl_rows, checkpointing=False))
    elif "trl" in setups:
        found = call(
            "motet.bench.trl_arm:search",
            (base, rates, available_bytes()),
            say=say,
            text="looking for TRL's best settings",
        )
        trials = found["trials"]
        setups["trl"] = replace(base, trl=found["settings"])
    return setups, trials


def _figures(turns: Turns, *, tokens: int, flops: dict[str, int], kind: str, rate: float) -> dict[str, Any]:
    figures = common_figures(turns, tokens=tokens)
    if "optimizer_s" in figures["parts"]:
        figures["parts"]["forward_backward_s"] = figures["seconds"] - figures["parts"]["optimizer_s"]
    return {
        **figures,
        "flops": flops[kind],
        "flops_counted": kind,
        "mfu": flops[kind] / (figures["seconds"] * rate),
        "mfu_of_needed": flops["needed"] / (figures["seconds"] * rate),
    }
