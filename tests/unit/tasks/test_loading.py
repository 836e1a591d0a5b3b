from __future__ import annotations

import pytest

from motet.config.settings import TaskSettings
from motet.errors import UsageError
from motet.tasks import JsonLinesTask, RunningSums, load_task

LINES = '{"prompt": "p", "answer": "1"}\n{"prompt": "q", "answer": "2"}\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.jsonl").write_text(LINES)
    (tmp_path / "more.json").write_text(LINES.replace('"q"', '"r"').replace('"p"', '"s"'))
    (tmp_path / "table.csv").write_text("prompt,answer\n")
    return tmp_path


def test_the_run_files_defaults_give_running_sums():
    task = load_task(**TaskSettings().model_dump())
    assert isinstance(task, RunningSums)
    assert task.fingerprint == load_task().fingerprint == RunningSums().fingerprint


def test_settings_reach_the_task(folder):
    assert load_task(name="running_sums", terms=(3,), ood_terms=(4,)).prompt("ood/0").columns["terms"] == 4
    task = load_task(name="sums.jsonl", reward="numeric", test_file="more.json", ood_file=None)
    assert isinstance(task, JsonLinesTask)
    assert (task.reward.name, task.num_prompts("train"), task.num_prompts("test")) == ("numeric", 2, 2)


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"name": "runing_sums"}, "E-TASK-01", 'task.name: "runing_sums" is unknown; did you mean "running_sums"?'),
        (
            {"name": "qqq"},
            "E-TASK-01",
            'task.name: "qqq" is unknown; allowed: "running_sums", "gsm8k", "math500", "gym',
        ),
        ({"name": "gsm8"}, "E-TASK-01", 'did you mean "gsm8k"?'),
        ({"name": "table.csv"}, "E-TASK-01", "table.csv is a file, but not named .jsonl"),
        ({"name": "sum.jsonl"}, "E-TASK-02", "task.name: no file sum.jsonl .*did you mean sums.jsonl"),
        ({"name": "data/sums.jsonl"}, "E-TASK-02", "there is no folder data"),
        ({"name": "zzz.json"}, "E-TASK-02", r"no file zzz.json \(looked in [^)]*\)$"),
        ({"test_file": "sums.jsonl"}, "E-TASK-01", 'task.test_file: is for JSON-lines files, but task.name = "running'),
        ({"prompt_column": "q"}, "E-TASK-01", "task.prompt_column: is for JSON-lines files"),
        ({"reward": "numeric"}, "E-TASK-01", "task.reward: is for JSON-lines files"),
        ({"name": "sums.jsonl", "terms": (3,)}, "E-TASK-01", 'task.terms: is for running_sums, but task.name = "sums'),
        ({"name": "gsm8k:x", "terms": (3,)}, "E-TASK-01", "task.terms: is for running_sums"),
        ({"arguments": {"a": 1}}, "E-TASK-01", "task.arguments: is for gym:<name> and installed tasks"),
        ({"name": "math500:x", "arguments": {"a": 1}}, "E-TASK-01", "task.arguments: is for gym:<name>"),
        ({"ood_arguments": {"a": 1}}, "E-TASK-01", "task.ood_arguments: are given, but task.ood is not"),
        ({"ood": "sums.jsonl", "ood_file": "x"}, "E-TASK-01", "task.ood_file: and task.ood are given"),
        ({"ood": "sum.jsonl"}, "E-TASK-02", "task.ood: no file sum.jsonl .*did you mean sums.jsonl"),
        ({"ood": "qqq"}, "E-TASK-01", 'task.ood: "qqq" is unknown'),
        ({"name": "gsm8k:nowhere"}, "E-TASK-12", r"task.name: no folder nowhere \(looked in"),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(folder, settings, code, words):
    with pytest.raises(UsageError, match=words.replace("?", r"\?")) as caught:
        load_task(**settings)
    assert caught.value.code == code


def test_the_reward_and_its_limit_reach_a_file(folder):
    pytest.importorskip("math_verify", reason="needs the extra tasks")
    task = load_task(name="sums.jsonl", reward="math", score_timeout_s=30.0)
    prompt = task.prompt("train/0")
    assert [score.value for score in task.score(prompt, ["it is 2/2", "2"])] == [1.0, 0.0]
