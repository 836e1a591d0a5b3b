from __future__ import annotations

import pytest

from motet.cli.console import make_console


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    make_console().print("text", style="bold red")
    return capsys.readouterr().out


def test_a_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == "text\n"
    assert not make_console().is_terminal


def test_force_color_colours_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in printed(capsys)


def test_no_color_takes_colours_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in printed(capsys)


def test_strangers_text_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    make_console().print("[red]x[/red] :smile:")
    assert capsys.readouterr().out == "[red]x[/red] :smile:\n"


def test_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    make_console(stderr=True).print("text")
    assert capsys.readouterr() == ("", "text\n")
