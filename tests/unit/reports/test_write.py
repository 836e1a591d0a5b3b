"""Files of a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from motet.journal import JsonLinesWriter, RunDir
from motet.reports import write_report

WriteRun = Callable[..., Path]


def test_page_and_picture_are_written_and_the_numbers_returned(write_run: WriteRun, tmp_path: Path) -> None:
    run = write_run("on_policy", nodes={"small": {"test": (0.3, 0.4)}})
    comparison = write_report([run], html=tmp_path / "a" / "r.html", png=tmp_path / "b" / "r.png")
    assert comparison.verdict in (tmp_path / "a" / "r.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert (tmp_path / "b" / "r.png").read_bytes().startswith(b"\x89PNG")


def test_no_picture_if_nothing_was_evaluated(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run", seed=0)
    with JsonLinesWriter(run_dir.metrics) as metrics:
        metrics.write({"round": 0, "node": "a", "reward/mean": 0.5})
    png = tmp_path / "old.png"
    png.write_bytes(b"of another run")
    write_report([run_dir.path], html=tmp_path / "r.html", png=png)
    assert not png.exists()
    assert (tmp_path / "r.html").exists()
