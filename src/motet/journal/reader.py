"""Reading JSON lines: one object per line; what follows the last newline was cut off and does not count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from motet.errors import RunFailed


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All whole rows of a file; no rows if there is no such file (nothing has been written yet).

    Raises:
        RunFailed: E-JOURNAL-01, a line that is no JSON object; the message names file and line.
    """
    return [row for _, row in read_lines(path)]


def read_lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Like `read_jsonl`, each row with the bytes of its line (newline included)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = data.split(b"\n")[:-1]
    return [(line + b"\n", _parse(line, path, number)) for number, line in enumerate(lines, start=1)]


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damage(path, number) from error
    if not isinstance(row, dict):
        raise _damage(path, number)
    return row


def _damage(path: Path, number: int) -> RunFailed:
    return RunFailed(
        f"{path}:{number}: not a JSON object; the file is damaged. Restore it from a copy, or delete this line",
        code="E-JOURNAL-01",
    )
