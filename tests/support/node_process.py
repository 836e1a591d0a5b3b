"""Real `motet` commands for tests of swarms: started here or on a host of `hosts.lan`, watched by what they write.

ground = Ground(tmp_path)
with ground.node("ann") as ann, ground.node("bob") as bob:
    ann.wait_accepted("bob")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from patience import PATIENCE_S, wait_until

from motet.journal import RunDir, read_jsonl
from motet.journal.peers import PeerStatus, SwarmStatus, read_status, status_path

ENDLESS = 1_000_000

RUN_FILE = """
[run]
name = "{name}"
rounds = {rounds}
checkpoint_every = 4

[rollout]
prompts_per_round = {prompts}
group_size = 4
max_new_tokens = 8

[learner]
learning_rate = 1e-4

[evaluation]
every = 0
num_prompts = 2
final_num_prompts = 2

[swarm]
transport = "zenoh"
deadline_s = {deadline_s}
"""


class Program:
    """A `motet` command under way. Killed, if it still runs, at the end of the block."""

    def __init__(self, argv: Sequence[str], said: Path, *, host: Any = None, **options: Any) -> None:
        self._said = said
        with said.open("wb") as file:
            more = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT, **options}
            self.process = subprocess.Popen(argv, **more) if host is None else host.start(argv, **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """What it has printed, errors included."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def wait_said(self, words: str) -> None:
        """Until it has printed this."""
        wait_until(lambda: words in self.said() or self._has_ended(), lambda: f"{words!r} in {self.said()}")
        assert words in self.said(), f"it ended and never said {words!r}: {self.said()}"

    def end(self) -> int:
        """Wait until it ends; its exit code."""
        wait_until(self._has_ended, lambda: f"the end of {self._said.stem}, which said {self.said()}")
        return self.process.returncode

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """As `kill -9` does. Harmless when repeated."""
        self.process.kill()
        self.process.wait()

    def check_calm(self) -> None:
        """It runs, and has met nothing unforeseen."""
        assert not self._has_ended(), self.said()
        assert "Traceback" not in self.said(), self.said()

    def _has_ended(self) -> bool:
        return self.process.poll() is not None


