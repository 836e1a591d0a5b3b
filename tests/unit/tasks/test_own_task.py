from __future__ import annotations

from pathlib import Path

import pytest

from motet.errors import UsageError
from motet.tasks import Faults, faults_of, load_task, own_task

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_task.py"
CODE = """
import itertools, os, time
from motet.errors import UsageError
from motet.tasks import Prompt, Score

calls = itertools.count()

class Good:
    name = "good"
    def __init__(self, step=1, start=0):
        self.step, self.fingerprint = step, f"good {step}"
    def num_prompts(self, split):
        return {"train": 10, "test": 5, "ood": 0}[split]
    def prompt(self, prompt_id):
        if prompt_id == "train/7":
            raise ValueError("no seventh")
        if prompt_id == "train/8":
            os._exit(5)
        number = int(prompt_id.split("/")[1]) * self.step
        return Prompt(prompt_id, f"{number}+1=", str(number + 1), {"when": {1, 2}})
    def score(self, prompt, completions):
        scores = []
        for text in completions:
            while text == "hang":
                pass
            if text == "raise":
                raise RuntimeError("not this")
            scores.append(None if text == "none" else Score(float(text == prompt.answer), extracted=text))
        return scores

class NoScore(Good):
    score = property()

class NotATask:
    name = "x"

class Random(Good):
    def prompt(self, prompt_id):
        return Prompt(prompt_id, str(next(calls)), "")

class Drifts(Good):
    def __init__(self):
        super().__init__()
        self.number = next(calls)
    def prompt(self, prompt_id):
        return Prompt(prompt_id, str(self.number), "")

class WrongId(Good):
    def prompt(self, prompt_id):
        return Prompt("train/3", "x", "")

class Empty(Good):
    def num_prompts(self, split):
        return 0

class OneScore(Good):
    def score(self, prompt, completions):
        return [Score(1.0)]

class Numbers(Good):
    def score(self, prompt, completions):
        return [1.0] * len(completions)

class Nan(Good):
    def score(self, prompt, completions):
        return [Score(float("nan"))] * len(completions)

class Refuses(Good):
    def __init__(self):
        raise UsageError("task.arguments: say more", code="E-OWN-01")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


def test_a_class_in_a_file_with_arguments(folder, monkeypatch, tmp_path_factory):
    task = load_task(name="own.py:Good", arguments={"step": 3}, score_timeout_s=0.5)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert (task.name, task.num_prompts("train"), task.num_prompts("ood")) == ("good", 10, 0)
    prompt = task.prompt("train/2")
    assert (prompt.text, prompt.answer) == ("6+1=", "7")
    found = task.score(prompt, ["7", "hang", "raise", "none", "8"])
    assert [score and score.value for score in found] == [1.0, None, None, None, 0.0]
    assert faults_of(task) == Faults(raised=1, timed_out=1, first="scoring stopped after 0.5 s")


def test_a_prompt_that_cannot_be_made_is_named(folder):
    task = load_task(name="own.py:Good")
    with pytest.raises(Exception, match=r"good: prompt train/7 could not be made: ValueError: no seventh") as caught:
        task.prompt("train/7")
    assert caught.value.code == "E-TASK-10"
    with pytest.raises(Exception, match=r"train/8 could not be made: the scoring process ended \(exit code 5\)"):
        task.prompt("train/8")
    assert task.prompt("train/6").text == "6+1="


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("own.py:Goood", {}, "task.name: own.py has no class 'Goood'; it has: .*Good"),
        ("other.py:Good", {}, "task.name: no file other.py"),
        ("no_such_module:Good", {}, "no_such_module cannot be imported: ModuleNotFoundError"),
        ("own.py:Good", {"stop": 1}, r"own.py:Good cannot be made: TypeError: .*unexpected keyword argument 'stop'"),
        ("own.py:NotATask", {}, "is no task: it has no fingerprint, num_prompts, prompt, score"),
        ("own.py:NoScore", {}, "is no task: it has no score"),
        ("own.py:Random", {}, 'failed when tried: ValueError: prompt."train/0". gave another prompt the second time'),
        ("own.py:Drifts", {}, "gave another prompt the second time"),
        ("own.py:WrongId", {}, "gave no Prompt of this id with a text"),
        ("own.py:Empty", {}, "there is nothing to train on"),
        ("own.py:OneScore", {}, "gave something else than a Score or None for each of two"),
        ("own.py:Numbers", {}, "gave something else than a Score or None for each of two"),
        ("own.py:Nan", {}, "a value that is not finite"),
    ],
)
def test_what_is_no_task_is_refused_at_the_start(folder, monkeypatch, name, arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        own_task.load_own_task(name, arguments)
    assert caught.value.code == "E-TASK-09"
    assert "\n" not in str(caught.value)


def test_an_error_of_the_tasks_own_keeps_its_code(folder):
    with pytest.raises(UsageError, match=r"task\.arguments: say more") as caught:
        load_task(name="own.py:Refuses")
    assert caught.value.code == "E-OWN-01"


def test_fingerprint_follows_arguments_and_source(folder):
    first = own_task.load_own_task("own.py:Good", {}).fingerprint
    assert own_task.load_own_task("own.py:Good", {}).fingerprint == first
    assert own_task.load_own_task("own.py:Good", {"step": 2}).fingerprint != first
    (folder / "own.py").write_text(CODE + "\n# changed\n")
    assert own_task.load_own_task("own.py:Good", {}).fingerprint != first


def test_an_installed_task_is_found_by_its_entry_point(folder):
    package = folder / "sums-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: sums\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[motet.tasks]\nmy_sums = own:Good\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        assert own_task.installed_tasks() == ["my_sums"]
        task = load_task(name="my_sums", arguments={"step": 2})
        with pytest.raises(UsageError, match='did you mean "my_sums"'):
            load_task(name="my_sum")
    assert task.prompt("test/2").text == "4+1="


def test_the_example_works():
    task = load_task(name=f"{EXAMPLE}:SortLetters", arguments={"length": 4})
    prompt = task.prompt("train/0")
    right, half, none = task.score(prompt, [prompt.answer, prompt.answer[:3], ""])
    assert (right.value, half.value, none.value) == (1.0, 0.5, 0.0)
    texts = {split: {task.prompt(f"{split}/{i}").text for i in range(200)} for split in ("train", "test")}
    assert not texts["train"] & texts["test"]
