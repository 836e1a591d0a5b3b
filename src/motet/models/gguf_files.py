"""GGUF files faster: transformers reads one three times, and asks for the same table of names for every module.

The one file that imports the package gguf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

from motet.errors import EnvironmentFault

_NEEDED = ("gguf", "accelerate")  # the second is transformers' own condition


def require_gguf(name: str) -> None:
    """Raises EnvironmentFault (E-MODEL-07) if packages that GGUF files need are not installed."""
    absent = [package for package in _NEEDED if find_spec(package) is None]
    if absent:
        raise EnvironmentFault(
            f"node.model {name!r} is a GGUF file, which needs {' and '.join(absent)}; install with: "
            "pip install 'motet[gguf]'",
            code="E-MODEL-07",
        )


@contextmanager
def read_once() -> Iterator[None]:
    """Inside the block each GGUF file is read once, and each table of names made once."""
    import gguf

    package: Any = gguf
    reader, names = package.GGUFReader, package.get_tensor_name_map
    package.GGUFReader, package.get_tensor_name_map = cache(reader), cache(names)
    try:
        yield
    finally:
        package.GGUFReader, package.get_tensor_name_map = reader, names
