"""The directory of a run: the only place that knows its file names.

<run>/
  config.toml               the resolved settings
  identity.json             digests of task, tokenizer and prompts as the run began with them
  replay.json               which archives it learned from, if it is a replay
  run.json                  versions, platform, seed, start: what marks the folder as a run
  metrics.jsonl             one row per round and node
  events.jsonl              what happened besides: joined, left, late, stopped, resumed
  summary.json              the result
  best.json                 which checkpoint was the best at its examination, if run.keep_best
  trackers.json             under which ids the trackers know the run, if there are any
  tensorboard/              what the tracker of this name has written
  completions/<node>.jsonl  texts, for people
  checkpoints/round_<N>/    state after N rounds; `.round_<N>.partial` while it is being written
  archive/<node>.motet      every group that the node sampled
  peers/<node>.json         how a networked node stands, rewritten every second
  roster/<node>.json        which name a networked node believes under which key
  models/<node>/            the trained model, an ordinary Hugging Face folder
  report.html, report.png
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from motet.errors import UsageError
from motet.journal.writer import write_json

JOURNAL_VERSION = 1

_CHECKPOINT = re.compile(r"round_(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths inside the directory of a run.

    Attributes:
        path: the directory itself.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, *, seed: int) -> Self:
        """Make the folders of a new run and write `run.json`.

        Raises:
            UsageError: E-RUN-01, something other than a run lies there; E-RUN-03, a run lies there already.
        """
        run = cls(path)
        if run.info.is_file():
            raise UsageError(
                f"{path}: holds a run already; resume it, choose another run.name, or delete the folder",
                code="E-RUN-03",
            )
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(
                f"{path}: exists and is not the directory of a run; choose another run.name or run.dir",
                code="E-RUN-01",
            )
        path.mkdir(parents=True, exist_ok=True)
        write_json(run.info, _provenance(seed))
        for folder in (run.completions_dir, run.checkpoints_dir, run.archive_dir):
            folder.mkdir()
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """The directory of an existing run.

        Raises:
            UsageError: E-RUN-02, no such folder, not a run, or a run of a newer motet.
        """
        run = cls(path)
        try:
            info = json.loads(run.info.read_bytes())
            journal_version = int(info["journal_version"])
        except OSError as error:
            raise UsageError(_no_run(path), code="E-RUN-02") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{run.info}: damaged; restore it from a copy", code="E-RUN-02") from error
        if journal_version > JOURNAL_VERSION:
            raise UsageError(
                f"{path}: written in journal version {journal_version}, this motet reads up to {JOURNAL_VERSION}: "
                "update motet",
                code="E-RUN-02",
            )
        return run

    @property
    def config(self) -> Path:
        """The resolved settings."""
        return self.path / "config.toml"

    @property
    def info(self) -> Path:
        """Versions, platform, seed and start of the run."""
        return self.path / "run.json"

    @property
    def identity(self) -> Path:
        """What each node learns from, as it was when the run began."""
        return self.path / "identity.json"

    @property
    def replay(self) -> Path:
        """Which archives a replay learned from; there is none in another run."""
        return self.path / "replay.json"

    @property
    def metrics(self) -> Path:
        """One row per round and node."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """What happened besides."""
        return self.path / "events.jsonl"

    @property
    def summary(self) -> Path:
        """The result."""
        return self.path / "summary.json"

    @property
    def best(self) -> Path:
        """Which checkpoint was the best."""
        return self.path / "best.json"

    @property
    def trackers(self) -> Path:
        """Ids of the run in trackers."""
        return self.path / "trackers.json"

    @property
    def report_html(self) -> Path:
        """The report as one page."""
        return self.path / "report.html"

    @property
    def report_png(self) -> Path:
        """The report's curves as a picture."""
        return self.path / "report.png"

    @property
    def completions_dir(self) -> Path:
        """Folder of the completions' texts."""
        return self.path / "completions"

    @property
    def checkpoints_dir(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def archive_dir(self) -> Path:
        """Folder of the archives."""
        return self.path / "archive"

    def completions(self, node: str) -> Path:
        """Texts that a node sampled or learned from."""
        return self.completions_dir / f"{node}.jsonl"

    def archive(self, node: str) -> Path:
        """Groups that a node sampled."""
        return self.archive_dir / f"{node}.motet"

    def roster(self, node: str) -> Path:
        """Whose key is whose, as a networked node has learned it."""
        return self.path / "roster" / f"{node}.json"

    def model(self, node: str) -> Path:
        """The trained model of a node."""
        return self.path / "models" / node

    def checkpoint(self, round: int) -> Path:
        """Folder of the checkpoint after `round` rounds."""
        return self.checkpoints_dir / f"round_{round}"

    def checkpoint_rounds(self) -> list[int]:
        """Rounds of the complete checkpoints, ascending."""
        if not self.checkpoints_dir.is_dir():
            return []
        matches = (_CHECKPOINT.fullmatch(entry.name) for entry in self.checkpoints_dir.iterdir() if entry.is_dir())
        return sorted(int(match[1]) for match in matches if match)

    def latest_checkpoint(self) -> Path | None:
        """Folder of the newest complete checkpoint; None if there is none."""
        rounds = self.checkpoint_rounds()
        return self.checkpoint(rounds[-1]) if rounds else None

    def prune_checkpoints(self, *, keep: int, best: int | None = None) -> None:
        """Delete all but the newest `keep` checkpoints and the one after `best` rounds."""
        for round in self.checkpoint_rounds()[:-keep]:
            if round != best:
                shutil.rmtree(self.checkpoint(round))

    def note_best(self, round: int, *, accuracy: float) -> None:
        """Write down that the checkpoint after `round` rounds is the best so far."""
        write_json(self.best, {"round": round, "accuracy": accuracy})

    def best_checkpoint(self) -> Path | None:
        """Folder of the checkpoint that `note_best` named last; None without one, or if it is gone."""
        try:
            folder = self.checkpoint(int(json.loads(self.best.read_bytes())["round"]))
        except OSError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{self.best}: damaged; restore it from a copy", code="E-RUN-02") from error
        return folder if folder.is_dir() else None

    @contextmanager
    def writing_checkpoint(self, round: int) -> Iterator[Path]:
        """An empty folder to fill; it becomes `checkpoint(round)` when the block ends without an exception.

        A checkpoint of the same round is replaced. After an exception the half-written folder is removed.
        """
        final = self.checkpoint(round)
        partial = final.with_name(f".{final.name}.partial")
        replaced = final.with_name(f".{final.name}.replaced")
        for leftover in (partial, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            _sync_tree(partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if final.exists():
            final.replace(replaced)
        partial.replace(final)
        shutil.rmtree(replaced, ignore_errors=True)


def _provenance(seed: int) -> dict[str, Any]:
    return {
        "journal_version": JOURNAL_VERSION,
        "motet": _version_of("motet"),
        "python": platform.python_version(),
        "torch": _version_of("torch"),
        "transformers": _version_of("transformers"),
        "numpy": _version_of("numpy"),
        "platform": platform.platform(),
        "num_cpus": os.cpu_count(),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
    }


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _no_run(path: Path) -> str:
    """Why `path` is no run, with the runs inside it if there are any."""
    if not path.exists():
        return f"{path}: no such folder; give the directory of a run, as printed when the run ended"
    if not path.is_dir():
        return f"{path}: a file; give the directory of a run"
    runs = sorted(entry.name for entry in path.iterdir() if (entry / "run.json").is_file())
    if runs:
        shown = ", ".join(runs[:3]) + (", ..." if len(runs) > 3 else "")
        return f"{path}: holds runs but is none itself; did you mean {path / runs[0]}? (here: {shown})"
    return f"{path}: not the directory of a run (it has no run.json)"


def _sync_tree(folder: Path) -> None:
    """Wait until the disk holds every file of a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
