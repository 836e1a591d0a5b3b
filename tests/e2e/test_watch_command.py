"""`motet watch` as a user meets it: beside a run, after one, in a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Ended, Place

pytestmark = pytest.mark.slow


def test_a_finished_run(finished: Callable[[], tuple[Place, Ended]]) -> None:
    place, _ = finished()
    ended = place.motet("watch", "runs/r")
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert [line.split()[:4] for line in lines[:2]] == [
        ["run=r", f"node={name}", "round=4/4", "state=finished"] for name in ("small", "large")
    ]
    assert lines[-1] == "run=r state=finished"
    shown = place.motet("watch", "runs", "--once")
    assert shown.code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert shown.stdout.splitlines()[0].split()[:3] == ["r", "round", "4/4"]


def test_beside_a_run_to_its_end(place: Place) -> None:
    with place.held() as (running, let_go):
        (line,) = place.motet("watch", "runs/r", "--once", "--json").stdout.splitlines()
        now = json.loads(line)
        assert (now["round"], now["rounds"], now["finished"]) == (1, 4, False)
        assert [node["state"] for node in now["nodes"]] == ["running", "running"]
        with place.start("watch", "runs/r", "--interval", "0.1") as watching:
            let_go()
            assert running.end().code == 0
            ended = watching.end()
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "run=r state=finished"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_ending_the_watching(place: Place, number: signal.Signals, code: int) -> None:
    with place.held() as (_, _let_go), place.start("watch", "runs/r", "--interval", "0.1") as watching:
        said = watching._process.stdout
        assert said is not None
        assert said.readline().startswith("run=r node=small")
        watching.send(number)
        ended = watching.end()
        assert (ended.code, "Traceback" in ended.stderr) == (code, False)


def test_on_a_terminal_it_is_drawn_anew(place: Place) -> None:
    with place.held():
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "motet", "watch", "runs/r", "--interval", "0.1"],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            cwd=place.path,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )
        os.close(theirs)
        limit = threading.Timer(120, process.kill)
        limit.start()
        try:
            drawn = b""
            while drawn.count(b"round 1/4") < 3:
                drawn += os.read(ours, 4096)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
        finally:
            limit.cancel()
            process.kill()
            process.communicate()
            os.close(ours)
    assert b"\x1b[" in drawn  # the cursor goes up, and lines are drawn over


def test_what_is_no_run(place: Place) -> None:
    ended = place.motet("watch", "runs/none")
    assert ended.code == 2
    assert ended.error.endswith("[E-RUN-02]")
    assert place.motet("watch", "runs", "tcp/127.0.0.1:7447").error.endswith("[E-WATCH-01]")
