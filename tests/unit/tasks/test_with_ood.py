from __future__ import annotations

import json

import pytest

from motet.errors import UsageError
from motet.tasks import Faults, Prompt, RunningSums, Score, faults_of, load_task
from motet.tasks.with_ood import WithOod


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, first in (("a", 0), ("b", 15)):
        rows = [{"prompt": f"{i}+1=", "answer": i + 1} for i in range(first, first + 20)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_ood_prompts_are_the_other_tasks_test_prompts_and_scored_by_it(folder):
    task = load_task(name="running_sums", ood="a.jsonl")
    assert [task.num_prompts(split) for split in ("train", "test", "ood")] == [100_000, 4096, 2]
    assert task.prompt("train/0") == RunningSums().prompt("train/0")
    prompt = task.prompt("ood/1")
    assert (prompt.id, prompt.text, prompt.answer) == ("ood/1", "19+1=", "20")
    assert [score.value for score in task.score(prompt, ["20", "x 20;"])] == [1.0, 0.0]
    assert task.score(task.prompt("train/0"), ["15.23;"])[0].parts == {"answer": 1.0, "working": 1.0}
    with pytest.raises(KeyError):
        task.prompt("ood/2")


def test_what_is_trained_on_is_left_out_of_ood(folder):
    rows = [{"prompt": f"{i}+1=", "answer": i + 1} for i in (*range(100, 109), 3, *range(110, 119), 50)]
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = load_task(name="a.jsonl", ood="c.jsonl")
    assert (task.num_left_out, task.num_prompts("ood")) == (1, 1)
    prompt = task.prompt("ood/0")
    assert prompt.text == "50+1="
    assert task.score(prompt, ["51"])[0].value == 1.0
    rows[-1] = {"prompt": "4+1=", "answer": 5}
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError, match=r"task\.ood: d has no test prompts that are not trained on") as caught:
        load_task(name="a.jsonl", ood="d.jsonl")
    assert caught.value.code == "E-TASK-05"


def test_fingerprint_is_of_both(folder):
    made = [("a.jsonl", None), ("a.jsonl", "b.jsonl"), ("b.jsonl", "a.jsonl"), ("running_sums", "b.jsonl")]
    assert len({load_task(name=name, ood=ood).fingerprint for name, ood in made}) == 4


def test_faults_of_both_add_up():
    class Failing(RunningSums):
        def __init__(self, faults):
            super().__init__()
            self.faults = faults

        def score(self, prompt: Prompt, completions) -> list[Score | None]:  # noqa: ARG002
            return [None] * len(completions)

    task = WithOod(Failing(Faults(raised=1, first="a")), Failing(Faults(timed_out=2, first="b")))
    assert faults_of(task) == Faults(raised=1, timed_out=2, first="a")
