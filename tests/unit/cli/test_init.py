from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from motet.cli.init import starting_file
from motet.cli.main import main
from motet.config import all_settings, json_schema, load_run_file
from motet.config.fields import all_sections


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_written_file_loads(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert capsys.readouterr().out == "wrote run.toml\nnext: motet swarm run.toml --dry-run\n"
    run = load_run_file(here / "run.toml")
    assert (run.run.name, run.task.name) == ("run", "running_sums")
    assert [node.model for node in run.node] == ["tiny:small", "tiny:large"]


def test_it_is_the_run_of_configs() -> None:
    main(["init", "sums.toml"])
    ours = load_run_file(Path(__file__).parents[3] / "configs/sums.toml")
    assert load_run_file("sums.toml") == ours


def test_every_setting_and_section_stands_in_it_with_its_meaning() -> None:
    text = starting_file("x", "running_sums", schema="s.json")
    assert all(f"[{section}]" in text and purpose in text for section, purpose in all_sections().items())
    flowing = " ".join(text.replace("\n# ", " ").split())
    for setting in all_settings().values():
        assert re.search(rf"(?m)^(# )?{setting.key.rpartition('.')[2]} =", text), setting.key
        assert setting.description in flowing, setting.key
        assert all(choice in text for choice in setting.choices), setting.key


def test_defaults_in_comments_are_the_defaults() -> None:
    """Taking away the # of every setting that has a default changes nothing."""
    text = starting_file("x", "running_sums", schema="s.json")
    live = re.sub(r"(?m)^# (\w+ = .+|\[node\.\w+\])$", r"\1", text)
    before, after = tomllib.loads(text), tomllib.loads(live)
    for key, setting in all_settings().items():
        section, _, name = key.rpartition(".")
        if section.startswith("node"):
            continue
        expected: Any = before[section].get(name, setting.default)
        assert after[section].get(name) == (list(expected) if isinstance(expected, tuple) else expected), key
    assert after["node"][0]["lora"] == {"rank": 8, "alpha": 16.0, "target_modules": "all-linear"}


def test_nothing_is_overwritten_unasked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "run.toml").write_text("mine")
    assert main(["init"]) == 2
    assert "run.toml: there already; --force overwrites it  [E-CLI-05]" in capsys.readouterr().err
    assert (here / "run.toml").read_text() == "mine"
    assert main(["init", "--force"]) == 0
    assert load_run_file(here / "run.toml").run.name == "run"


def test_neither_file_is_written_if_one_cannot_be(here: Path) -> None:
    (here / "run.toml").write_text("mine")
    assert main(["init", "run.toml", "--schema", "s.json"]) == 2
    assert not (here / "s.json").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["init", "."], ".: a folder; name a file to write"),
        (["init", "no/run.toml"], "no/run.toml: there is no folder no"),
        (["init", "--task", "sum.jsonl"], '--task sum.jsonl: no such file; allowed: "running_sums", or'),
    ],
)
def test_mistakes(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_task_of_ones_own(here: Path) -> None:
    (here / "sums.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    assert main(["init", "--task", "sums.jsonl"]) == 0
    run = load_run_file(here / "run.toml")
    assert run.task.name == "sums.jsonl"
    assert not any(node.model.startswith("tiny:") for node in run.node)


def test_the_schema_is_written_and_named_in_the_first_line(here: Path) -> None:
    (here / "sub").mkdir()
    assert main(["init", "sub/run.toml", "--schema", "motet.json"]) == 0
    assert (here / "sub/run.toml").read_text().splitlines()[0] == "#:schema ../motet.json"
    assert (here / "motet.json").read_text() == json_schema()
    assert json.loads(json_schema())["title"]


def test_the_schema_alone(here: Path) -> None:
    assert main(["init", "--schema", "motet.json"]) == 0
    assert [path.name for path in here.iterdir()] == ["motet.json"]


@pytest.mark.parametrize(
    ("stem", "name"),
    [("sums", "sums"), ("my run", "my-run"), (".x", "run.x"), ("\u00e9", "run-"), ("a" * 80, "a" * 64)],
)
def test_the_run_is_named_after_the_file(stem: str, name: str) -> None:
    assert tomllib.loads(starting_file(stem, "running_sums", schema="s"))["run"]["name"] == name
