"""What `motet eval` and `motet export` are pointed at: a run with its checkpoints, one checkpoint, or a model."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from motet.config import NodeSettings, RunFile, dump_run_file, load_run_file, with_overrides
from motet.errors import UsageError
from motet.journal import RunDir

MODEL = "model"
"""Name of the node that a model outside of any run is taken for."""


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A run on disk, and perhaps one of its checkpoints.

    Attributes:
        run_dir: its directory.
        checkpoint: the folder of a checkpoint, if one was named.
    """

    run_dir: RunDir
    checkpoint: Path | None

    def folder(self, *, name: str | None = None, best: bool = False) -> Path:
        """Folder of the checkpoint to take: the named one, the best, or the latest.

        Args:
            name: "round_N" or "N".
            best: the one that `run.keep_best` has kept.

        Raises:
            UsageError: E-RUN-05, there is no such checkpoint; E-CLI-02, more than one was asked for.
        """
        if sum((name is not None, best, self.checkpoint is not None)) > 1:
            raise UsageError(
                "one checkpoint at a time: name its folder, or say --checkpoint, or --best", code="E-CLI-02"
            )
        run_dir = self.run_dir
        if best:
            folder = run_dir.best_checkpoint()
            if folder is None:
                raise UsageError(
                    f"{run_dir.path}: no best checkpoint; run.keep_best = true keeps one, where an evaluation and a "
                    "checkpoint fall on the same round",
                    code="E-RUN-05",
                )
            return folder
        if name is not None:
            chosen: Path | None = run_dir.checkpoints_dir / (name if name.startswith("round_") else f"round_{name}")
        else:
            chosen = self.checkpoint or run_dir.latest_checkpoint()
        if chosen is None or not chosen.is_dir():
            there = ", ".join(f"round_{round}" for round in run_dir.checkpoint_rounds()) or "none"
            raise UsageError(f"{chosen or run_dir.path}: no checkpoint there; the run has {there}", code="E-RUN-05")
        return chosen


def find_run(text: str) -> RunTarget | None:
    """The run, or the run's checkpoint, at this path; None if it is neither.

    Raises:
        UsageError: E-RUN-02, a folder of runs, or a run that cannot be read.
    """
    path, checkpoint = Path(text), None
    if path.name.startswith("round_") and path.parent.name == "checkpoints":
        checkpoint, path = path, path.parent.parent
    if (path / "run.json").is_file():
        return RunTarget(RunDir.open(path), checkpoint)
    if path.is_dir() and any((entry / "run.json").is_file() for entry in path.iterdir()):
        RunDir.open(path)  # says which runs lie there
    return None


def settings_of(run_dir: RunDir, *, tasks: Sequence[str], overrides: Sequence[str]) -> list[RunFile]:
    """The settings of a run, with one other task each; without tasks, with its own.

    Raises:
        UsageError: E-CONFIG-03 or E-CONFIG-04, as for a run file.
    """
    own = load_run_file(run_dir.config)
    if not tasks:
        return [with_overrides(tomllib.loads(dump_run_file(own)), overrides)]
    kept: list[RunFile] = []
    for task in tasks:
        plain = tomllib.loads(dump_run_file(own))
        if task != own.task.name:
            plain["task"] = {"name": task}
        kept.append(with_overrides(plain, overrides))
    return kept


def settings_of_model(
    model: str, *, tasks: Sequence[str], overrides: Sequence[str], max_new_tokens: Mapping[str, int], otherwise: int
) -> list[RunFile]:
    """Settings under which a model is a run's only node, once for each task.

    Args:
        model: as node.model.
        tasks: each as task.name.
        overrides: "section.key=value" each.
        max_new_tokens: longest answer by task.
        otherwise: longest answer where that says nothing.

    Raises:
        UsageError: E-CONFIG-03 or E-CONFIG-04, as for a run file.
    """
    return [
        with_overrides(
            {
                "run": {"name": "eval"},
                "task": {"name": task},
                "rollout": {"max_new_tokens": max_new_tokens.get(task, otherwise)},
                "node": [{"name": MODEL, "model": model}],
            },
            overrides,
        )
        for task in tasks
    ]


def nodes_of(run_file: RunFile, node: str | None, *, path: Path) -> list[NodeSettings]:
    """The node of this name, or all. Raises UsageError (E-CLI-02) if the run has no such node."""
    chosen = [settings for settings in run_file.node if node in (None, settings.name)]
    if not chosen:
        known = ", ".join(settings.name for settings in run_file.node)
        raise UsageError(f"--node {node}: {path} has no such node; it has {known}", code="E-CLI-02")
    return chosen


def one_node(run_file: RunFile, node: str | None, *, path: Path) -> NodeSettings:
    """The node of this name, or the only one. Raises UsageError (E-CLI-02) if there is none, or more than one."""
    chosen = nodes_of(run_file, node, path=path)
    if len(chosen) > 1:
        known = ", ".join(settings.name for settings in chosen)
        raise UsageError(f"--node: {path} has several nodes; name one of {known}", code="E-CLI-02")
    return chosen[0]
