"""What two runs are compared by."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from motet.journal import RunDir, read_jsonl


@pytest.fixture
def results_of() -> Callable[[RunDir], dict[str, Any]]:
    """Everything that a run leaves but times: journal, texts, archives, weights, moments, ledger, summary."""

    def collect(run_dir: RunDir) -> dict[str, Any]:
        rows = [
            {key: value for key, value in row.items() if not key.startswith("time/")}
            for row in read_jsonl(run_dir.metrics)
        ]
        summary = json.loads(run_dir.summary.read_text())
        folders = (run_dir.completions_dir, run_dir.archive_dir, run_dir.path / "models", run_dir.checkpoints_dir)
        files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
        return {
            "rows": rows,
            "summary": {key: value for key, value in summary.items() if key not in {"seconds", "run"}},
            "files": {
                str(path.relative_to(run_dir.path)): path.read_bytes()
                for path in files
                if path.name != "swarm.json"  # holds seconds
            },
        }

    return collect
