"""`motet eval TARGET`: held-out accuracy of a run's models, of a checkpoint, or of any model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from motet.cli.options import add_json, add_set, at_least_one, new_file, write_results
from motet.cli.targets import find_run, nodes_of, settings_of, settings_of_model
from motet.config import RunFile
from motet.errors import UsageError
from motet.journal import JsonLinesWriter

if TYPE_CHECKING:
    from motet.evaluation import Evaluation
    from motet.models import Policy
    from motet.tasks import Split, Task

_SPLITS = ("test", "ood", "train")
_HELD_OUT: Final[tuple[Split, ...]] = ("test", "ood")
_LONGEST: Final[Mapping[str, int]] = MappingProxyType({"running_sums": 24})
_LONGEST_OTHERWISE = 256
_SHOWN_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """One model on one split of one task, in one way.

    Attributes:
        model: its name, or its node's.
        task: name of the task.
        split: its split.
        label: "greedy", or "pass@1" where answers were sampled.
        temperature: of the sampling; 0 is greedy.
        ks: each k of pass@k that was asked for.
        result: what came of it.
    """

    model: str
    task: str
    split: str
    label: str
    temperature: float
    ks: tuple[int, ...]
    result: Evaluation

    def to_json(self) -> dict[str, object]:
        """Plain data for `--json`."""
        result = self.result
        return {
            "model": self.model,
            "task": self.task,
            "split": self.split,
            "measure": "greedy" if self.label == "greedy" else "sampled",
            "temperature": self.temperature,
            "num_completions": result.num_completions,
            **asdict(result.accuracy),
            "pass_at": {str(k): asdict(result.pass_at(k)) for k in self.ks},
            "reward": asdict(result.reward),
            "outcomes": dict(result.outcomes),
            "cut_share": result.cut_share,
        }


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "eval",
        description="Accuracy on held-out prompts: of every node of a run (at its end, or at its latest checkpoint), "
        "of one checkpoint folder of a run, or of a model. A prompt is solved by a completion with a reward of 1 or "
        "more.",
    )
    parser.add_argument("target", metavar="TARGET", help="run directory, its checkpoints/round_N, or a model")
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        help="task, named as task.name in a run file; repeatable [the run's; of a model running_sums]",
    )
    add_set(parser)
    parser.add_argument("--node", help="this node of the run only")
    parser.add_argument("--best", action="store_true", help="the run's best checkpoint (run.keep_best)")
    parser.add_argument("--split", action="append", choices=_SPLITS, help="test, ood or train; repeatable [test, ood]")
    parser.add_argument("--num-prompts", type=at_least_one, default=1024, metavar="N", help="prompts a split [1024]")
    parser.add_argument("--greedy", action="store_true", help="likeliest tokens; with --samples, both")
    parser.add_argument("--samples", type=at_least_one, metavar="N", help="sampled completions of each prompt [1]")
    parser.add_argument(
        "--k", action="append", type=at_least_one, metavar="K", help="also pass@K; repeatable [1 and --samples]"
    )
    parser.add_argument("--temperature", type=_above_zero, metavar="T", help="of the sampling [the run's, or 1]")
    parser.add_argument(
        "--max-new-tokens",
        type=at_least_one,
        metavar="N",
        help=f"longest answer [the run's; of a model {_LONGEST_OTHERWISE}, and 24 for running_sums]",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sampling [0]")
    parser.add_argument("--save", metavar="FILE", type=new_file, help="write every completion there, as JSON lines")
    parser.add_argument(
        "--show-failures",
        nargs="?",
        type=at_least_one,
        const=_SHOWN_FAILURES,
        metavar="N",
        help=f"print the first N completions of each kind of measurement that failed [{_SHOWN_FAILURES}]",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    ks = _ks(args)
    run_files, policies = _find(args)
    from motet.cli.console import make_console, working
    from motet.tasks import load_task

    tasks = [(run_file, load_task(**run_file.task.model_dump(), for_training=False)) for run_file in run_files]
    splits = [_splits(task, args.split) for _, task in tasks]
    measured: list[Measured] = []
    if args.save is not None:
        args.save.unlink(missing_ok=True)
    with working("measuring"), nullcontext() if args.save is None else JsonLinesWriter(args.save) as kept:
        for name, policy in policies:
            for (run_file, task), chosen in zip(tasks, splits, strict=True):
                for one in _measure(args, run_file, name, policy, task, chosen, ks):
                    measured.append(one)
                    if kept is not None:
                        for row in _rows(one, args.seed):
                            kept.write(row)
    from motet.cli.eval_view import failures, footnotes, results_table

    make_console().print(results_table(measured))
    print(footnotes(measured))
    if args.show_failures is not None:
        print()
        for text in failures(measured, most=args.show_failures):
            print(text)
    if args.json is not None:
        write_results(args.json, [one.to_json() for one in measured])
    return 0


def _measure(
    args: argparse.Namespace,
    run_file: RunFile,
    name: str,
    policy: Policy,
    task: Task,
    splits: Sequence[Split],
    ks: tuple[int, ...],
) -> Iterator[Measured]:
    """One model on every split of one task, in every way that was asked for."""
    from motet.evaluation import evaluate
    from motet.generation import HFGenerator

    for split in splits:
        for temperature, num_completions in _ways(args, run_file):
            result = evaluate(
                HFGenerator(policy),
                policy.tokenizer,
                task,
                split,
                num_prompts=args.num_prompts,
                max_new_tokens=args.max_new_tokens or run_file.rollout.max_new_tokens,
                temperature=temperature,
                seed=args.seed,
                num_completions=num_completions,
                num_kept=0 if args.save is None and args.show_failures is None else None,
            )
            assert result is not None
            label = "pass@1" if temperature else "greedy"
            yield Measured(name, task.name, split, label, temperature, ks if temperature else (1,), result)


def _ways(args: argparse.Namespace, run_file: RunFile) -> Iterator[tuple[float, int]]:
    """Temperature and number of completions of each measurement."""
    if args.greedy:
        yield 0.0, 1
    if args.samples is not None or args.temperature is not None or not args.greedy:
        usual = run_file.evaluation.temperature
        if usual is None or (usual == 0.0 and args.samples is not None):
            usual = run_file.rollout.temperature
        yield args.temperature or usual, args.samples or 1


def _ks(args: argparse.Namespace) -> tuple[int, ...]:
    num_samples = args.samples or 1
    ks = tuple(sorted({1, *(args.k or [num_samples])}))
    if ks[-1] > num_samples:
        raise UsageError(f"--k {ks[-1]}: needs --samples {ks[-1]} or more", code="E-CLI-02")
    return ks


def _splits(task: Task, asked: Sequence[Split] | None) -> Sequence[Split]:
    for split in asked or ():
        if not task.num_prompts(split):
            raise UsageError(f"--split {split}: task {task.name!r} has no such prompts", code="E-CLI-02")
    return list(dict.fromkeys(asked)) if asked else [split for split in _HELD_OUT if task.num_prompts(split)]


def _rows(one: Measured, seed: int) -> Iterator[Mapping[str, object]]:
    """Rows of `--save`."""
    head = {"model": one.model, "task": one.task, "split": one.split, "temperature": one.temperature, "seed": seed}
    return ({**head, **asdict(sample)} for sample in one.result.samples)


def _find(args: argparse.Namespace) -> tuple[list[RunFile], Iterator[tuple[str, Policy]]]:
    """Settings for each task, and the target's policies."""
    target = find_run(args.target)
    if target is None:
        for flag, is_given in (("--node", args.node is not None), ("--best", args.best)):
            if is_given:
                raise UsageError(f"{flag}: {args.target} is not the directory of a run", code="E-CLI-02")
        tasks = args.task or ["running_sums"]
        run_files = settings_of_model(
            args.target, tasks=tasks, overrides=args.set, max_new_tokens=_LONGEST, otherwise=_LONGEST_OTHERWISE
        )
        return run_files, _of_model(args.target, run_files[0])
    run_files = settings_of(target.run_dir, tasks=args.task, overrides=args.set)
    chosen = nodes_of(run_files[0], args.node, path=target.run_dir.path)
    folder = target.folder(best=args.best)
    from motet.node import policy_at

    return run_files, ((settings.name, policy_at(run_files[0], settings, folder)) for settings in chosen)


def _of_model(name: str, run_file: RunFile) -> Iterator[tuple[str, Policy]]:
    from motet.node import policy_of

    yield name, policy_of(run_file, run_file.node[0], trains=False)


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}; allowed: a number above 0 (--greedy is 0)")
    return value
