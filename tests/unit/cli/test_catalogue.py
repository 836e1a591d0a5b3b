from __future__ import annotations

import re
from pathlib import Path

import pytest

from motet.cli.catalogue import CATALOGUE

SOURCES = Path(__file__).parents[3] / "src/motet"


def used_codes() -> set[str]:
    """Codes that stand in quotes anywhere in the sources, but in the catalogue and as an example in `errors`."""
    return {
        code
        for path in SOURCES.rglob("*.py")
        if path.name != "errors.py" and path.parent.name != "catalogue"
        for code in re.findall(r'"(E-[A-Z]+-\d+)"', path.read_text(encoding="utf-8"))
    }


def test_no_code_stands_in_two_areas() -> None:
    areas = (SOURCES / "cli/catalogue").glob("*.py")
    codes = [
        code for path in areas for code in re.findall(r'^    "(E-[A-Z]+-\d+)": ', path.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(codes) == sorted(CATALOGUE)


def test_every_code_that_is_used_is_explained() -> None:
    assert used_codes() - set(CATALOGUE) == set()


def test_every_code_that_is_explained_is_used() -> None:
    assert set(CATALOGUE) - used_codes() == set()


@pytest.mark.parametrize("code", CATALOGUE)
def test_an_entry_says_what_and_why_and_what_to_do(code: str) -> None:
    entry = CATALOGUE[code]
    assert re.fullmatch(r"E-[A-Z]+-\d\d", code)
    assert entry.title
    assert not entry.title.endswith(".")
    assert entry.happened.endswith(".")
    assert entry.why.endswith(".")
    assert entry.todo
    assert all(text.isascii() for text in (entry.title, entry.happened, entry.why, entry.todo))