class NodeProgram(Program):
    """A `motet node`, or `motet join`, with what it writes into its run directory."""

    def __init__(self, name: str, run_dir: Path, argv: Sequence[str], said: Path, **options: Any) -> None:
        self.name = name
        self.run_dir = RunDir(run_dir)
        super().__init__(argv, said, **options)

    def status(self) -> SwarmStatus | None:
        """How it stands; None before it says so."""
        status = read_status(status_path(self.run_dir, self.name))
        return status if status is not None and status.pid == self.pid else None

    def wait(self, condition: Callable[[SwarmStatus], Any], what: str) -> SwarmStatus:
        """Until its status is such."""

        def look() -> SwarmStatus | None:
            status = self.status()
            if status is not None and condition(status):
                return status
            assert not self._has_ended(), f"{self.name} ended before {what}: {self.said()}"
            return None

        found: SwarmStatus = wait_until(look, lambda: f"{self.name}: {what}; {self.status()}; {self.said()[-2000:]}")
        return found

    def peer(self, name: str) -> PeerStatus:
        """What it says of a peer."""
        status = self.status()
        return PeerStatus(name=name) if status is None else peer_of(status, name)

    def wait_peer(self, name: str, condition: Callable[[PeerStatus], Any], what: str) -> PeerStatus:
        """Until what it says of a peer is such."""
        return peer_of(self.wait(lambda status: condition(peer_of(status, name)), f"{name} {what}"), name)

    def wait_live(self, *names: str) -> None:
        """Until these are live for it."""
        self.wait(lambda status: all(peer_of(status, name).state == "live" for name in names), f"{names} live")

    def wait_accepted(self, *names: str) -> None:
        """Until it has accepted groups of each of these that it had not accepted before the call."""
        before = {name: self.peer(name).accepted for name in names}
        self.wait(
            lambda status: all(peer_of(status, name).accepted > before[name] for name in names),
            f"accepts groups of {names}",
        )

    def wait_rounds(self, count: int) -> None:
        """Until it has gone on by so many rounds."""
        first = self.wait(lambda status: status.round >= 0, "a round").round
        self.wait(lambda status: status.round >= first + count, f"{count} more rounds")

    def events(self, kind: str, peer: str | None = None) -> list[Mapping[str, Any]]:
        """Its events of a kind, and of a peer."""
        found = read_jsonl(self.run_dir.events) if self.run_dir.events.exists() else []
        return [event for event in found if event["kind"] == kind and peer in (None, event.get("peer"))]

    def wait_event(self, kind: str, peer: str | None = None, *, words: str = "", count: int = 1) -> Mapping[str, Any]:
        """The last event of a kind, once there are so many, with these words."""

        def look() -> list[Mapping[str, Any]]:
            found = [event for event in self.events(kind, peer) if words in event.get("text", "")]
            return found if len(found) >= count else []

        found = wait_until(look, lambda: f"{self.name}: {kind} of {peer} with {words!r}; {self.said()[-3000:]}")
        return found[-1]

    def rss_bytes(self) -> int:
        """Memory that it holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def summary(self) -> Mapping[str, Any]:
        """Its result."""
        found: Mapping[str, Any] = json.loads(self.run_dir.summary.read_text(encoding="utf-8"))["nodes"][self.name]
        return found


class Ground:
    """A machine's folder with a run file: where its commands are run, and where their keys lie.

    Args:
        path: the folder.
        names: of the nodes in the run file; the models are tiny.
        name: of the run.
        rounds: so many that a test ends the nodes rather than they themselves.
        prompts: of a round, shared out over the names.
        deadline_s: longest wait for peers.
        swarm: further lines of that section.
        more: further sections.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str] = ("ann", "bob", "cid"),
        *,
        name: str | None = None,
        rounds: int = ENDLESS,
        prompts: int | None = None,
        deadline_s: float = 30.0,
        swarm: str = "",
        more: str = "",
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.home = path / "home"
        self.run_name = name or f"r{os.getpid()}-{path.name}"[:60]
        text = RUN_FILE.format(
            name=self.run_name, rounds=rounds, prompts=prompts or 2 * len(names), deadline_s=deadline_s
        )
        nodes = "".join(f'\n[[node]]\nname = "{node}"\nmodel = "tiny:small"\n' for node in names)
        (path / "run.toml").write_text(f"{text}{swarm}\n{more}\n{nodes}", encoding="utf-8")
        self._num_started = 0

    def node(
        self,
        name: str,
        *arguments: str,
        prelude: str = "",
        wrapper: Sequence[str] = (),
        dir: str = "runs",
        **options: Any,
    ) -> NodeProgram:
        """Start `motet node`: after some Python, and by a program that becomes another, where these are given."""
        run_dir = self.path / dir / f"{self.run_name}-{name}"
        argv = self._argv("node", "run.toml", "--name", name, "--set", f"run.dir={dir}", *arguments, prelude=prelude)
        return NodeProgram(
            name, run_dir, [*wrapper, *argv], self._said(name), cwd=self.path, env=self._environment(), **options
        )

    def join(self, name: str, token: Sequence[str], *, run_name: str, **options: Any) -> NodeProgram:
        """Start `motet join` with the words of an invitation."""
        run_dir = self.path / "runs" / f"{run_name}-{name}"
        argv = self._argv("join", *token)
        return NodeProgram(name, run_dir, argv, self._said(name), cwd=self.path, env=self._environment(), **options)

    def start(self, *arguments: str, **options: Any) -> Program:
        """Start any command."""
        argv, said = self._argv(*arguments), self._said(arguments[0])
        return Program(argv, said, cwd=self.path, env=self._environment(), **options)

    def run(self, *arguments: str, host: Any = None) -> tuple[int, str, str]:
        """Run a command to its end: exit code, what it printed, what it said on stderr."""
        argv = self._argv(*arguments)
        if host is not None:
            argv = ["ip", "netns", "exec", host.name, *argv]
        done = subprocess.run(
            argv,
            cwd=self.path,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def _argv(self, *arguments: str, prelude: str = "") -> list[str]:
        if not prelude:
            return [sys.executable, "-m", "motet", *arguments]
        begins = f"import sys; sys.argv = ['motet', *sys.argv[1:]]\n{prelude}\n"
        return [sys.executable, "-c", f"{begins}from motet.cli.main import main\nsys.exit(main())", *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "MOTET_HOME": str(self.home), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}

    def _said(self, name: str) -> Path:
        self._num_started += 1
        return self.path / f"{name}.{self._num_started}.said"


def peer_of(status: SwarmStatus, name: str) -> PeerStatus:
    """What a status says of a peer."""
    return next((peer for peer in status.peers if peer.name == name), PeerStatus(name=name))
