"""The script for a GPU machine, rehearsed on the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


def check(*words, folder):
    file = folder / "found.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--json", str(file)], capture_output=True, text=True, check=False
    )
    return done, json.loads(file.read_text())["checks"] if file.is_file() else {}


@pytest.mark.slow
def test_everything_that_a_processor_can_do(tmp_path):
    done, checks = check("--device", "cpu", "--quick", folder=tmp_path)
    assert {name: result["problems"] for name, result in checks.items()} == {
        "machine": [],
        "logprobs": [],
        "gradients": [],
        "steps": [],
        "swarm": [],
    }, done.stderr
    assert done.returncode == 0
    assert checks["logprobs"]["measured"]["tiny:small fp32"]["max"] < 1e-4
    assert checks["steps"]["measured"]["tiny:small bf16"]["step_s"] > 0
    assert "failed: none; skipped: none" in done.stdout


def test_a_failure_is_written_down_and_the_rest_goes_on(tmp_path):
    only = [word for name in ("logprobs", "machine") for word in ("--only", name)]
    done, checks = check("--device", "cpu", "--quick", *only, "--model", str(tmp_path / "absent"), folder=tmp_path)
    assert done.returncode == 1
    assert {name: result["state"] for name, result in checks.items()} == {"logprobs": "failed", "machine": "passed"}
    assert "does not exist" in checks["logprobs"]["problems"][0]
    assert set(checks["logprobs"]["measured"]) == {f"tiny:small {kind}" for kind in ("fp32", "bf16", "fp16")}


def test_without_time_nothing_begins(tmp_path):
    done, checks = check("--device", "cpu", "--only", "machine", "--minutes", "0", folder=tmp_path)
    assert done.returncode == 0
    assert checks["machine"]["state"] == "skipped"
