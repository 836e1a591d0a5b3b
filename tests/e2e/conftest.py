"""The real command in processes of its own, in folders of its own, on a run of a few seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

LONGEST_S = 300
RUN_FILE = """
[run]
name = "r"
rounds = 4
checkpoint_every = 3

[task]
name = "sums.jsonl"
reward = "rewards.py:odd"

[rollout]
prompts_per_round = 4
group_size = 4
max_new_tokens = 8

[learner]
learning_rate = 1e-3

[evaluation]
every = 2
num_prompts = 4
final_num_prompts = 8

[[node]]
name = "small"
model = "tiny:small"

[[node]]
name = "large"
model = "tiny:large"
"""

# `odd` stops where a test wants it to. While there is a named pipe `hold`, and one round is done, it says "waiting" and
# waits until the test lets go of the other end. Its first call is the trial before models load.
REWARDS = """
import sys
from pathlib import Path

calls = []

def odd(completions, **columns):
    calls.append(len(completions))
    hold, metrics = Path("hold"), Path("runs/r/metrics.jsonl")
    if len(calls) > 1 and hold.exists() and metrics.read_text().count('"round": 0,') == 2:
        print("waiting", file=sys.stderr, flush=True)
        hold.read_bytes()
    return [float(sum(map(ord, completion)) % 2) for completion in completions]

def fails(completions, **columns):
    raise RuntimeError("no such luck")

def asks(completions, colour):
    return [0.0 for _ in completions]
"""


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """Its one line of complaint: no traceback, and besides only progress and the pointer to `motet explain`."""
        assert "Traceback" not in self.stderr, self.stderr
        lines = [line for line in self.stderr.splitlines() if not line.startswith("run=")]
        assert len(lines) == 2, self.stderr
        assert lines[0].startswith("error: "), self.stderr
        assert lines[1].startswith("`motet explain E-"), self.stderr
        return lines[0]


class Running:
    """A command that is under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: list[str] = []

    def below(self) -> dict[int, str]:
        """Processes that it has started: their ids and command lines."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self._process.pid:
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def read_until(self, words: str) -> None:
        """Wait until it says this on stderr."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if words in line:
                return
        pytest.fail(f"it ended and never said {words!r}: {''.join(self._said)}")

    def end(self) -> Ended:
        """Wait until it ends."""
        stdout, stderr = self._process.communicate()
        return Ended(self._process.returncode, stdout, "".join(self._said) + stderr)


@dataclass(frozen=True)
class Place:
    """A folder with a run file, its task and its rewards, in which commands are run."""

    path: Path

    @property
    def run_dir(self) -> Path:
        return self.path / "runs/r"

    def motet(self, *arguments: str | Path, **environment: str) -> Ended:
        """Run a command to its end."""
        with self.start(*arguments, **environment) as running:
            return running.end()

    @contextmanager
    def start(self, *arguments: str | Path, **environment: str) -> Iterator[Running]:
        """Start a command; whatever happens, it outlives neither the block nor a generous limit."""
        with subprocess.Popen(
            [sys.executable, "-m", "motet", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=self.path,
            env={**os.environ, "COLUMNS": "80", **environment},
        ) as process:
            limit = threading.Timer(LONGEST_S, process.kill)
            limit.start()
            try:
                yield Running(process)
            finally:
                limit.cancel()
                process.kill()

    @contextmanager
    def held(self, *arguments: str) -> Iterator[tuple[Running, Callable[[], None]]]:
        """The swarm of the run file, stopped inside a round after its first until the second value is called."""
        hold = self.path / "hold"
        os.mkfifo(hold)
        with open(os.open(hold, os.O_RDWR), "wb") as end, self.start("swarm", "run.toml", *arguments) as running:
            running.read_until("waiting")

            def let_go() -> None:
                hold.unlink(missing_ok=True)
                end.close()

            try:
                yield running, let_go
            finally:
                let_go()


def make_place(path: Path) -> Place:
    """Fill a folder."""
    (path / "run.toml").write_text(RUN_FILE, encoding="utf-8")
    (path / "rewards.py").write_text(REWARDS, encoding="utf-8")
    sums = [f'{{"prompt": "{a}+{b}=", "answer": "{(a + b) % 10}"}}\n' for a in range(10) for b in range(10)]
    (path / "sums.jsonl").write_text("".join(sums), encoding="utf-8")
    return Place(path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A fresh place."""
    return make_place(tmp_path)


@pytest.fixture(scope="session")
def place_in() -> Callable[[Path], Place]:
    """Makes a place of a folder."""
    return make_place


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[Place, Ended]]:
    """A place where the swarm ran to its end, and how it ended; tests leave it as it is."""
    place = make_place(tmp_path_factory.mktemp("finished"))
    ended = place.motet("swarm", "run.toml", "--json", "results/summary.json")
    return lambda: (place, ended)
