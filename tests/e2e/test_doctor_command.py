"""`motet doctor` as a user meets it: healthy, ill in several ways at once, and telling as it goes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Place

pytestmark = pytest.mark.slow


def test_a_healthy_run_file(place: Place) -> None:
    ended = place.motet("doctor", "run.toml")
    assert (ended.code, ended.stderr) == (0, "")
    *lines, last = ended.stdout.splitlines()
    subjects = [line[9:23].strip() for line in lines]
    assert subjects[:2] == ["run file", "keys"]
    assert [subject for subject in subjects if subject.startswith("model")] == ["model of small", "model of large"]
    assert last == f"{len(lines)} ok, 0 warning, 0 problem"
    assert not (place.path / "runs").exists()


def test_every_illness_has_its_line(place: Place) -> None:
    text = (place.path / "run.toml").read_text(encoding="utf-8")
    text += '\n[swarm]\ntransport = "zenoh"\nlisten = ["tcp/192.0.2.1:7447"]\nconnect = ["tcp/127.0.0.1:1"]\n'
    text = text.replace("tiny:large", "./nowhere").replace("rewards.py:odd", "rewards.py:fails")
    (place.path / "run.toml").write_text(text, encoding="utf-8")
    ended = place.motet("doctor", "run.toml", "--json", MOTET_HOME=str(place.path / "home"))
    assert ended.code == 3, ended.stderr
    told = json.loads(ended.stdout)
    problems = [finding["subject"] for finding in told["findings"] if finding["verdict"] == "problem"]
    assert problems == ["listen", "connect", "task", "model of large"]
    assert told["counts"]["problem"] == 4
    assert not (place.path / "home").exists()


def test_a_run_file_that_cannot_be_read(place: Place) -> None:
    ended = place.motet("doctor", "ran.toml")
    assert ended.code == 3
    assert "did you mean run.toml?" in ended.stdout
