from __future__ import annotations

import json
import time

import pytest

from motet.errors import EnvironmentFault, UsageError
from motet.tasks import load_task
from motet.tasks.math_sets import INSTRUCTION, gsm8k_answer

pytest.importorskip("math_verify", reason="needs the extra tasks")
datasets = pytest.importorskip("datasets", reason="needs the extra tasks")

GSM8K = [
    {
        "question": f"Ann has {i} apples and buys {i * 500}. How many has she?",
        "answer": f"{i}+{i * 500}=<<{i}+{i * 500}={i * 501}>>{i * 501}\n#### {i * 501:,}",
    }
    for i in range(6)
]
MATH500 = [
    {
        "problem": f"What is $\\frac{{{i}}}{{7}}$ plus $1$?",
        "solution": f"It is $\\boxed{{\\frac{{{i + 7}}}{{7}}}}$.",
        "answer": f"\\frac{{{i + 7}}}{{7}}",
        "subject": "Prealgebra",
        "level": 1 + i,
        "unique_id": f"test/prealgebra/{i}.json",
    }
    for i in range(1, 4)
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def gsm8k(tmp_path):
    """A copy of the hub's repository: parquet files in a folder for each configuration."""
    main, other = tmp_path / "gsm8k" / "main", tmp_path / "gsm8k" / "socratic"
    for folder, rows in ((main, GSM8K), (other, GSM8K[:1])):
        folder.mkdir(parents=True)
        datasets.Dataset.from_list(rows[:4]).to_parquet(folder / "train-00000-of-00001.parquet")
        datasets.Dataset.from_list(rows[4:] or rows).to_parquet(folder / "test-00000-of-00001.parquet")
    return tmp_path / "gsm8k"


@pytest.fixture
def math500(tmp_path):
    folder = tmp_path / "MATH-500"
    folder.mkdir()
    write_lines(folder / "test.jsonl", MATH500)
    return folder


def test_gsm8k_from_a_copy_of_its_repository(gsm8k):
    task = load_task(name=f"gsm8k:{gsm8k}")
    assert (task.name, [task.num_prompts(split) for split in ("train", "test", "ood")]) == ("gsm8k", [4, 2, 0])
    prompt = task.prompt("test/0")
    assert [tuple(message) for message in prompt.messages] == [
        ("system", INSTRUCTION),
        ("user", GSM8K[4]["question"]),
    ]
    assert prompt.text == f"{INSTRUCTION}\n\n{GSM8K[4]['question']}"
    assert (prompt.answer, prompt.columns) == ("2004", GSM8K[4])
    right, wrong, no_box = task.score(prompt, ["So \\boxed{2,004}.", "\\boxed{2005}", "#### 2004"])
    assert (right.value, right.parts, right.extracted) == (1.0, {"format": 1.0, "answer": 1.0}, "2,004")
    assert (wrong.value, wrong.parts) == (0.0, {"format": 1.0, "answer": 0.0})
    assert (no_box.value, no_box.parts) == (0.0, {"format": 0.0, "answer": 0.0})


def test_json_lines_give_the_same_task_as_parquet(gsm8k, tmp_path):
    lines = tmp_path / "lines"
    lines.mkdir()
    write_lines(lines / "train.jsonl", GSM8K[:4])
    write_lines(lines / "test.jsonl", GSM8K[4:])
    assert load_task(name=f"gsm8k:{lines}").fingerprint == load_task(name=f"gsm8k:{gsm8k}").fingerprint


def test_a_training_problem_that_is_tested_is_left_out(tmp_path):
    write_lines(tmp_path / "train.jsonl", GSM8K)
    write_lines(tmp_path / "test.jsonl", GSM8K[2:3])
    task = load_task(name=f"gsm8k:{tmp_path}")
    texts = [task.prompt(f"train/{i}").columns["question"] for i in range(task.num_prompts("train"))]
    assert texts == [row["question"] for row in (*GSM8K[:2], *GSM8K[3:])]


def test_math500_is_for_ood_and_evaluation(gsm8k, math500):
    with pytest.raises(UsageError, match=r"has no training prompts, only test prompts; use it as task\.ood") as caught:
        load_task(name=f"math500:{math500}")
    assert caught.value.code == "E-TASK-13"
    alone = load_task(name=f"math500:{math500}", for_training=False)
    assert alone.num_prompts("test") == 3
    task = load_task(name=f"gsm8k:{gsm8k}", ood=f"math500:{math500}")
    prompt = task.prompt("ood/1")
    assert (prompt.id, prompt.answer) == ("ood/1", MATH500[1]["answer"])
    scores = task.score(prompt, [MATH500[1]["solution"], "\\boxed{9/7}", "\\boxed{1}"])
    assert [score.value for score in scores] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("solution", "answer"),
    [("a #### 1,234", "1234"), ("a #### b\n#### -5", "-5"), ("no mark", None), ("####  ", None), ("####12", "12")],
)
def test_gsm8k_answer(solution, answer):
    assert gsm8k_answer(solution) == answer


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("gsm8k", {"question": "q", "answer": "42"}, r"test.jsonl:1: 'answer' has no number after ####"),
        (
            "gsm8k",
            {"problem": "q", "answer": "#### 2"},
            r"test.jsonl:1: 'question' must be a text .*'problem', 'answer'",
        ),
        ("math500", {"problem": "q", "answer": " "}, r"test.jsonl:1: 'answer' must be a text that is not empty"),
        ("math500", {}, r"test.jsonl:1: 'problem' must be .*columns: none$"),
    ],
)
def test_rows_of_another_form_are_named(tmp_path, name, row, words):
    write_lines(tmp_path / "test.jsonl", [row])
    with pytest.raises(UsageError, match=words) as caught:
        load_task(name=f"{name}:{tmp_path}", for_training=False)
    assert caught.value.code == "E-TASK-12"


def test_folders_without_the_files_and_damaged_files_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"has no file test\*\.parquet or test\*\.jsonl") as caught:
        load_task(name=f"gsm8k:{tmp_path}")
    assert caught.value.code == "E-TASK-12"
    (tmp_path / "test.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match=r"task.name: cannot read .*test\.parquet: ") as caught:
        load_task(name=f"gsm8k:{tmp_path}")
    assert "\n" not in str(caught.value)


def test_without_network_or_cache_one_line_says_so_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    start = time.monotonic()
    with pytest.raises(
        EnvironmentFault, match="openai/gsm8k is not in the local cache and cannot be fetched"
    ) as caught:
        load_task(name="gsm8k")
    assert caught.value.code == "E-TASK-11"
    assert "gsm8k" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 20
