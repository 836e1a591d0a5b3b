from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motet.cli.guest_file import ELSEWHERE, guest_file, needed_files
from motet.config import RunFile, load_run_file

ADDRESSES = ("tls/relay.example.org:7447",)


def run_file(**sections: Any) -> RunFile:
    content: dict[str, Any] = {
        "run": {"name": "sums", "seed": 7, "dir": "/home/ann/runs", "trackers": ["tensorboard"]},
        "swarm": {"transport": "zenoh", "listen": ["tcp/0.0.0.0:7447"], "tls": "/home/ann/tls", "max_lag": 2},
        "node": [{"name": "small", "model": "tiny:small"}],
    }
    return RunFile.model_validate(content | sections)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def guests(run: RunFile) -> RunFile:
    text = guest_file(run, ADDRESSES)
    assert "/home/ann" not in text
    Path("guest.toml").write_text(text, encoding="utf-8")
    return load_run_file("guest.toml")


def test_what_must_agree_stays_and_what_is_the_inviters_goes() -> None:
    run = run_file()
    guest = guests(run)
    assert (guest.run.name, guest.run.seed) == ("sums", 7)
    assert (guest.run.dir, guest.run.trackers) == ("runs", ())
    assert (guest.swarm.listen, guest.swarm.tls, guest.swarm.max_lag) == ((), None, 2)
    assert guest.swarm.connect == ADDRESSES
    for section in ("task", "prompt", "rollout", "method", "learner", "admission", "evaluation"):
        assert getattr(guest, section) == getattr(run, section)


def test_of_nodes_only_what_means_the_same_everywhere() -> None:
    key = "ed25519:" + "0" * 64
    Path("local").mkdir()
    models = [
        "tiny:small",
        "pypi:some-model",
        "org/model",
        "org/model/sub",
        "/home/ann/model",
        "./m",
        "local",
        "m.gguf",
    ]
    nodes: list[dict[str, Any]] = [{"name": f"n{number}", "model": model} for number, model in enumerate(models)]
    nodes[2] |= {"revision": "main", "key": key, "device": "cuda:1", "learning_rate": 0.5, "lora": {"rank": 4}}
    nodes[4] |= {"revision": "main"}
    guest = guests(run_file(node=nodes))
    assert [node.name for node in guest.node] == [node["name"] for node in nodes]
    assert [node.model for node in guest.node] == [*models[:3], *[ELSEWHERE] * 5]
    kept = guest.node[2]
    assert (kept.revision, kept.key) == ("main", key)
    assert (kept.device, kept.learning_rate, kept.lora) == ("auto", None, None)
    assert guest.node[4].revision is None


@pytest.mark.parametrize(
    ("task", "in_file", "needed"),
    [
        ({"name": "running_sums"}, {"name": "running_sums"}, []),
        ({"name": "gsm8k"}, {"name": "gsm8k"}, []),
        ({"name": "gsm8k:/home/ann/gsm8k"}, {"name": "gsm8k:gsm8k"}, ["gsm8k"]),
        ({"name": "gym:chain_sum"}, {"name": "gym:chain_sum"}, []),
        ({"name": "data/sums.jsonl"}, {"name": "data/sums.jsonl"}, ["data/sums.jsonl"]),
        (
            {"name": "/home/ann/sums.jsonl", "test_file": "/home/ann/test.jsonl", "reward": "/home/ann/r.py:odd"},
            {"name": "sums.jsonl", "test_file": "test.jsonl", "reward": "r.py:odd"},
            ["sums.jsonl", "test.jsonl", "r.py"],
        ),
        ({"name": "tasks.py:Sums"}, {"name": "tasks.py:Sums"}, ["tasks.py"]),
        ({"name": "/home/ann/tasks.py:Sums"}, {"name": "tasks.py:Sums"}, ["tasks.py"]),
        ({"name": "C:\\Users\\ann\\sums.jsonl"}, {"name": "sums.jsonl"}, ["sums.jsonl"]),
        ({"name": "s.jsonl", "reward": "mine.rewards:odd"}, {"reward": "mine.rewards:odd"}, ["s.jsonl"]),
    ],
)
def test_files_keep_their_names_and_lose_their_folders(
    task: dict[str, Any], in_file: dict[str, str], needed: list[str]
) -> None:
    run = run_file(task=task)
    guest = guests(run)
    assert {key: getattr(guest.task, key) for key in in_file} == in_file
    assert needed_files(run) == needed
    assert needed_files(guest) == needed


def test_a_template_is_a_file_too() -> None:
    run = run_file(prompt={"template": "/home/ann/chat.jinja"})
    assert guests(run).prompt.template == "chat.jinja"
    assert needed_files(run) == ["chat.jinja"]
