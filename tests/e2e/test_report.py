"""`motet report`, from the command line to the files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from motet.cli.main import main
from motet.journal import JsonLinesWriter, RunDir


def _write_run(path: Path, method: str, end: float) -> Path:
    run_dir = RunDir.create(path, seed=0)
    run_dir.config.write_text(f'run = {{ name = "sums", seed = 0, rounds = 2 }}\nmethod = {{ name = "{method}" }}\n')
    with JsonLinesWriter(run_dir.metrics) as metrics:
        for round, accuracy in [(-1, 0.3), (0, None), (1, end)]:
            metrics.write(
                {
                    "round": round,
                    "node": "small",
                    "accuracy/test": accuracy,
                    "accuracy/test/se": 0.01,
                    "reward/mean": 0.4,
                }
            )
    summary = {"run": "sums", "method": method, "seed": 0, "rounds": 2, "seconds": 1.0, "nodes": {}}
    run_dir.summary.write_text(json.dumps(summary))
    return path


def test_one_run_is_reported_beside_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _write_run(tmp_path / "run", "f_tis", 0.5)
    assert main(["report", str(run)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("small improved: 30.0 \u00b1 1.0 % before, 50.0 \u00b1 1.0 % after")
    assert f"page: {run / 'report.html'}" in out
    assert f"picture: {run / 'report.png'}" in out
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (run / "report.png").read_bytes().startswith(b"\x89PNG")


def test_several_runs_are_reported_in_the_folder_that_holds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = _write_run(tmp_path / "demo" / "seed_0" / "alone", "on_policy", 0.5)
    swarm = _write_run(tmp_path / "demo" / "seed_1" / "f_tis", "f_tis", 0.4)
    assert main(["report", str(alone), str(swarm)]) == 0
    assert "F-TIS ends below training alone on small (-10.0 \u00b1 1.4 points)" in capsys.readouterr().out
    assert (tmp_path / "demo" / "report.html").exists()
    assert (tmp_path / "demo" / "report.png").exists()


def test_files_go_where_they_are_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _write_run(tmp_path / "run", "f_tis", 0.5)
    page, png, numbers = tmp_path / "x" / "p.html", tmp_path / "y" / "p.png", tmp_path / "z" / "p.json"
    assert main(["report", str(run), "-o", str(page), "--png", str(png), "--json", str(numbers)]) == 0
    assert page.exists()
    assert png.exists()
    assert json.loads(numbers.read_text())["nodes"]["small"]["arms"]["F-TIS"]["accuracy"]["test"]["end"]["value"] == 0.5
    assert not (run / "report.html").exists()
    assert f"numbers: {numbers}" in capsys.readouterr().out


def test_names_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _write_run(tmp_path / "run", "f_tis", 0.5)
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"small"', '"\\u001b[2Jsmall"'))
    assert main(["report", str(run)]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("prepare", "arguments", "code"),
    [
        ("nothing", ["run"], "E-RUN-02"),
        ("empty run", ["run"], "E-REPORT-01"),
        ("damaged", ["run"], "E-REPORT-02"),
        ("run", ["run", "-o", "run/config.toml/x.html"], "E-REPORT-03"),
        ("run", ["run", "-o", "a.png"], "E-REPORT-04"),
        ("run", ["run", "--json", "run/report.html"], "E-REPORT-04"),
    ],
)
def test_mistakes_take_one_line_and_exit_2(
    prepare: str,
    arguments: list[str],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if prepare == "empty run":
        RunDir.create(tmp_path / "run", seed=0)
    elif prepare != "nothing":
        run = _write_run(tmp_path / "run", "f_tis", 0.5)
        if prepare == "damaged":
            (run / "summary.json").write_text("{")
    assert main(["report", *arguments]) == 2
    captured = capsys.readouterr()
    assert code in captured.err
    assert "Traceback" not in captured.err
    assert captured.err.startswith("error: ")
    assert len(captured.err.splitlines()) <= 3


def test_asking_for_help_loads_neither_torch_nor_matplotlib() -> None:
    program = (
        "import sys; from motet.cli.main import main; main(['report', '--help']); "
        "sys.exit(bool({'torch', 'transformers', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "RUN" in done.stdout
