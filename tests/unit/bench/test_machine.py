from __future__ import annotations

import json
import subprocess
import sys

from motet.bench.machine import describe_machine, forget_peak, peak_bytes, resident_bytes


def test_the_description_is_plain_data_with_what_matters() -> None:
    found = json.loads(json.dumps(describe_machine()))
    assert found["cpu"]
    assert found["cores_usable"] >= 1
    assert {"motet", "torch"} <= set(found["versions"])


def test_the_peak_is_at_least_what_is_held_and_sees_what_was_freed() -> None:
    forget_peak()
    before = peak_bytes()
    block = bytearray(64_000_000)
    block[::4096] = b"x" * len(block[::4096])
    del block
    assert peak_bytes() > before + 50_000_000
    assert peak_bytes() >= resident_bytes() > 0


def test_whoever_only_starts_the_arms_imports_no_torch() -> None:
    script = (
        "import sys, motet.bench, motet.bench.generate, motet.bench.growth, motet.bench.overlap, motet.bench.ratios;"
        "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
