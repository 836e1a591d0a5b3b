"""Every error code: what happened, why, and what to do. `motet explain CODE` prints an entry.

A module for each area holds its `ENTRIES`; a new code is one more entry there. Knows no other part of motet.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from motet.cli.catalogue import (
    bench,
    command,
    config,
    files,
    identity,
    integrations,
    links,
    models,
    nodes,
    replay,
    runs,
    study,
    tasks,
    vllm,
)
from motet.cli.catalogue.entry import Entry

CATALOGUE: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        code: entry
        for area in (
            config,
            command,
            tasks,
            models,
            vllm,
            runs,
            replay,
            nodes,
            identity,
            links,
            files,
            integrations,
            bench,
            study,
        )
        for code, entry in area.ENTRIES.items()
    }
)
"""Entries by code, in the order in which `motet explain` lists them."""

__all__ = ["CATALOGUE", "Entry"]
