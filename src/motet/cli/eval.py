"""`motet eval TARGET`: held-out accuracy of a run's models, of a checkpoint, or of any model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from motet.cli.options import add_json, at_least_one, write_results
from motet.config import NodeSettings, RunFile, RunSettings, TaskSettings, load_run_file
from motet.errors import UsageError
from motet.journal import RunDir

if TYPE_CHECKING:
    from motet.evaluation import Evaluation
    from motet.models import Policy
    from motet.tasks import Split, Task

_SPLITS = ("test", "ood", "train")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "eval",
        description="Accuracy on held-out prompts: of every node of a run (at its end, or at its latest checkpoint), "
        "of one checkpoint folder of a run, or of a model.",
    )
    parser.add_argument("target", metavar="TARGET", help="run directory, its checkpoints/round_N, or a model")
    parser.add_argument("--task", help="task for a model: running_sums or a JSON-lines file (a run has its own)")
    parser.add_argument("--node", help="this node of the run only")
    parser.add_argument("--split", action="append", choices=_SPLITS, help="test, ood or train; repeatable [test, ood]")
    parser.add_argument("--num-prompts", type=at_least_one, default=1024, metavar="N", help="prompts a split [1024]")
    parser.add_argument("--greedy", action="store_true", help="likeliest tokens instead of sampling")
    parser.add_argument("--max-new-tokens", type=at_least_one, metavar="N", help="longest answer [the run's, or 24]")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling [0]")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    from rich.table import Table

    from motet.cli.console import make_console, working
    from motet.cli.swarm import percent
    from motet.tasks import load_task

    run_file, policies = _find(args)
    task = load_task(**run_file.task.model_dump())
    for split in args.split or ():
        if not task.num_prompts(split):
            raise UsageError(f"--split {split}: task {task.name!r} has no such prompts", code="E-CLI-02")
    held_out: Sequence[Split] = ("test", "ood")
    splits = args.split or [split for split in held_out if task.num_prompts(split)]
    table = Table(box=None, pad_edge=False)
    for title in ("model", "split", "% right", "prompts", "cut"):
        table.add_column(title, no_wrap=title != "model", overflow="fold")
    results: list[dict[str, object]] = []
    with working("measuring"):
        for name, split, result in _measure(args, run_file, policies, task, splits):
            accuracy = result.accuracy
            cut = f"{100 * result.cut_share:.0f} %"
            table.add_row(name, split, percent(accuracy.value, accuracy.se), str(accuracy.num_prompts), cut)
            results.append({"model": name, "split": split, **asdict(accuracy), "cut_share": result.cut_share})
    make_console().print(table)
    if args.json is not None:
        write_results(args.json, results)
    return 0


def _measure(
    args: argparse.Namespace,
    run_file: RunFile,
    policies: Iterator[tuple[str, Policy]],
    task: Task,
    splits: Sequence[Split],
) -> Iterator[tuple[str, str, Evaluation]]:
    """Every model on every split: name, split, result."""
    from motet.evaluation import evaluate
    from motet.generation import HFGenerator

    for name, policy in policies:
        for split in splits:
            result = evaluate(
                HFGenerator(policy),
                policy.tokenizer,
                task,
                split,
                num_prompts=args.num_prompts,
                max_new_tokens=args.max_new_tokens or run_file.rollout.max_new_tokens,
                temperature=0.0 if args.greedy else run_file.rollout.temperature,
                seed=args.seed,
            )
            assert result is not None
            yield name, split, result


def _find(args: argparse.Namespace) -> tuple[RunFile, Iterator[tuple[str, Policy]]]:
    """Settings and policies of the target."""
    path = Path(args.target)
    checkpoint = None
    if path.name.startswith("round_") and path.parent.name == "checkpoints":
        checkpoint, path = path, path.parent.parent
    if (path / "run.json").is_file():
        if args.task is not None:
            raise UsageError("--task: a run has its own task; leave it out", code="E-CLI-02")
        return _of_run(RunDir.open(path), checkpoint, args.node)
    if args.node is not None:
        raise UsageError(f"--node: {args.target} is not the directory of a run", code="E-CLI-02")
    if path.is_dir() and any((entry / "run.json").is_file() for entry in path.iterdir()):
        RunDir.open(path)  # says which runs lie there
    return _of_model(args.target, args.task or "running_sums")


def _of_run(run_dir: RunDir, checkpoint: Path | None, node: str | None) -> tuple[RunFile, Iterator[tuple[str, Policy]]]:
    run_file = load_run_file(run_dir.config)
    chosen = [settings for settings in run_file.node if node in (None, settings.name)]
    if not chosen:
        known = ", ".join(settings.name for settings in run_file.node)
        raise UsageError(f"--node {node}: {run_dir.path} has no such node; it has {known}", code="E-CLI-02")
    folder = checkpoint or run_dir.latest_checkpoint()
    if folder is None or not folder.is_dir():
        raise UsageError(f"{folder or run_dir.path}: no checkpoint there", code="E-RUN-05")
    return run_file, _from_checkpoint(run_file, chosen, folder)


def _from_checkpoint(run_file: RunFile, nodes: list[NodeSettings], folder: Path) -> Iterator[tuple[str, Policy]]:
    from motet.learner import load_weights
    from motet.node import policy_of

    for settings in nodes:
        policy = policy_of(run_file, settings)
        load_weights(folder / settings.name, policy)
        yield settings.name, policy


def _of_model(name: str, task: str) -> tuple[RunFile, Iterator[tuple[str, Policy]]]:
    settings = NodeSettings(name="model", model=name)
    run_file = RunFile(run=RunSettings(name="eval"), task=TaskSettings(name=task), node=(settings,))

    def load() -> Iterator[tuple[str, Policy]]:
        from motet.node import policy_of

        yield name, policy_of(run_file, settings)

    return run_file, load()
