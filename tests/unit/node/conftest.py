"""Nodes built from a run file, without a run around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from motet.config import RunFile
from motet.node import Assembly, assemble_nodes
from motet.records import Archive


@pytest.fixture
def assemble(tmp_path: Path) -> Iterator[Callable[[RunFile], Assembly]]:
    """Builds the nodes of a run file; each call has archives of its own."""
    with ExitStack() as stack:
        count = 0

        def build(run: RunFile) -> Assembly:
            nonlocal count
            count += 1
            folder = tmp_path / f"archives{count}"
            archives = {n.name: stack.enter_context(Archive(folder / f"{n.name}.motet")) for n in run.node}
            return assemble_nodes(run, archives=archives)

        yield build
