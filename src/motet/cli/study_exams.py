"""The second examination of a study's models: on prompts that no accuracy of the page was measured on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from motet.config import Planned, StudyFile
from motet.study.rows import run_dir_of

if TYPE_CHECKING:
    from motet.study.choices import Answers
    from motet.tasks import Split, Task

_SEED: Final = 1


class _Exam(msgspec.Struct, frozen=True):
    """What is kept of one run's models.

    Attributes:
        num_prompts: that were asked for.
        solved: node to split to the share of completions that solve each prompt.
    """

    num_prompts: int
    solved: dict[str, dict[str, list[float]]]


def examine_choices(study: StudyFile, finished: Sequence[Planned]) -> Answers:
    """Answers of all models that a choice of the study is about; those of earlier calls are kept in its folder."""
    wanted: dict[str, int] = {}
    for choice in study.choice.values():
        for arm in (choice.reference, *choice.of):
            wanted[arm] = max(choice.num_prompts, wanted.get(arm, 0))
    answers: dict[tuple[str, str, int, str], dict[Split, list[float]]] = {}
    for planned in finished:
        if planned.arm in wanted:
            exam = _exam(study, planned, wanted[planned.arm])
            for node, solved in exam.items():
                answers[planned.pair, planned.arm, planned.seed, node] = solved
    return answers


def _exam(study: StudyFile, planned: Planned, num_prompts: int) -> dict[str, dict[Split, list[float]]]:
    place = study.folder / "exams" / planned.pair / planned.arm / f"seed_{planned.seed}.json"
    kept = _read(place, newer_than=run_dir_of(planned).summary)
    if kept is None or kept.num_prompts != num_prompts:
        kept = _Exam(num_prompts, _ask(planned, num_prompts))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(msgspec.json.encode(kept))
    return kept.solved  # type: ignore[return-value]


def _read(place: Path, *, newer_than: Path) -> _Exam | None:
    if not place.is_file() or place.stat().st_mtime_ns < newer_than.stat().st_mtime_ns:
        return None
    try:
        return msgspec.json.decode(place.read_bytes(), type=_Exam)
    except msgspec.DecodeError:
        return None


def _ask(planned: Planned, num_prompts: int) -> dict[str, dict[str, list[float]]]:
    from motet.cli.choose import Contender, examine
    from motet.tasks import load_task

    run, run_dir = planned.run, run_dir_of(planned)
    task = load_task(**run.task.model_dump(), for_training=False)
    folder = run_dir.latest_checkpoint()
    assert folder is not None  # a finished run has one
    usual = run.evaluation.temperature
    solved = {}
    for node in run.node:
        answers = examine(
            Contender(planned.label, run, node, folder),
            task,
            max_new_tokens=run.rollout.max_new_tokens,
            temperature=run.rollout.temperature if usual is None else usual,
            num_prompts=num_prompts,
            first=_beyond_exams(planned, task),
            seed=_SEED,
        )
        solved[node.name] = {str(split): one.solved_shares for split, one in answers.items()}
    return solved


def _beyond_exams(planned: Planned, task: Task) -> int:
    """Index of the first prompt that the run's own examinations leave; 0 where they leave none."""
    exams = planned.run.evaluation
    asked = max(exams.num_prompts, exams.final_num_prompts)
    return asked if asked < min(n for split in ("test", "ood") if (n := task.num_prompts(split))) else 0
