"""The second examination of a study's models: other prompts than those of its accuracies, as far as a task has more."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from motet.config import Planned, StudyFile
from motet.errors import MotetError
from motet.study.rows import run_dir_of
from motet.tasks import Split

if TYPE_CHECKING:
    from motet.study.choices import Answers
    from motet.tasks import Task

_SEED: Final = 1
_ENOUGH: Final = 200


class _Exam(msgspec.Struct, frozen=True):
    """What is kept of one run's models.

    Attributes:
        first: index of the first prompt that was asked.
        num_prompts: how many were to be asked.
        solved: node to split to the share of completions that solve each prompt.
    """

    first: int
    num_prompts: int
    solved: dict[str, dict[Split, list[float]]]


def examine_choices(study: StudyFile, finished: Sequence[Planned], *, at_once: int) -> Answers:
    """Answers of all models that a choice of the study is about; those of earlier calls are kept in its folder.

    A run whose models cannot be examined is told of, and left out.

    Args:
        study: with its choices.
        finished: runs that are finished.
        at_once: runs whose models are examined side by side.
    """
    arms = {arm for choice in study.choice.values() for arm in (choice.reference, *choice.of)}
    examined = [planned for planned in finished if planned.arm in arms]
    if not examined:
        return {}
    beyond = max(_num_asked(planned) for planned in examined)
    num_prompts = max(choice.num_prompts for choice in study.choice.values())
    exams = {planned.label: _read(_place(study, planned), planned, beyond, num_prompts) for planned in examined}
    left = [planned for planned in examined if exams[planned.label] is None]
    with ProcessPoolExecutor(min(at_once, len(examined)), get_context("spawn"), _share_processors, (at_once,)) as pool:
        asked = [pool.submit(_ask, planned, beyond, num_prompts) for planned in left]
        try:
            for number, (planned, future) in enumerate(zip(left, asked, strict=True), 1):
                answered = _answer_of(future)
                if isinstance(answered, str):
                    print(f"note: {planned.label} has no part in a choice: {answered}", file=sys.stderr)
                    continue
                place = _place(study, planned)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(msgspec.json.encode(answered))
                exams[planned.label] = answered
                print(f"examined={planned.label} for the choices done={number}/{len(left)}", file=sys.stderr)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {
        (planned.pair, planned.arm, planned.seed, node): solved
        for planned in examined
        if (exam := exams[planned.label]) is not None
        for node, solved in exam.solved.items()
    }


def _answer_of(future: Future[_Exam | str]) -> _Exam | str:
    try:
        return future.result()
    except BrokenProcessPool:
        return "its process was killed, perhaps for want of memory"


def _num_asked(planned: Planned) -> int:
    """Prompts of each split that a run's own examinations ask."""
    return max(planned.run.evaluation.num_prompts, planned.run.evaluation.final_num_prompts)


def _place(study: StudyFile, planned: Planned) -> Path:
    return study.folder / "exams" / planned.pair / planned.arm / f"seed_{planned.seed}.json"


def _share_processors(at_once: int) -> None:
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // at_once))


def _read(place: Path, planned: Planned, beyond: int, num_prompts: int) -> _Exam | None:
    """An examination of this very run that was kept."""
    if not place.is_file() or place.stat().st_mtime_ns < run_dir_of(planned).summary.stat().st_mtime_ns:
        return None
    try:
        exam = msgspec.json.decode(place.read_bytes(), type=_Exam)
    except msgspec.DecodeError:
        return None
    return exam if exam.first in (0, beyond) and exam.num_prompts == num_prompts else None


def _ask(planned: Planned, beyond: int, num_prompts: int) -> _Exam | str:
    """The examination, or why there is none."""
    from motet.cli.choose import Contender, examine
    from motet.tasks import load_task

    run, run_dir = planned.run, run_dir_of(planned)
    folder = run_dir.latest_checkpoint()
    if folder is None:
        return f"{run_dir.path} has no checkpoint any more"
    usual = run.evaluation.temperature
    solved: dict[str, dict[Split, list[float]]] = {}
    try:
        task = load_task(**run.task.model_dump(), for_training=False)
        first = _first(task, beyond, num_prompts)
        for node in run.node:
            answers = examine(
                Contender(planned.label, run, node, folder),
                task,
                max_new_tokens=run.rollout.max_new_tokens,
                temperature=run.rollout.temperature if usual is None else usual,
                num_prompts=num_prompts,
                first=first,
                seed=_SEED,
            )
            solved[node.name] = {split: one.solved_shares for split, one in answers.items()}
    except MotetError as error:
        return str(error)
    return _Exam(first, num_prompts, solved)


def _first(task: Task, beyond: int, num_prompts: int) -> int:
    """Index of the first prompt that no examination of the runs has asked; 0 where too few are left."""
    fewest = min((n for split in ("test", "ood") if (n := task.num_prompts(split))), default=0)
    return beyond if beyond + min(num_prompts, _ENOUGH) <= fewest else 0
