"""`bench overlap`: rounds per second of two tiny nodes, in one process, in two, and sampling one round ahead."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from motet.bench.machine import describe_machine, now
from motet.bench.process import Say
from motet.config import load_run_file
from motet.errors import RunFailed, UsageError
from motet.journal import RunDir

ARMS: Final[dict[str, tuple[str, ...]]] = {
    "one process": (),
    "one process, ahead": ("rollout.ahead=1",),
    "own processes": ('swarm.transport="pipes"',),
    "own processes, ahead": ('swarm.transport="pipes"', "rollout.ahead=1"),
}
"""Settings of each arm on top of the run file."""

NODES = ("ann", "bob")
_POLL_S, _SAY_S = 0.01, 0.5
_RUN_FILE = """
[run]
name = "overlap"
rounds = {rounds}
dir = "{folder}"
checkpoint_every = {rounds}

[task]
name = "running_sums"

[rollout]
prompts_per_round = 32
group_size = 8
max_new_tokens = 24

[learner]
learning_rate = 5e-4

[evaluation]
every = 0
num_prompts = 1
final_num_prompts = 1

[[node]]
name = "ann"
model = "tiny:large"

[[node]]
name = "bob"
model = "tiny:large"
"""


def bench_overlap(*, say: Say, note: Say, rounds: int = 24, repeats: int = 3) -> dict[str, Any]:
    """Run `motet swarm` under each arm's settings in turn, and return every figure as plain data.

    Rounds are counted from the first that both nodes have ended to the last but one (the last has an evaluation).

    Raises:
        RunFailed: E-BENCH-03 if a run breaks down.
    """
    with tempfile.TemporaryDirectory(prefix="motet_bench_") as folder:
        run_file = Path(folder) / "run.toml"
        run_file.write_text(_RUN_FILE.format(rounds=rounds, folder=folder), encoding="utf-8")
        arms = {name: settings for name, settings in ARMS.items() if _known(run_file, name, settings, note)}
        rates: dict[str, list[float]] = {name: [] for name in arms}
        times: dict[str, dict[str, float]] = {}
        for repeat in range(repeats):
            for name, settings in arms.items():
                run_name = f"{name.replace(', ', '_').replace(' ', '_')}_{repeat}"
                run_dir = RunDir(Path(folder) / run_name)
                text = f"{name}: run {repeat + 1} of {repeats}"
                command = ["swarm", str(run_file), "--set", f'run.name="{run_name}"']
                command += [word for setting in settings for word in ("--set", setting)]
                rates[name].append(_rounds_per_s(command, run_dir, rounds, say, text))
                times[name] = _mean_times(run_dir)
    figures: dict[str, dict[str, Any]] = {
        name: {"rounds_per_s": statistics.median(found), "rounds_per_s_all": found, "times": times[name]}
        for name, found in rates.items()
    }
    for figure in figures.values():
        figure["times_as_fast_as_one_process"] = figure["rounds_per_s"] / figures["one process"]["rounds_per_s"]
    return {
        "bench": "overlap",
        "date": now(),
        "machine": describe_machine(),
        "settings": {"rounds": rounds, "repeats": repeats, "nodes": list(NODES), "run_file": _RUN_FILE},
        "figures": figures,
    }


def _known(run_file: Path, name: str, settings: Sequence[str], note: Say) -> bool:
    try:
        load_run_file(run_file, list(settings))
    except UsageError:
        note(f"left out: {name}; this version does not know {' or '.join(settings)}")
        return False
    return True


def _rounds_per_s(command: Sequence[str], run_dir: RunDir, rounds: int, say: Say, text: str) -> float:
    """Watch the journal until the round before the last is written."""
    first_at = last_at = said_at = 0.0
    with _motet(command, run_dir.path.with_suffix(".log")) as process:
        while process.poll() is None:
            done = _rounds_done(run_dir)
            at = time.perf_counter()
            if done >= 1 and not first_at:
                first_at, first_done = at, done
            if done >= rounds - 1 and not last_at:
                last_at, last_done = at, done
            if at - said_at > _SAY_S:
                said_at = at
                say(f"{text}, round {max(0, done)} of {rounds}")
            time.sleep(_POLL_S)
    if process.returncode != 0:
        raise RunFailed(f"{text} broke down: {_last_words(run_dir)}", code="E-BENCH-03")
    return (last_done - first_done) / (last_at - first_at)


def _last_words(run_dir: RunDir) -> str:
    """What the command complained of; of a traceback its last line."""
    lines = run_dir.path.with_suffix(".log").read_text(encoding="utf-8", errors="replace").splitlines() or ["nothing"]
    at = next((number for number, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1)
    is_fault = "a fault in motet" in lines[at] and at > 0
    return lines[at - 1] if is_fault else lines[at].removeprefix("error: ")


@contextmanager
def _motet(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `motet` command in a session of its own; it and its children do not outlive the block."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "motet", *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _rounds_done(run_dir: RunDir) -> int:
    """Rounds that both nodes have written to the journal."""
    try:
        text = run_dir.metrics.read_text(encoding="utf-8")
    except OSError:
        return 0
    newest = dict.fromkeys(NODES, -1)
    for row in _whole_rows(text):
        if row["node"] in newest:
            newest[row["node"]] = max(newest[row["node"]], int(row["round"]))
    return min(newest.values()) + 1


def _mean_times(run_dir: RunDir) -> dict[str, float]:
    """Mean seconds of each phase over all rounds and nodes."""
    rows = [row for row in _whole_rows(run_dir.metrics.read_text(encoding="utf-8")) if row["round"] >= 0]
    names = sorted({name for row in rows for name in row if name.startswith("time/")} - {"time/evaluate_s"})
    return {name: statistics.fmean(row.get(name, 0.0) for row in rows) for name in names}


def _whole_rows(text: str) -> list[dict[str, Any]]:
    """Rows up to the last line break: the line after it may be half written."""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]
