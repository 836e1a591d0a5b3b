from __future__ import annotations

from pathlib import Path

import pytest

from motet.errors import RunFailed
from motet.journal import read_jsonl


def test_rows_in_order(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 0, "a/b": 1.5}\n{"round": 1, "a/b": null}\n')
    assert read_jsonl(path) == [{"round": 0, "a/b": 1.5}, {"round": 1, "a/b": None}]


def test_a_missing_or_empty_file_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_jsonl(path) == []
    path.touch()
    assert read_jsonl(path) == []


def test_a_last_line_torn_at_any_byte_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first, last = b'{"round": 0}\n', b'{"round": 1}\n'
    for end in range(len(last)):
        path.write_bytes(first + last[:end])
        assert read_jsonl(path) == [{"round": 0}]
    path.write_bytes(first + last)
    assert read_jsonl(path) == [{"round": 0}, {"round": 1}]


@pytest.mark.parametrize(
    "line",
    [b"", b'{"round": 1', b"[1]", b"3", b"\xff", b"\0\0\0", b"[" * 100_000, b"1" * 5000, b'{"a": 1}\r{'],
    ids=[f"case{number}" for number in range(9)],
)
def test_damage_elsewhere_names_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round": 0}\n' + line + b'\n{"round": 2}\n')
    with pytest.raises(RunFailed, match=r"metrics\.jsonl:2: not a JSON object") as caught:
        read_jsonl(path)
    assert caught.value.code == "E-JOURNAL-01"
