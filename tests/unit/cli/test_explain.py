from __future__ import annotations

import pytest

from motet.cli.catalogue import CATALOGUE
from motet.cli.main import main


@pytest.mark.parametrize("code", ["E-CONFIG-03", "e-config-03", "[E-CONFIG-03]"])
def test_a_code_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    out = capsys.readouterr().out
    title, *rest = out.splitlines()
    assert title == "E-CONFIG-03: wrong settings"
    assert [line.split("  ")[0] for line in rest if not line.startswith(" ")] == ["What", "Why", "Do this"]
    assert all(len(line) <= 88 for line in rest)
    assert CATALOGUE["E-CONFIG-03"].why in " ".join(out.split())


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(CATALOGUE)


@pytest.mark.parametrize(("code", "nearest"), [("E-CONFIG-3", "E-CONFIG-03"), ("CONFIG-03", "E-CONFIG-03")])
def test_an_unknown_code_gets_the_nearest(code: str, nearest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: no error code {code}; did you mean {nearest}")
    assert "[E-CLI-03]" in err


def test_a_code_like_no_other_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "???"]) == 2
    assert capsys.readouterr().err.startswith("error: no error code ??? (`motet explain` lists all)")
