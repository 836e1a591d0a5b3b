from __future__ import annotations

import json
from pathlib import Path

import pytest

from motet.errors import RunFailed
from motet.journal import JsonLinesWriter, keep_rounds_below, read_jsonl, write_json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "completions" / "kim.jsonl"


def write(path: Path, *rows: dict[str, object]) -> None:
    with JsonLinesWriter(path) as writer:
        for row in rows:
            writer.write(row)


def test_each_row_is_on_disk_at_once_and_its_keys_keep_their_order(path: Path) -> None:
    with JsonLinesWriter(path) as writer:
        writer.write({"round": 0, "node": "kim", "a": True})
        assert path.read_bytes() == b'{"round": 0, "node": "kim", "a": true}\n'
        writer.write({"b": 1, "a": 2})
        assert path.read_bytes().endswith(b'\n{"b": 1, "a": 2}\n')


def test_floats_come_back_exactly_and_non_finite_ones_as_null(path: Path) -> None:
    write(path, {"x": 0.1 + 0.2, "nan": float("nan"), "deep": {"list": [float("inf"), (float("-inf"), 1)]}})
    assert read_jsonl(path) == [{"x": 0.1 + 0.2, "nan": None, "deep": {"list": [None, [None, 1]]}}]


def test_any_text_stays_on_one_line(path: Path) -> None:
    text = "a\nb\r\u2028\x00\ud800 \U0001f600"
    write(path, {"text": text}, {"text": ""})
    assert path.read_bytes().count(b"\n") == 2
    assert read_jsonl(path) == [{"text": text}, {"text": ""}]


def test_reopening_appends(path: Path) -> None:
    write(path, {"round": 0})
    write(path, {"round": 1})
    assert read_jsonl(path) == [{"round": 0}, {"round": 1}]


@pytest.mark.parametrize("torn", [b"{", b'{"round": 1}', b"x" * 200_000])
@pytest.mark.parametrize("before", [b"", b'{"round": 0}\n'])
def test_reopening_cuts_a_torn_line(path: Path, before: bytes, torn: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(before + torn)
    write(path, {"round": 9})
    assert path.read_bytes() == before + b'{"round": 9}\n'


def test_a_value_that_is_no_json_leaves_no_part_of_its_row(path: Path) -> None:
    with JsonLinesWriter(path) as writer, pytest.raises(TypeError, match="serializable"):
        writer.write({"round": 0, "set": {1}})
    assert path.read_bytes() == b""


def test_keep_rounds_below(path: Path) -> None:
    write(path, {"round": 0, "x": 1.0}, {"event": "joined"}, {"round": 2}, {"round": 1, "x": None}, {"round": 3})
    kept = path.read_bytes().splitlines(keepends=True)
    with path.open("ab") as file:
        file.write(b'{"round": 0, "torn')
    keep_rounds_below(path, 2)
    assert path.read_bytes() == kept[0] + kept[1] + kept[3]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_keep_rounds_below_without_a_file(path: Path) -> None:
    keep_rounds_below(path, 3)
    assert not path.exists()


def test_keep_rounds_below_leaves_a_damaged_file_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'oops\n{"round": 1}\n')
    with pytest.raises(RunFailed, match=r"kim\.jsonl:1"):
        keep_rounds_below(path, 1)
    assert path.read_bytes() == b'oops\n{"round": 1}\n'


def test_write_json_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"long": "x" * 100})
    write_json(path, {"accuracy": float("nan"), "nodes": {"kim": 1}})
    assert json.loads(path.read_text()) == {"accuracy": None, "nodes": {"kim": 1}}
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]
