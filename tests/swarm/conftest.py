"""A server of NATS and links to it, for the tests that hurt them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nats_server import NatsLinks, NatsServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "server") as server:
        yield server


@pytest.fixture
def links(server: NatsServer) -> Iterator[NatsLinks]:
    with NatsLinks(server) as links:
        yield links
