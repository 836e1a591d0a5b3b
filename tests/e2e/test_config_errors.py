"""What a user sees of mistakes in a run file: through the real command, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "numpy", "rich", "matplotlib")
SUMS = Path(__file__).parents[2] / "configs/sums.toml"
NODE = '\n[[node]]\nname = "a"\nmodel = "tiny:small"\n'
HEAD = '[run]\nname = "x"\n'


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    message: list[str]
    packages: set[str]


def dry_run(folder: Path, *flags: str, file: str = "run.toml") -> Outcome:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "motet", "swarm", file, "--dry-run", *flags],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return Outcome(
        done.returncode,
        done.stdout,
        [line for line in done.stderr.splitlines() if not line.startswith("import time:")],
        {line.rpartition("|")[2].strip().partition(".")[0] for line in timed},
    )


def check_mistakes(outcome: Outcome, *mistakes: str) -> None:
    """Exit code 2, one line for each mistake and two around them, no traceback, nothing heavy imported."""
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert "pydantic" in outcome.packages
    assert outcome.packages.isdisjoint(HEAVY)
    text = "\n".join(outcome.message)
    assert "Traceback" not in text
    assert "pydantic" not in text
    assert all(mistake in text for mistake in mistakes), text
    assert len(outcome.message) <= len(mistakes) + 2
    assert len(outcome.message) <= 3 * len(mistakes)
    assert outcome.message[0].startswith("error: ")
    assert outcome.message[-1].startswith("`motet explain E-CONFIG-")


@pytest.mark.parametrize(
    ("content", "mistakes"),
    [
        (
            HEAD + "[learner]\nlearning_rat = 1e-4" + NODE,
            ["run.toml:4  learner.learning_rat: unknown; did you mean learner.learning_rate?"],
        ),
        (
            HEAD + "[rollout]\nnum_generations = 8" + NODE,
            ["run.toml:4  rollout.num_generations: unknown. TRL's num_generations is rollout.group_size here"],
        ),
        (HEAD + "[method]\nbeta = 0.04" + NODE, ["method.beta: unknown. TRL's beta has no counterpart here"]),
        (HEAD + "[swarm]\nmax_off_policy_steps = 8" + NODE, ["prime-rl's max_off_policy_steps is swarm.max_lag here"]),
        (
            HEAD + "group_size = 8" + NODE,
            ["run.toml:3  run.group_size: unknown in [run]; did you mean rollout.group_size?"],
        ),
        (HEAD + "[loss]\ncap = 3" + NODE, ["run.toml:3  loss: unknown section; its settings stand in [method] here"]),
        (
            HEAD + "[rollout]\ngroup_size = 1" + NODE,
            ["run.toml:4  rollout.group_size: got 1; allowed: a whole number from 2 to 1024"],
        ),
        (HEAD + 'rounds = "300"' + NODE, ['run.toml:3  run.rounds: got "300"; allowed: a whole number from 1 up']),
        (HEAD + '[method]\nname = "ftis"' + NODE, ['method.name: got "ftis"', 'did you mean "f_tis"?']),
        (HEAD + 'method = "f_tis"' + NODE, ["run.toml:3  run.method: unknown"]),
        (
            HEAD + "[node]\nname = 'a'\nmodel = 'tiny:small'\n",
            ["run.toml:3  node: got a table; write [[node]] in double brackets"],
        ),
        (HEAD + NODE + NODE, ['run.toml:9  node.a.name: "a" names 2 nodes; every node needs a name of its own']),
        (HEAD + "[[node]]\nname = 'a'\n", ['run.toml:3  node.a.model: missing; "tiny:small", "tiny:large"']),
        (HEAD, ["run.toml  node: missing; a run file needs a table [[node]]"]),
        (HEAD + "name = 'y'" + NODE, ["run.toml:3", "this key stands twice"]),
        ("[run]\nname = sums\n" + NODE, ["run.toml:2:8: not TOML", "text needs quotes"]),
        ("learning_rate: 1.0e-5\nnum_generations: 8\n", ["run.toml:1:14: not TOML"]),
        ("", ["run.toml: empty; `motet init FILE` writes one to start from"]),
        ("run = 'x'\x00", ["run.toml:1", "not TOML"]),
        (
            HEAD + "seed = -1\n[rollout]\nmax_completion_length = 9\n[swarm]\npace = "
            "'fast'\n[learner]\nwarmup_rounds = 999" + NODE,
            [
                "run.seed: got -1",
                "rollout.max_new_tokens here",
                'swarm.pace: got "fast"',
                "learner.warmup_rounds: got 999",
            ],
        ),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, content: str, mistakes: list[str]) -> None:
    (tmp_path / "run.toml").write_text(content, encoding="utf-8")
    check_mistakes(dry_run(tmp_path), *mistakes)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (
            "rollout.group_szie=4",
            "--set rollout.group_szie=4  rollout.group_szie: unknown; did you mean rollout.group_size?",
        ),
        (
            "rollout.group_size=lots",
            '--set rollout.group_size=lots  rollout.group_size: got "lots"; allowed: a whole number',
        ),
        ("group_size=4", "--set group_size=4: write it as section.key=value"),
        ("node.b.model=x", '--set node.b.model=x: no node "b"; write node.NAME.key=value with NAME one of a'),
    ],
)
def test_mistakes_in_flags(tmp_path: Path, flag: str, says: str) -> None:
    (tmp_path / "run.toml").write_text(HEAD + NODE, encoding="utf-8")
    check_mistakes(dry_run(tmp_path, "--set", flag), says)


def test_a_mistyped_file_name(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(HEAD + NODE, encoding="utf-8")
    check_mistakes(dry_run(tmp_path, file="runn.toml"), "runn.toml: no such file; did you mean run.toml?")


def test_a_folder(tmp_path: Path) -> None:
    check_mistakes(dry_run(tmp_path, file="."), ".: a folder, not a run file")


def test_a_dry_run_prints_the_resolved_file_and_reads_it_back(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(SUMS.read_text(encoding="utf-8"), encoding="utf-8")
    first = dry_run(tmp_path, "--set", "rollout.group_size=16")
    assert (first.code, first.message) == (0, [])
    assert first.packages.isdisjoint(HEAVY)
    assert "group_size = 16\n" in first.stdout
    assert "max_grad_norm = 1.0\n" in first.stdout
    (tmp_path / "again.toml").write_text(first.stdout, encoding="utf-8")
    assert dry_run(tmp_path, file="again.toml").stdout == first.stdout
