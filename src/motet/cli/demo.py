"""`motet demo`: two models of different size learn together, beside training alone and beside naive sharing."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from motet.cli.console import can_redraw, make_console, working
from motet.cli.options import add_dry_run, add_json, add_set, at_least_one, new_folder, write_results
from motet.config import RunFile, dump_run_file, load_run_file
from motet.errors import UsageError
from motet.journal import RunDir

if TYPE_CHECKING:
    from rich.table import Table

    from motet.cli.demo_view import DemoView
    from motet.cli.workers import Workers
    from motet.reports import Comparison
    from motet.reports.estimates import Estimate

DEMO_FILE = Path(__file__).with_name("demo.toml")
_ARMS = {"on_policy": "alone", "nois": "NoIS", "f_tis": "F-TIS"}
_DECIDED = {
    "run.dir": "say --dir",
    "run.name": "each arm has its own",
    "run.seed": "say --seeds",
    "method.name": "each arm has its own",
}
_POLL_S = 0.5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "demo",
        description="Train the two models that come with the package in three arms: each alone with the full batch, "
        "together with F-TIS while each generates half, and together without any correction (NoIS). Ends with a table "
        "and a page. The same command continues an interrupted demo.",
    )
    parser.add_argument("--dir", type=new_folder, default=Path("runs/demo"), help="folder for the runs [runs/demo]")
    parser.add_argument("--seeds", type=at_least_one, default=1, metavar="N", help="repeat with seeds 0 to N-1 [1]")
    parser.add_argument(
        "--workers", type=at_least_one, metavar="N", help="arms side by side [3, or one for each processor]"
    )
    parser.add_argument("--clean", action="store_true", help="delete an earlier demo in that folder first")
    add_set(parser)
    add_dry_run(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    _check_free(args.set)
    runs = [
        load_run_file(DEMO_FILE, [*args.set, *_placement(args.dir, seed, method)])
        for seed in range(args.seeds)
        for method in _ARMS
    ]
    if args.dry_run:
        print("\n".join(dump_run_file(run_file) for run_file in runs), end="")
        return 0
    _train(args, runs)
    folders = [Path(run_file.run.dir) / run_file.run.name for run_file in runs]
    html, png = args.dir / "report.html", args.dir / "report.png"
    with working("writing the page"):
        from motet.reports import write_report

        comparison = write_report(folders, html=html, png=png)
    console = make_console()
    console.print(_table(comparison))
    for text in (comparison.verdict, *(f"note: {note}" for note in comparison.notes)):
        console.print(f"\n{text}", soft_wrap=not console.is_terminal)
    summary = args.json or args.dir / "summary.json"
    write_results(summary, comparison.to_json())
    print(f"\npage     {html}\npicture  {png}\nnumbers  {summary}\nrun file {DEMO_FILE}")
    return 0


def _check_free(changes: Sequence[str]) -> None:
    """Raise UsageError for a setting that the demo decides itself."""
    for change in changes:
        key = change.partition("=")[0].strip()
        if key in _DECIDED:
            raise UsageError(f"--set {change}: the demo decides {key} itself; {_DECIDED[key]}", code="E-CLI-02")


def _placement(folder: Path, seed: int, method: str) -> list[str]:
    """Overrides that give an arm its place, seed and method."""
    return [
        f"run.dir={json.dumps(str(folder / f'seed_{seed}'))}",
        f"run.name={json.dumps(method)}",
        f"run.seed={seed}",
        f"method.name={json.dumps(method)}",
    ]


def _train(args: argparse.Namespace, runs: Sequence[RunFile]) -> None:
    from motet.cli.claim import claimed, remove_run
    from motet.cli.demo_view import ArmView, DemoView
    from motet.cli.workers import Job, Workers

    jobs, arms = [], []
    for run_file in runs:
        settings, method = run_file.run, run_file.method.name
        run_dir = RunDir(Path(settings.dir) / settings.name)
        if args.clean:
            with claimed(run_dir.path):
                remove_run(run_dir.path)
        label = _ARMS[method] + (f" seed {settings.seed}" if args.seeds > 1 else "")
        overrides = [*args.set, *_placement(args.dir, settings.seed, method)]
        flags = [word for override in overrides for word in ("--set", override)]
        log = args.dir / "logs" / f"seed_{settings.seed}_{method}.log"
        job = None if _is_finished(run_dir, run_file) else Job(label, ["swarm", str(DEMO_FILE), *flags], log)
        jobs += [] if job is None else [job]
        arms.append(ArmView(label, run_dir, [node.name for node in run_file.node], settings.rounds, job))
    if not jobs:
        print(f"the demo in {args.dir} was finished before; --clean deletes it and trains anew", file=sys.stderr)
        return
    view = DemoView(arms)
    at_once = args.workers or max(len(_ARMS), os.cpu_count() or 1)  # three arms on two processors end together
    with Workers(jobs, at_once=at_once) as workers:
        try:
            _watch(workers, view)
        except KeyboardInterrupt as stop:
            raise type(stop)(f"the same command continues the demo in {args.dir}") from None


def _is_finished(run_dir: RunDir, run_file: RunFile) -> bool:
    """True if this very run has been finished before."""
    if not run_dir.summary.is_file() or not run_dir.config.is_file():
        return False
    return run_dir.config.read_text(encoding="utf-8") == dump_run_file(run_file)


def _watch(workers: Workers, view: DemoView) -> None:
    from rich.live import Live

    console = make_console(stderr=True)
    if not can_redraw():
        while workers.advance():
            view.refresh()
            for line in view.new_lines():
                console.print(line, soft_wrap=True)
            time.sleep(_POLL_S)
        return
    with Live(console=console, get_renderable=view.render, refresh_per_second=2, transient=True):
        while workers.advance():
            view.refresh()
            time.sleep(_POLL_S)


def _table(comparison: Comparison) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title="accuracy in %, each prompt sampled once, with one standard error", box=box.SIMPLE)
    table.add_column("model")
    table.add_column("")
    for title in ("before", *(arm.label for arm in comparison.arms)):
        table.add_column(title, justify="right", no_wrap=True)
    for node in comparison.nodes:
        cells = [comparison.cells[node, arm.label] for arm in comparison.arms]
        for split in comparison.splits:
            ends = [_percent(cell.accuracy[split].end) for cell in cells]
            words = {"test": "held-out sums", "ood": "longer sums"}.get(split, split)
            table.add_row(node, words, _percent(cells[0].accuracy[split].start), *ends)
        table.add_row("", "generated", "", *(f"{cell.completions_generated or 0:,.0f}" for cell in cells))
        table.add_row("", "bytes/token", "", *(_bytes(cell.bytes_per_token) for cell in cells))
        table.add_section()
    return table


def _percent(estimate: Estimate | None) -> str:
    """Accuracy and standard error in percent, without the sign: the table's title has it."""
    return "-" if estimate is None else f"{100 * estimate.value:.1f} \u00b1 {100 * (estimate.se or 0.0):.1f}"


def _bytes(per_token: float | None) -> str:
    """A node that is alone sends nothing."""
    return "-" if per_token is None else f"{per_token:.1f}"
