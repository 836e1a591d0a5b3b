"""`motet replay ARCHIVE...`: one model learns from what was sampled before, and nothing is sampled."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from motet.cli.options import add_dry_run, add_json, add_set, write_results
from motet.cli.swarm import print_end
from motet.cli.targets import MODEL, nodes_of
from motet.config import NodeSettings, RunFile, dump_run_file, load_run_file, replay_settings, with_rounds
from motet.errors import UsageError
from motet.journal import RunDir, read_jsonl

if TYPE_CHECKING:
    from motet.records import StoredGroups
    from motet.simulation import Observer, Outcome

_SUFFIX: Final = ".motet"
_REJECTED: Final = "admission/rejected/"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "replay",
        description="Train one model from the groups that the nodes of a run have stored, without sampling: round r "
        "learns from what is stored of round r, through gate, filter and importance weights as from peers. The result "
        "is an ordinary run directory. The same command continues an interrupted replay.",
    )
    parser.add_argument(
        "archive",
        metavar="ARCHIVE",
        nargs="+",
        type=Path,
        help="run directory (all of its archives), or one archive, such as runs/sums/archive/large.motet",
    )
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="NAME",
        action="append",
        default=[],
        help="of a run directory, only the archive of this node; repeatable",
    )
    parser.add_argument("--node", metavar="NAME", help="train this node's model, with its settings [the only node]")
    parser.add_argument("--model", help="train this model instead of the node's, or with no node's settings")
    parser.add_argument("--file", metavar="FILE", type=Path, help="run file [config.toml of the first ARCHIVE's run]")
    parser.add_argument("--name", metavar="RUN", help="name of the new run [<run>-replay-<node>]")
    add_set(parser)
    add_dry_run(parser)
    add_json(parser)
    parser.add_argument("--clean", action="store_true", help="delete an earlier run of this name first")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    from motet.cli.console import working
    from motet.records import StoredGroups

    archives = [path for named in args.archive for path in _archives_at(named, args.sources)]
    if args.sources and all(path.is_file() for path in args.archive):
        raise UsageError("--from chooses among the archives of a run directory; name one", code="E-CLI-02")
    asked = _settings(args, archives)
    with working("reading the archives"):
        stored = StoredGroups(archives)
    run_file = with_rounds(asked, stored.num_rounds)
    if run_file.run.rounds < asked.run.rounds:
        there = f"{stored.num_rounds} round{'s' * (stored.num_rounds > 1)}"
        print(f"note: {there} of {asked.run.rounds} (run.rounds) are stored; the replay has as many", file=sys.stderr)
    if args.dry_run:
        print(dump_run_file(run_file), end="")
        return 0
    run_dir = _train(run_file, stored, clean=args.clean)
    summary = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    if args.json is not None:
        write_results(args.json, summary)
    _print_use(run_dir, stored, run_file)
    print_end(summary, run_dir)
    return 0


def _train(run_file: RunFile, stored: StoredGroups, *, clean: bool) -> RunDir:
    from motet.cli.training import train

    def play(observer: Observer, should_stop: Callable[[], bool]) -> Outcome:
        from motet.simulation import run_replay

        return run_replay(run_file, stored, observer=observer, should_stop=should_stop)

    return train(Path(run_file.run.dir) / run_file.run.name, run_file, play, clean=clean)


def _archives_at(path: Path, sources: Sequence[str]) -> list[Path]:
    """The archives that a path of the command line names."""
    from motet.records import read_archive

    if path.is_file() or path.suffix == _SUFFIX:
        next(read_archive(path), None)  # says what is wrong with it, before its run is asked for
        return [path]
    run_dir = RunDir.open(path)
    there = {archive.stem: archive for archive in sorted(run_dir.archive_dir.glob(f"*{_SUFFIX}"))}
    unknown = [name for name in sources if name not in there]
    if unknown:
        known = ", ".join(there) or "none"
        raise UsageError(f"--from {unknown[0]}: {path} has no archive of that name; it has {known}", code="E-CLI-02")
    chosen = [archive for name, archive in there.items() if not sources or name in sources]
    if not chosen:
        raise UsageError(f"{path}: the run has no archive", code="E-REPLAY-01")
    return chosen


def _settings(args: argparse.Namespace, archives: Sequence[Path]) -> RunFile:
    """The run file of the replay, but for the number of rounds that are stored."""
    file: Path | None = args.file
    if file is None:
        run_dir = RunDir(archives[0].parent.parent)
        if archives[0].parent != run_dir.archive_dir or not run_dir.info.is_file():
            raise UsageError(
                f"{archives[0]}: does not lie in the directory of a run, so its task and models are not known; "
                "give the run file with --file",
                code="E-REPLAY-02",
            )
        file = run_dir.config
    source = load_run_file(file)
    return replay_settings(source, _node(args, source, file), name=args.name, overrides=args.set)


def _node(args: argparse.Namespace, source: RunFile, file: Path) -> NodeSettings:
    """Who is to learn."""
    if args.model is not None and args.node is None:
        return NodeSettings(name=MODEL, model=args.model)
    chosen = nodes_of(source, args.node, path=file)
    if len(chosen) > 1:
        known = ", ".join(settings.name for settings in chosen)
        raise UsageError(f"--node: {file} has several nodes; name one of {known}", code="E-CLI-02")
    if args.model is None:
        return chosen[0]
    return chosen[0].model_copy(update={"model": args.model, "revision": None})


def _print_use(run_dir: RunDir, stored: StoredGroups, run_file: RunFile) -> None:
    """How many of the stored groups the gate let in, and why not the others."""
    rows = read_jsonl(run_dir.metrics)
    used = sum(int(row.get("external/groups", 0)) for row in rows)
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update({key: int(row[key]) for key in row if key.startswith(_REJECTED)})
    refused = ", ".join(f"{key.removeprefix(_REJECTED)} {count}" for key, count in sorted(reasons.items()))
    told = f"; refused {reasons.total()}: {refused}" if refused else ""
    print(f"groups   {used} of {', '.join(stored.peers)} in {run_file.run.rounds} rounds{told}")
