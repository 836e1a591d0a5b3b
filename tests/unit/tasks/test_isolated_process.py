from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import motet
from motet.errors import UsageError
from motet.tasks.isolated_process import FaultError, IsolatedProcess, StoppedError
from motet.tasks.isolated_wire import prompt_to_json
from motet.tasks.task import Prompt

CODE = """
import os, sys

def act(completions, **columns):
    for text in completions:
        if text == "loop":
            while True:
                pass
        if text == "loop in C":
            pow(9, 9**9)
        if text == "die":
            os._exit(7)
        if text == "abort":
            os.abort()
        if text == "raise":
            raise ValueError("no")
        if text == "torch":
            return [float("torch" in sys.modules)]
        if text == "print":
            print("hello from the reward")
    return [1.0] * len(completions)
"""
PROMPT = prompt_to_json(Prompt("train/0", "q", "a"))


@pytest.fixture
def process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acts.py").write_text(CODE)
    process = IsolatedProcess({"kind": "reward", "name": "acts.py:act"}, silent=False)
    yield process
    process.close()


def score(process, *texts, limit_s=60.0):
    return process.call("score", PROMPT, list(texts), limit_s=limit_s)["scores"]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid, seconds):
    end = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < end:
        threading.Event().wait(0.02)
    return not is_running(pid)


def test_starts_with_the_first_call_and_finds_files_where_it_was_made(process, monkeypatch, tmp_path_factory):
    assert process.pid is None
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert score(process, "fine") == [[1.0, {"act": 1.0}, None]]
    pid = process.pid
    assert score(process, "torch") == [[0.0, {"act": 0.0}, None]]
    assert process.pid == pid


@pytest.mark.parametrize("text", ["loop", "loop in C"])
def test_what_never_returns_is_stopped_and_the_next_call_starts_anew(process, text):
    assert score(process, "fine")
    first = process.pid
    start = time.monotonic()
    with pytest.raises(StoppedError, match=r"stopped after 0\.2 s"):
        score(process, text, limit_s=0.2)
    assert time.monotonic() - start < 10
    assert not is_running(first)
    assert score(process, "fine")
    assert process.pid != first


@pytest.mark.parametrize(("text", "how"), [("die", "exit code 7"), ("abort", "signal SIGABRT")])
def test_a_crash_says_how_and_the_next_call_starts_anew(process, text, how):
    with pytest.raises(FaultError, match=rf"the scoring process ended \({how}\)"):
        score(process, text)
    assert score(process, "fine")


def test_errors_travel_with_their_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = IsolatedProcess({"kind": "reward", "name": "nowhere.py:f"}, silent=True)
    with pytest.raises(UsageError, match=r"no file nowhere\.py") as caught:
        process.call("describe", limit_s=60.0)
    assert caught.value.code == "E-REWARD-01"
    assert process.pid is None


def test_threads_take_turns(process):
    results = []
    threads = [threading.Thread(target=lambda: results.append(score(process, "fine"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[[1.0, {"act": 1.0}, None]]] * 8


def test_interrupting_the_terminal_does_not_reach_it(process):
    score(process, "fine")
    assert os.getsid(process.pid) == process.pid
    os.kill(process.pid, signal.SIGINT)
    assert score(process, "fine")


@pytest.mark.parametrize("busy", [False, True])
def test_ends_with_its_parent_even_if_that_is_killed(tmp_path, busy):
    (tmp_path / "acts.py").write_text(CODE)
    code = f"""
import sys, threading, time
from motet.tasks.isolated_process import IsolatedProcess
process = IsolatedProcess({{"kind": "reward", "name": "acts.py:act"}}, silent=True)
process.call("score", {json.dumps(PROMPT)}, ["fine"], limit_s=60.0)
print(process.pid, flush=True)
if {busy}:
    process.call("score", {json.dumps(PROMPT)}, ["loop in C"], limit_s=0.5)
time.sleep(60)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(motet.__path__[0]).parent)}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
    assert wait_until_gone(child, 20)


def test_ends_when_nobody_holds_it_any_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acts.py").write_text(CODE)
    process = IsolatedProcess({"kind": "reward", "name": "acts.py:act"}, silent=True)
    score(process, "fine")
    pid = process.pid
    del process
    assert wait_until_gone(pid, 10)


def test_what_own_code_prints_goes_to_standard_error(process, capfd):
    score(process, "print")
    process.close()
    out, err = capfd.readouterr()
    assert (out, err) == ("", "hello from the reward\n")
