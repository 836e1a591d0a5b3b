"""Where something was measured: processor, threads, versions, and the memory of this process."""

from __future__ import annotations

import os
import platform
import resource
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("motet", "torch", "transformers", "numpy", "msgspec", "peft", "trl")
_STATUS = Path("/proc/self/status")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, operating system and versions, as plain data. Imports nothing heavy."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "memory_bytes": _total_memory(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := version_of(name)) is not None},
    }


def now() -> str:
    """Date and time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def version_of(package: str) -> str | None:
    """Installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    """The processor's name as the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def resident_bytes() -> int:
    """Memory that this process holds now (VmRSS); where the system does not say, its peak."""
    return _status("VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The most memory that this process has held since `forget_peak`, or since it began (VmHWM, else ru_maxrss)."""
    found = _status("VmHWM")
    if found is not None:
        return found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> bool:
    """Let the peak begin anew at what is held now; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def available_bytes() -> int | None:
    """Memory that could still be taken without swapping; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _status(key: str) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def _total_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
