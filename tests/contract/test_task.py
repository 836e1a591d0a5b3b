"""What every task must do. Another one passes by adding how it is made to `TASKS`."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import motet
from motet import tasks
from motet.tasks import SPLITS

LINES = "".join(
    json.dumps({"question": f"{i} + {i} =", "answer": f"#### {2 * i}", "level": i % 3}) + "\n" for i in range(40)
)
REWARDS = "def near(completions, level, **columns):\n    return [1 / (len(c) - 1) for c in completions]\n"
CHATS = "".join(
    json.dumps(
        {"prompt": [{"role": "system", "content": f"Story {i}"}, {"role": "user", "content": f"why {i}?"}], "answer": i}
    )
    + "\n"
    for i in range(40)
)
MATH = "".join(
    json.dumps({"question": f"What is {i} + {i}?", "answer": f"So it is {2 * i}.\n#### {2 * i}"}) + "\n"
    for i in range(60)
)
OWN_TASK = Path(__file__).parents[2] / "examples" / "own_task.py"
TASKS = {
    "running_sums": "RunningSums()",
    "running_sums, short": "RunningSums(terms=(2, 3), ood_terms=())",
    "jsonl, exact": "JsonLinesTask('sums.jsonl')",
    "jsonl, numeric": "JsonLinesTask('sums.jsonl', reward='numeric')",
    "jsonl, own reward": "JsonLinesTask('sums.jsonl', reward='rewards.py:near')",
    "jsonl, chats": "load_task(name='chats.jsonl')",
    "jsonl, math": "load_task(name='sums.jsonl', reward='math')",
    "gsm8k": "load_task(name='gsm8k:math')",
    "gym": "load_task(name='gym:chain_sum', arguments={'max_terms': 3, 'size': 500})",
    "own class": f"load_task(name='{OWN_TASK}:SortLetters')",
    "with ood": "load_task(name='running_sums', ood='sums.jsonl')",
}
NEEDS = {"jsonl, math": "math_verify", "gsm8k": "math_verify", "gym": "reasoning_gym"}
PRINT_ALL = """
import json
from motet.tasks import *
task = {make}
ids = [f"{{split}}/{{i}}" for split in SPLITS for i in range(min(50, task.num_prompts(split)))]
prompts = [task.prompt(i) for i in ids]
values = [[s and s.value for s in task.score(p, ["", "17", "8.16", p.answer, "x"])] for p in prompts]
print(json.dumps([task.name, task.fingerprint, [[p.id, p.text, p.answer] for p in prompts], values]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "sums.jsonl").write_text(LINES)
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "chats.jsonl").write_text(CHATS)
    (folder / "math").mkdir()
    lines = MATH.splitlines(keepends=True)
    (folder / "math" / "train.jsonl").write_text("".join(lines[:40]))
    (folder / "math" / "test.jsonl").write_text("".join(lines[40:]))
    return folder


@pytest.fixture(scope="module", params=TASKS.items(), ids=TASKS.keys())
def make(request, folder):
    """Makes the task, in a folder that has the files."""
    name, code = request.param
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason="needs the extra tasks")

    def make():
        here = Path.cwd()
        os.chdir(folder)
        try:
            return eval(code, vars(tasks))
        finally:
            os.chdir(here)

    make.code = code
    return make


@pytest.fixture(scope="module")
def task(make):
    return make()


def ids(task, split, most=300):
    return [f"{split}/{i}" for i in range(min(most, task.num_prompts(split)))]


class TestTask:
    def test_same_settings_give_the_same_task(self, make, task):
        twin = make()
        assert twin.fingerprint == task.fingerprint
        assert twin.name == task.name
        for split in SPLITS:
            assert twin.num_prompts(split) == task.num_prompts(split)
            assert [twin.prompt(i) for i in ids(task, split)] == [task.prompt(i) for i in ids(task, split)]

    def test_same_in_another_process_with_another_hash_seed(self, make, folder):
        def in_process(hash_seed):
            env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(motet.__path__[0]).parent)}
            code = PRINT_ALL.format(make=make.code)
            run = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, check=True)
            return json.loads(run.stdout)

        first, second = in_process("1"), in_process("2")
        assert first == second
        assert first[1] == make().fingerprint

    def test_prompts_know_their_ids_and_have_a_text(self, task):
        for split in SPLITS:
            for prompt_id in ids(task, split):
                prompt = task.prompt(prompt_id)
                assert prompt.id == prompt_id
                assert prompt.text

    def test_there_is_something_to_train_on_and_to_test(self, task):
        assert task.num_prompts("train") > 0
        assert task.num_prompts("test") > 0

    def test_splits_are_disjoint(self, task):
        texts = {split: {task.prompt(i).text for i in ids(task, split, 3000)} for split in SPLITS}
        assert not texts["train"] & texts["test"]
        assert not texts["train"] & texts["ood"]

    @pytest.mark.parametrize("split", SPLITS)
    def test_the_first_id_beyond_the_end_does_not_exist(self, task, split):
        count = task.num_prompts(split)
        with pytest.raises(KeyError):
            task.prompt(f"{split}/{count}")
        if count:
            assert task.prompt(f"{split}/{count - 1}").text

    @given(prompt_id=st.text() | st.builds("{}/{}".format, st.sampled_from([*SPLITS, "x"]), st.integers() | st.text()))
    def test_any_text_is_an_id_or_a_key_error(self, task, prompt_id):
        try:
            prompt = task.prompt(prompt_id)
        except KeyError:
            return
        assert prompt.id == prompt_id

    @given(
        completions=st.lists(st.text() | st.text("0123456789.;,-/+ e") | st.sampled_from(["17", "\ud800", "9" * 5000])),
        index=st.integers(0, 30),
    )
    @settings(suppress_health_check=[HealthCheck.too_slow])
    def test_score_gives_one_finite_value_or_none_for_any_text(self, task, completions, index):
        prompt = task.prompt(f"train/{index}")
        scores = task.score(prompt, completions)
        assert len(scores) == len(completions)
        assert all(score is None or math.isfinite(score.value) for score in scores)
        alone = [task.score(prompt, [completion])[0] for completion in completions]
        assert scores == alone
