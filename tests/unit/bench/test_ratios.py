from __future__ import annotations

import json
from pathlib import Path

from motet.bench.ratios import LEAST_SHARE, LEAST_SHARE_OF_BYTES, judge, read_expected, store_expected

RESULT = {
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cpu": "x", "cores_usable": 2, "omp_num_threads": None, "versions": {}, "platform": "y"},
    "ratios": {"learner/ftis": 3.14159, "wire/bytes": 2.0},
}


def test_a_ratio_below_its_share_of_the_stored_one_is_slower() -> None:
    stored = {"learner/ftis": 3.0, "learner/full": 3.0}
    just_above, just_below = 3.0 * LEAST_SHARE + 0.01, 3.0 * LEAST_SHARE - 0.01
    above, below = judge({"learner/ftis": just_above, "learner/full": just_below}, stored)
    assert (above.slower, below.slower) == (False, True)
    assert below.stored == 3.0


def test_stored_ratios_that_are_raised_fail_what_passed() -> None:
    found = {"generate/plain": 2.0}
    assert not judge(found, {"generate/plain": 2.0})[0].slower
    assert judge(found, {"generate/plain": 4.0})[0].slower


def test_bytes_have_little_room() -> None:
    assert judge({"wire/bytes": 2.0}, {"wire/bytes": 2.0 / LEAST_SHARE_OF_BYTES + 0.01})[0].slower
    assert not judge({"wire/bytes": 2.0}, {"wire/bytes": 2.0})[0].slower


def test_what_was_never_stored_fails_nothing() -> None:
    (verdict,) = judge({"new/one": 0.01}, {"learner/ftis": 3.0})
    assert (verdict.slower, verdict.stored, verdict.least) == (False, None, None)


def test_what_is_stored_is_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "expected.json"
    assert read_expected(path) == {}
    store_expected(RESULT, path)
    assert read_expected(path) == {"learner/ftis": 3.142, "wire/bytes": 2.0}
    assert set(json.loads(path.read_text(encoding="utf-8"))) == {"date", "machine", "ratios"}
