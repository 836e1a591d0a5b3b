"""Importing what a user names as "module:name" or "file.py:name"."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from motet.errors import UsageError
from motet.tasks.faults import Fault, call_own_code


def load_own(spec: str, *, setting: str, code: str, what: str = "function") -> Callable[..., Any]:
    """Import "module:name" or "file.py:name" (a file relative to the current folder).

    Args:
        spec: where it is.
        setting: key of the run file, for messages, such as "task.reward".
        code: of the errors.
        what: "function" or "class", for messages.

    Raises:
        UsageError: no such file, module or name, or its code does not run.
    """
    place, _, name = spec.rpartition(":")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise UsageError(f"{setting}: no file {place} (looked in {Path.cwd()})", code=code)
        module = call_own_code(lambda: _import_file(Path(place)))
    else:
        module = call_own_code(lambda: importlib.import_module(place))
    if isinstance(module, Fault):
        hint = f'; for the file write "{place}.py:{name}"' if Path(f"{place}.py").is_file() else ""
        raise UsageError(f"{setting}: {place} cannot be imported: {module.line}{hint}", code=code)
    found = getattr(module, name, None)
    if not callable(found):
        is_one = inspect.isclass if what == "class" else inspect.isfunction
        own = [key for key, value in vars(module).items() if is_one(value) and not key.startswith("_")]
        raise UsageError(
            f"{setting}: {place} has no {what} '{name}'; it has: {', '.join(sorted(own)) or 'none'}", code=code
        )
    return found  # type: ignore[no-any-return]  # getattr of an unknown module


def source_digest(code: Callable[..., Any], default: str) -> str:
    """Digest of the source file of a function or class; `default` where there is none."""
    source = call_own_code(lambda: Path(inspect.getfile(code)).read_bytes())
    return default if isinstance(source, Fault) else blake2b(source, digest_size=16).hexdigest()


def _import_file(path: Path) -> ModuleType:
    name = f"motet_own_{blake2b(str(path.resolve()).encode(), digest_size=6).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
