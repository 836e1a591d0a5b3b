"""`motet study FILE`: a matrix of runs, two at a time, and one page that says which claims they show."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.cli.claim import locked
from motet.cli.console import can_redraw, make_console, working
from motet.cli.options import add_set, at_least_one, new_file
from motet.config import Planned, StudyFile, dump_run_file, load_study_file, merged, plan_runs
from motet.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from motet.cli.study_view import StudyView
    from motet.cli.workers import Job, Workers

_POLL_S = 0.5
_WORKERS = 2
_MOST_NAMED = 3


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "study",
        description="Train every pair of models under every arm of a study file, several seeds each, and write "
        "study.md (verdicts, tables, curves) and study.json (one row for each run and node) beside the runs. The same "
        "command continues an interrupted study; runs that are finished are not repeated.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="study file (TOML), such as configs/study/sums.toml")
    parser.add_argument("--pair", action="append", metavar="NAME", help="only this pair; repeatable")
    parser.add_argument("--arm", action="append", metavar="NAME", help="only this arm; repeatable")
    parser.add_argument("--seeds", type=at_least_one, metavar="N", help="only the first N seeds")
    parser.add_argument(
        "--workers", type=at_least_one, default=_WORKERS, metavar="N", help=f"runs side by side [{_WORKERS}]"
    )
    parser.add_argument(
        "--page", type=new_file, metavar="FILE", help="write the page there, and beside it its numbers (.json)"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs, and stop")
    add_set(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    study = load_study_file(args.file)
    everything = plan_runs(study, source=args.file, overrides=args.set)
    chosen = _chosen(everything, args)
    from motet.study.rows import is_finished

    left = [planned for planned in chosen if not is_finished(planned)]
    if args.dry_run:
        for planned in chosen:
            print(f"{planned.label}{'' if planned in left else '  finished'}")
        print(f"{len(left)} of {len(chosen)} runs to do", file=sys.stderr)
        _refuse_other_settings(left)
        return 0
    _refuse_other_settings(left)
    with locked(study.folder / ".lock", of=study.folder, or_else="use another study.name"):
        return _carry_out(args, study, everything, chosen)


def _carry_out(
    args: argparse.Namespace, study: StudyFile, everything: Sequence[Planned], chosen: Sequence[Planned]
) -> int:
    """Train what is left, the replays last, and write the page of all that is finished then."""
    from motet.study.rows import is_finished, run_dir_of

    left = [planned for planned in chosen if not is_finished(planned)]
    began = time.monotonic()
    live = [planned for planned in left if planned.archive is None]
    failed = _train(args, study, live, chosen, began)
    sources = {run_dir_of(planned).path for planned in everything if planned.archive is None and is_finished(planned)}
    replays = [planned for planned in left if planned.archive in sources]
    failed += _train(args, study, replays, chosen, began)
    if waiting := len(left) - len(live) - len(replays):
        print(f"{waiting} replays wait for the runs that they learn from", file=sys.stderr)
    if any(map(is_finished, everything)):
        _write(args, study, everything)
    if failed:
        reasons = "; ".join(f"{job.name}: {job.last_words()} ({job.log})" for job in failed[:_MOST_NAMED])
        raise RunFailed(
            f"{len(failed)} of {len(chosen)} runs stopped before their end; the same command tries them again: "
            f"{reasons}",
            code="E-STUDY-05",
        )
    return 0


def _chosen(everything: Sequence[Planned], args: argparse.Namespace) -> list[Planned]:
    """The slice that was asked for."""
    for flag, asked, known in (
        ("--pair", args.pair or [], {planned.pair for planned in everything}),
        ("--arm", args.arm or [], {planned.arm for planned in everything}),
    ):
        for name in asked:
            if name not in known:
                raise UsageError(f"{flag} {name}: the study has {', '.join(sorted(known))}", code="E-CLI-02")
    seeds = sorted({planned.seed for planned in everything})[: args.seeds]
    chosen = [
        planned
        for planned in everything
        if planned.seed in seeds
        and (not args.pair or planned.pair in args.pair)
        and (not args.arm or planned.arm in args.arm)
    ]
    if not chosen:
        raise UsageError("the study has no run of these pairs, arms and seeds together", code="E-CLI-02")
    return chosen


def _refuse_other_settings(left: Sequence[Planned]) -> None:
    """Before hours of work: what lies where a run belongs must be that run, unless it never came to a checkpoint."""
    from motet.study.rows import has_begun, other_settings, run_dir_of

    for planned in left:
        if has_begun(planned) and (differences := other_settings(planned)):
            raise UsageError(
                f"{run_dir_of(planned).path} holds a run of other settings ({'; '.join(differences[:3])}); delete that "
                f"folder to train it anew, or use another study.name",
                code="E-STUDY-04",
            )


def _train(
    args: argparse.Namespace, study: StudyFile, left: Sequence[Planned], chosen: Sequence[Planned], began: float
) -> list[Job]:
    """Do the runs that are left of those that were chosen; returns those that failed."""
    if not left:
        return []
    from motet.cli.study_view import StudyView
    from motet.cli.workers import Job, Workers
    from motet.study.rows import is_finished

    jobs = []
    for planned in left:
        place = Path(planned.pair) / planned.arm / f"seed_{planned.seed}"
        if planned.archive is not None:
            place /= planned.run.run.name
        file = study.folder / "files" / f"{place}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dump_run_file(planned.run), encoding="utf-8")
        jobs.append(Job(planned.label, _verb(planned, file), study.folder / "logs" / f"{place}.log"))
    view = StudyView(left, jobs, num_finished=sum(map(is_finished, chosen)), num_runs=len(chosen), began=began)
    with Workers(jobs, at_once=args.workers, keep_going=True) as workers, _continues(study):
        _watch(workers, view)
    return [job for job in jobs if job.failed]


@contextmanager
def _continues(study: StudyFile) -> Iterator[None]:
    """Whoever interrupts what is inside is told that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise type(stop)(f"the same command continues the study in {study.folder}") from None


