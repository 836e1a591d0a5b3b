"""The second examination of a study's models: on prompts that no accuracy of the page was measured on, if there are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from motet.config import Planned, StudyFile
from motet.study.rows import run_dir_of
from motet.tasks import Split

if TYPE_CHECKING:
    from motet.study.choices import Answers
    from motet.tasks import Task

_SEED: Final = 1


class _Exam(msgspec.Struct, frozen=True):
    """What is kept of one run's models.

    Attributes:
        num_prompts: that were asked for.
        solved: node to split to the share of completions that solve each prompt.
    """

    num_prompts: int
    solved: dict[str, dict[Split, list[float]]]


def examine_choices(study: StudyFile, finished: Sequence[Planned], *, at_once: int) -> Answers:
    """Answers of all models that a choice of the study is about; those of earlier calls are kept in its folder.

    Args:
        study: with its choices.
        finished: runs that are finished.
        at_once: runs whose models are examined side by side.
    """
    wanted: dict[str, int] = {}
    for choice in study.choice.values():
        for arm in (choice.reference, *choice.of):
            wanted[arm] = max(choice.num_prompts, wanted.get(arm, 0))
    examined = [planned for planned in finished if planned.arm in wanted]
    exams: dict[str, _Exam | None] = {}
    for planned in examined:
        exams[planned.label] = _read(_place(study, planned), planned, wanted[planned.arm])
    left = [planned for planned in examined if exams[planned.label] is None]
    if left:
        with ProcessPoolExecutor(min(at_once, len(left)), get_context("spawn"), _share_processors, (at_once,)) as pool:
            asked = pool.map(_ask, left, [wanted[planned.arm] for planned in left])
            for planned, answered in zip(left, asked, strict=True):
                place = _place(study, planned)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(msgspec.json.encode(answered))
                exams[planned.label] = answered
    return {
        (planned.pair, planned.arm, planned.seed, node): solved
        for planned in examined
        if (exam := exams[planned.label]) is not None
        for node, solved in exam.solved.items()
    }


def _place(study: StudyFile, planned: Planned) -> Path:
    return study.folder / "exams" / planned.pair / planned.arm / f"seed_{planned.seed}.json"


def _share_processors(at_once: int) -> None:
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // at_once))


def _read(place: Path, planned: Planned, num_prompts: int) -> _Exam | None:
    """An examination of this very run that was kept."""
    if not place.is_file() or place.stat().st_mtime_ns < run_dir_of(planned).summary.stat().st_mtime_ns:
        return None
    try:
        exam = msgspec.json.decode(place.read_bytes(), type=_Exam)
    except msgspec.DecodeError:
        return None
    return exam if exam.num_prompts == num_prompts else None


def _ask(planned: Planned, num_prompts: int) -> _Exam:
    from motet.cli.choose import Contender, examine
    from motet.tasks import load_task

    run, run_dir = planned.run, run_dir_of(planned)
    task = load_task(**run.task.model_dump(), for_training=False)
    folder = run_dir.latest_checkpoint()
    assert folder is not None  # a finished run has one
    usual = run.evaluation.temperature
    solved: dict[str, dict[Split, list[float]]] = {}
    for node in run.node:
        answers = examine(
            Contender(planned.label, run, node, folder),
            task,
            max_new_tokens=run.rollout.max_new_tokens,
            temperature=run.rollout.temperature if usual is None else usual,
            num_prompts=num_prompts,
            first=_beyond_exams(planned, task, num_prompts),
            seed=_SEED,
        )
        solved[node.name] = {split: one.solved_shares for split, one in answers.items()}
    return _Exam(num_prompts, solved)


def _beyond_exams(planned: Planned, task: Task, num_prompts: int) -> int:
    """Index of the first prompt that the run's own examinations leave; 0 where they leave too few."""
    exams = planned.run.evaluation
    asked = max(exams.num_prompts, exams.final_num_prompts)
    fewest = min(n for split in ("test", "ood") if (n := task.num_prompts(split)))
    return asked if asked + num_prompts <= fewest else 0
