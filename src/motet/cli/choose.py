"""`motet choose REFERENCE RUN...`: which run's model to keep, so that nobody leaves worse."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from motet.cli.options import add_json, at_least_one, write_results
from motet.cli.targets import find_run, one_node
from motet.config import NodeSettings, RunFile, load_run_file
from motet.errors import UsageError
from motet.journal import RunDir

if TYPE_CHECKING:
    from rich.table import Table

    from motet.evaluation import Choice, Difference, Evaluation
    from motet.tasks import Split, Task

_SPLITS: Final[tuple[Split, ...]] = ("test", "ood")
_WORDS: Final[Mapping[str, str]] = {"test": "held-out", "ood": "out of distribution"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A model that may be kept.

    Attributes:
        label: as it was named.
        run_file: settings of its run.
        settings: of its node.
        folder: of its checkpoint.
    """

    label: str
    run_file: RunFile
    settings: NodeSettings
    folder: Path


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "choose",
        description="Which model of a node to keep: that of a reference run, usually trained alone, or of another run. "
        "All answer the same held-out prompts. Another than the reference is taken only if it is, with 95 % "
        "confidence, nowhere worse by more than the margin, neither on held-out prompts nor out of distribution.",
    )
    parser.add_argument("reference", metavar="REFERENCE", help="run that is kept otherwise, or its checkpoints/round_N")
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run that may take its place; the same task")
    parser.add_argument("--node", help="which node's model; may be left out where there is one node only")
    parser.add_argument(
        "--margin", type=_points, default=2.0, metavar="POINTS", help="how much worse still counts as no worse [2]"
    )
    parser.add_argument(
        "--num-prompts", type=at_least_one, default=2048, metavar="N", help="prompts a split; few prove nothing [2048]"
    )
    parser.add_argument("--greedy", action="store_true", help="likeliest tokens instead of sampled ones")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling [0]")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    contenders = [_contender(text, args.node) for text in (args.reference, *args.runs)]
    _refuse_other_tasks(contenders)
    from motet.cli.console import make_console, working
    from motet.evaluation import choose
    from motet.tasks import load_task

    first = contenders[0].run_file
    task = load_task(**first.task.model_dump(), for_training=False)
    if not any(task.num_prompts(split) for split in _SPLITS):
        raise UsageError(f"task {task.name!r} has no held-out prompts to compare models on", code="E-CLI-02")
    temperature = 0.0 if args.greedy else first.evaluation.temperature
    with working("measuring"):
        answers = [
            examine(
                contender,
                task,
                max_new_tokens=first.rollout.max_new_tokens,
                temperature=first.rollout.temperature if temperature is None else temperature,
                num_prompts=args.num_prompts,
                first=0,
                seed=args.seed,
            )
            for contender in contenders
        ]
    solved = [{split: one.solved_shares for split, one in by_split.items()} for by_split in answers]
    choice = choose(solved[0], solved[1:], margin=args.margin / 100)
    make_console().print(_table(contenders, answers, choice))
    taken = contenders[0 if choice.taken is None else choice.taken + 1]
    print(_reason(choice, taken, args.margin))
    if args.json is not None:
        write_results(args.json, _rows(contenders, answers, choice))
    return 0


def examine(
    contender: Contender,
    task: Task,
    *,
    max_new_tokens: int,
    temperature: float,
    num_prompts: int,
    first: int,
    seed: int,
) -> dict[Split, Evaluation]:
    """A model's answers to prompts of each split that the task has.

    Args:
        contender: the model.
        task: prompts and rewards.
        max_new_tokens: longest answer.
        temperature: of the sampling; 0 is greedy.
        num_prompts: of each split.
        first: index of the first prompt.
        seed: of the sampling.
    """
    from motet.evaluation import evaluate
    from motet.generation import HFGenerator
    from motet.node import policy_at

    policy = policy_at(contender.run_file, contender.settings, contender.folder)
    answers = {}
    for split in _SPLITS:
        answered = evaluate(
            HFGenerator(policy),
            policy.tokenizer,
            task,
            split,
            num_prompts=num_prompts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            num_kept=0,
            first=first,
        )
        if answered is not None:
            answers[split] = answered
    return answers


def _contender(text: str, node: str | None) -> Contender:
    target = find_run(text)
    if target is None:
        RunDir.open(Path(text))  # says what is wrong with it
        raise AssertionError("a run that can be opened is found")
    run_file = load_run_file(target.run_dir.config)
    return Contender(text, run_file, one_node(run_file, node, path=target.run_dir.path), target.folder())


def _refuse_other_tasks(contenders: Sequence[Contender]) -> None:
    reference = contenders[0]
    for other in contenders[1:]:
        if other.run_file.task != reference.run_file.task:
            raise UsageError(
                f"{other.label}: its task is not that of {reference.label}; only models of one task can be compared",
                code="E-CLI-02",
            )


def _table(contenders: Sequence[Contender], answers: Sequence[Mapping[Split, Evaluation]], choice: Choice) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    for split in answers[0]:
        table.add_column(f"{_WORDS[split]}, %", justify="right")
        table.add_column("difference", justify="right")
    table.add_column("")
    for index, (contender, by_split) in enumerate(zip(contenders, answers, strict=True)):
        cells = []
        for split, one in by_split.items():
            cells.append(f"{100 * one.accuracy.value:.1f}")
            cells.append(_words(choice.differences[index - 1][split]) if index else "")
        words = "reference" if not index else "no worse" if choice.is_safe[index - 1] else "may be worse"
        table.add_row(contender.label, *cells, words)
    return table


def _words(difference: Difference) -> str:
    return f"{100 * difference.value:+.1f} (> {100 * difference.bound:+.1f})"


def _reason(choice: Choice, taken: Contender, margin: float) -> str:
    if choice.taken is None:
        why = "no other did better and is shown to be no worse"
    else:
        why = f"it did better, and is with 95 % confidence nowhere worse by {margin:g} points"
    return f"difference: points, and the one-sided 95 % bound\ntake {taken.label} (node {taken.settings.name}): {why}"


def _rows(
    contenders: Sequence[Contender], answers: Sequence[Mapping[Split, Evaluation]], choice: Choice
) -> list[dict[str, object]]:
    """Plain data for `--json`."""
    chosen = 0 if choice.taken is None else choice.taken + 1
    differences: list[Mapping[Split, Difference]] = [{}, *choice.differences]
    return [
        {
            "run": contender.label,
            "node": contender.settings.name,
            "taken": index == chosen,
            "no_worse": choice.is_safe[index - 1] if index else None,
            "accuracy": {split: asdict(one.accuracy) for split, one in by_split.items()},
            "difference": {split: asdict(difference) for split, difference in differences[index].items()},
        }
        for index, (contender, by_split) in enumerate(zip(contenders, answers, strict=True))
    ]


def _points(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value <= 100.0:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: points of accuracy above 0")
    return value
