"""Writing JSON and JSON lines, so that a run killed at any moment leaves whole rows and at most one torn last line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from motet.journal.reader import read_lines


class JsonLinesWriter:
    """Appends rows to a file, each flushed at once; a context manager.

    Keys keep their order; floats that are not finite become null, since JSON has no word for them.
    """

    def __init__(self, path: Path) -> None:
        """Open a file, made with its folder if it is missing; a torn last line is cut off."""
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self._file = path.open("a", encoding="ascii", newline="\n")

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row.

        Raises:
            TypeError: a value that is not of JSON's types.
        """
        self._file.write(json.dumps(_finite(row), allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def keep_rounds_below(path: Path, round: int) -> None:
    """Drop the rows whose "round" is `round` or later, and a torn last line, so that a resumed run may write them anew.

    Rows without a "round" stay. The file is written aside and renamed; a missing file stays missing.

    Raises:
        RunFailed: E-JOURNAL-01, a damaged line.
    """
    if not path.exists():
        return
    kept = [line for line, row in read_lines(path) if "round" not in row or row["round"] < round]
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write one object as indented JSON, aside and renamed; floats that are not finite become null."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(_finite(value), indent=2, allow_nan=False) + "\n", encoding="ascii")
    partial.replace(path)


def _cut_torn_line(path: Path) -> None:
    path.touch()
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65_536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
