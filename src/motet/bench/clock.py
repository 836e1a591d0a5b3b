"""The clock of a measured process: waits for the accelerator before anybody reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


class Clock:
    """Waits for a GPU where there is one, and knows its peak memory. Its peak begins when the clock is made."""

    def __init__(self) -> None:
        self._has_gpu = torch.cuda.is_available()
        if self._has_gpu:
            torch.cuda.reset_peak_memory_stats()

    def wait(self) -> None:
        """Return when all work that was handed to the GPU is done."""
        if self._has_gpu:
            torch.cuda.synchronize()

    def describe(self) -> dict[str, Any]:
        """Threads and device, for the reader."""
        device = torch.cuda.get_device_name() if self._has_gpu else "cpu"
        return {"threads": torch.get_num_threads(), "device": device}

    def device_peak(self) -> dict[str, int]:
        """Peak bytes on the GPU since the clock was made; empty without one."""
        return {"device_peak": torch.cuda.max_memory_allocated()} if self._has_gpu else {}


class Parts:
    """Seconds spent inside functions, by name.

    >>> parts = Parts()
    >>> double = parts.timed("double", lambda number: 2 * number)
    >>> double(21), list(parts.take())
    (42, ['double'])
    """

    def __init__(self) -> None:
        self._clock = Clock()
        self._seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; its seconds are added up under `name`."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._clock.wait()
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._clock.wait()
                self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

        return run

    def take(self) -> dict[str, float]:
        """The seconds so far; they begin anew."""
        taken, self._seconds = self._seconds, {}
        return taken


def measure_rates(dtypes: tuple[str, ...]) -> dict[str, Any]:
    """Rate of large square matrix products in each dtype: FLOP/s, and the side at which it was reached."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates = {dtype: _rate(torch.bfloat16 if dtype == "bf16" else torch.float32, device) for dtype in dtypes}
    return {"rates": rates, **Clock().describe()}


def _rate(dtype: torch.dtype, device: str, *, longest_s: float = 0.4, sides: tuple[int, ...] = ()) -> dict[str, float]:
    clock = Clock()
    best: dict[str, float] = {"flop_per_s": 0.0, "side": 0}
    for side in sides or ((2048, 4096, 8192) if device == "cuda" else (512, 1024, 2048, 3072)):
        left, right = (torch.ones(side, side, device=device).to(dtype) for _ in range(2))
        out = left @ right
        spent = 0.0
        fastest = float("inf")
        while spent < longest_s:
            clock.wait()
            start = time.perf_counter()
            torch.mm(left, right, out=out)
            clock.wait()
            took = time.perf_counter() - start
            spent += took
            fastest = min(fastest, took)
        if 2 * side**3 / fastest > best["flop_per_s"]:
            best = {"flop_per_s": 2 * side**3 / fastest, "side": side}
        if fastest * 8 > 5 * longest_s:  # the next side would take too long
            break
    return best
