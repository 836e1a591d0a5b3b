"""`motet bench` as it is typed. Times are never judged here; that they are there, is."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from pathlib import Path
from typing import Any, Protocol

import pytest


class Ended(Protocol):
    code: int
    stdout: str
    stderr: str
    error: str


class Place(Protocol):
    path: Path

    def motet(self, *arguments: str | Path, **environment: str) -> Ended: ...
    def start(self, *arguments: str | Path, **environment: str) -> Any: ...


HAS_TRL = importlib.util.find_spec("trl") is not None
COMMON = {"seconds", "seconds_min", "seconds_all", "parts", "tokens_per_s", "memory_before", "peak", "settings", "did"}


def read(path: Path) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    return result


def check_frame(result: dict[str, Any], name: str) -> None:
    """What every result has."""
    assert result["bench"] == name
    assert result["date"].endswith("+00:00")
    assert {"cpu", "cores", "cores_usable", "platform", "python", "versions"} <= set(result["machine"])
    assert "settings" in result
    assert "figures" in result


def arms_of(pid: int) -> list[int]:
    """The processes that it measures."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == pid and b"spawn_main" in command:
                found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_learner_on_a_tiny_model(place: Place) -> None:
    ended = place.motet(
        *("bench", "learner", "--model", "tiny:small", "--arms", "plain,fast", "--repeats", "2"),
        *("--dtype", "fp32", "--json", "out/learner.json"),
    )
    assert ended.code == 0, ended.stderr
    result = read(place.path / "out/learner.json")
    check_frame(result, "learner")
    assert list(result["figures"]) == ["plain", "fast"]
    for figure in result["figures"].values():
        assert set(figure) >= COMMON | {"mfu", "mfu_of_needed", "flops", "flops_counted", "times_as_fast_as_plain"}
        assert len(figure["seconds_all"]) == 2
        assert figure["peak"] >= 0.5 * figure["memory_before"] > 0
        assert figure["did"]["samples/backward"] == 32
        assert figure["did"]["filter/dropped_share"] == 0.5
    plain, fast = (result["figures"][arm]["did"] for arm in ("plain", "fast"))
    assert plain["loss/value"] == pytest.approx(fast["loss/value"], rel=1e-4, abs=1e-6)
    assert plain["optim/grad_norm"] == pytest.approx(fast["optim/grad_norm"], rel=1e-3)
    assert result["flops"]["needed"] < result["flops"]["repeated"] < result["flops"]["all"]
    assert result["batch"]["external"] == result["batch"]["external_dropped"] == 0.5
    words = ended.stdout.split()
    assert {"plain", "fast", "measured", "equality", "rates"} <= set(words)
    assert "Traceback" not in ended.stderr
    assert "plain: step 2 of 2" in ended.stderr


@pytest.mark.slow
def test_generate_on_a_tiny_model(place: Place) -> None:
    ended = place.motet(
        *("bench", "generate", "--model", "tiny:small", "--repeats", "1", "--new-tokens", "4", "--prompts", "2"),
        *("--group-size", "3", "--json", "generate.json"),
    )
    assert ended.code == 0, ended.stderr
    result = read(place.path / "generate.json")
    check_frame(result, "generate")
    assert list(result["figures"]) == ["hf", "plain", "fast"]
    for figure in result["figures"].values():
        assert set(figure) >= COMMON | {"times_as_fast_as_hf", "peak_to_hf", "times_as_fast_as_plain"}
        assert figure["did"]["tokens"] == 2 * 3 * 4


def test_wire(place: Place) -> None:
    ended = place.motet("bench", "wire", "--repeats", "1", "--json", "wire.json")
    assert ended.code == 0, ended.stderr
    result = read(place.path / "wire.json")
    check_frame(result, "wire")
    assert len(result["figures"]) == 9
    assert all({"compact", "exact", "msgpack"} <= set(cell) for cell in result["figures"])
    assert "262,144" in ended.stdout


@pytest.mark.slow
def test_growth_draws_and_writes(place: Place) -> None:
    ended = place.motet(
        *("bench", "growth", "--factors", "group_size", "--steps", "2", "--repeats", "1"),
        *("--png", "out/growth.png", "--md", "out/growth.md", "--json", "growth.json"),
    )
    assert ended.code == 0, ended.stderr
    result = read(place.path / "growth.json")
    check_frame(result, "growth")
    figure = result["figures"]["group_size"]
    assert [row["at"] for row in figure["points"]] == [8, 16]
    assert set(figure["exponents"]) == {"seconds", "peak", "generate_s", "wire_s", "learn_s"}
    assert (place.path / "out/growth.png").read_bytes().startswith(b"\x89PNG")
    assert "| group_size | 16 |" in (place.path / "out/growth.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_overlap_leaves_out_what_this_version_does_not_know(place: Place) -> None:
    ended = place.motet("bench", "overlap", "--rounds", "4", "--repeats", "1", "--json", "overlap.json")
    assert ended.code == 0, ended.stderr
    result = read(place.path / "overlap.json")
    check_frame(result, "overlap")
    assert result["figures"]["one process"]["times_as_fast_as_one_process"] == 1.0
    left_out = ended.stderr.count("note: left out: ")
    assert len(result["figures"]) + left_out == 4


@pytest.mark.slow
def test_an_interruption_leaves_no_process(place: Place) -> None:
    with place.start("bench", "learner", "--model", "tiny:small", "--arms", "fast", "--repeats", "100000") as running:
        running.read_until("fast: step")
        arms = arms_of(running._process.pid)
        assert arms
        running.send(signal.SIGINT)
        ended = running.end()
    assert ended.code == 130
    assert ended.stderr.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in ended.stderr
    for pid in arms:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["learner", "--model", "tiny:smal"], 'no model "tiny:smal"; did you mean "tiny:small"?'),
        (["generate", "--model", "nowhere/x"], 'no model "nowhere/x"; models are smollm2-135m, tiny:small'),
        (["learner", "--arms", "fast,tlr"], 'no arm "tlr"; did you mean "trl"?; arms are trl, trl-docs, plain, fast'),
        (["generate", "--arms", ""], "--arms: name one or more of hf, plain, fast"),
        (["learner", "--shape", "44"], '--shape: got "44"; allowed: short (44,24), long (200,200), or two'),
        (["growth", "--factors", "cost"], 'no factor "cost"; factors are prompts, group_size'),
        (["--store"], "--store: stores what --quick measures; say both"),
        (["--quick", "wire"], "--quick measures its own choice; leave out wire"),
        ([], "say what to measure (learner, generate, wire, overlap, growth), or --quick"),
        (["learner", "--group-size", "1"], "got 1; allowed: a whole number from 2 up"),
    ],
)
def test_mistakes(place: Place, arguments: list[str], says: str) -> None:
    ended = place.motet("bench", *arguments)
    assert ended.code == 2
    assert says in ended.error


@pytest.mark.skipif(HAS_TRL, reason="TRL is installed")
def test_without_trl_one_line_says_how_to_get_it(place: Place) -> None:
    ended = place.motet("bench", "learner", "--arms", "trl")
    assert ended.code == 3
    assert "pip install 'motet[trl]'" in ended.error