def _verb(planned: Planned, file: Path) -> list[str]:
    """The command of a run, after `motet`."""
    from motet.study.rows import has_begun, is_outdated, other_settings

    is_other = is_outdated(planned) or (other_settings(planned) and not has_begun(planned))
    anew = ["--clean"] if is_other else []
    if planned.archive is None:
        return ["swarm", str(file), *anew]
    return ["replay", str(planned.archive), "--file", str(file), "--name", planned.run.run.name, *anew]


def _watch(workers: Workers, view: StudyView) -> None:
    from rich.live import Live

    console = make_console(stderr=True)
    if not can_redraw():
        at_work = True
        while at_work:
            at_work = workers.advance()
            for line in view.new_lines():
                console.print(line, soft_wrap=True)
            time.sleep(_POLL_S if at_work else 0)
        return
    with Live(console=console, get_renderable=view.render, refresh_per_second=2, transient=True):
        while workers.advance():
            time.sleep(_POLL_S)


def _write(args: argparse.Namespace, study: StudyFile, everything: Sequence[Planned]) -> None:
    """The page, its pictures and the rows, of all runs that are finished."""
    with _continues(study), working("writing the page"):
        from motet.cli.study_exams import examine_choices
        from motet.reports.plots import draw_png
        from motet.study import Table, read_rows, render_page, rows_to_json
        from motet.study.choices import chosen_rows
        from motet.study.curves import curves_of
        from motet.study.page import Circumstances, run_of
        from motet.study.rows import dotted, is_finished

        finished = [planned for planned in everything if is_finished(planned)]
        rows = []
        for planned in finished:
            rows += read_rows(planned, dotted(_own_settings(study, planned)))
        answers = examine_choices(study, finished, at_once=args.workers)
        margin = study.study.margin_points / 100
        trained = list(rows)
        for name, choice in study.choice.items():
            rows += chosen_rows(name, choice, trained, answers, margin=margin)
        page = args.page or study.folder / "study.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        table = Table(rows, baseline=study.study.baseline)
        pictures: dict[str, list[str]] = {}
        for pair in table.pairs:
            for part, chart in enumerate(curves_of(table, pair, title=study.pair[pair].title or pair), 1):
                name = f"{page.stem}_{pair}{f'_{part}' if part > 1 else ''}.png"
                draw_png(chart, page.parent / "images" / name)
                pictures.setdefault(pair, []).append(f"images/{name}")
        now = Circumstances(
            command=_command(args),
            machine=f"{os.cpu_count()} processors ({platform.machine()}), Python {platform.python_version()}",
            date=datetime.now(UTC).strftime("%d %B %Y"),
            seconds=sum({run_of(study, row): row.seconds for row in trained}.values()),
            workers=args.workers,
            missing=len(everything) - len(finished),
        )
        page.write_text(render_page(study, rows, now, pictures), encoding="utf-8")
        numbers = page.with_suffix(".json")
        numbers.write_bytes(rows_to_json(study.study.name, rows))
    print(f"page     {page}\nnumbers  {numbers}\nruns     {study.folder / 'runs'}")


def _own_settings(study: StudyFile, planned: Planned) -> dict[str, Any]:
    """Those of its pair and of its arm, and of a replay also of the arm that it learns from."""
    of_pair = study.pair[planned.pair].settings
    if planned.archive is None:
        return merged(of_pair, study.arm[planned.arm].settings)
    replay = study.replay[planned.arm]
    live = merged(of_pair, study.arm[replay.of].settings)
    return merged({section: its for section, its in live.items() if section != "swarm"}, replay.settings)


def _command(args: argparse.Namespace) -> str:
    named = (("--pair", args.pair or []), ("--arm", args.arm or []), ("--set", args.set))
    flags = [word for flag, values in named for value in values for word in (flag, value)]
    flags += ["--seeds", str(args.seeds)] if args.seeds else []
    flags += ["--workers", str(args.workers)] if args.workers != _WORKERS else []
    flags += ["--page", str(args.page)] if args.page else []
    return shlex.join(["motet", "study", str(args.file), *flags])
