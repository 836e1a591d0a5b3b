from __future__ import annotations

import json

import pytest

from motet.errors import UsageError
from motet.tasks import JsonLinesTask


@pytest.fixture
def write(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        if isinstance(rows, bytes):
            path.write_bytes(rows)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def sums(count, start=0, prompt="prompt", answer="answer"):
    return [{prompt: f"{i}+1=", answer: i + 1, "level": i % 3} for i in range(start, start + count)]


def texts(task, split):
    return [task.prompt(f"{split}/{i}").text for i in range(task.num_prompts(split))]


def test_every_tenth_line_is_held_out(write):
    task = JsonLinesTask(write("sums.jsonl", sums(25)))
    assert (task.name, task.num_left_out) == ("sums", 0)
    assert texts(task, "test") == ["9+1=", "19+1="]
    assert len(texts(task, "train")) == 23
    assert texts(task, "ood") == []
    assert not set(texts(task, "train")) & set(texts(task, "test"))


def test_of_fewer_than_ten_lines_the_last_is_held_out(write):
    task = JsonLinesTask(write("sums.jsonl", sums(3)))
    assert (texts(task, "train"), texts(task, "test")) == (["0+1=", "1+1="], ["2+1="])


def test_files_for_the_other_splits(write):
    task = JsonLinesTask(
        write("a.jsonl", sums(12)), test_file=write("b.jsonl", sums(3, 100)), ood_file=write("c.jsonl", sums(2, 1000))
    )
    assert [task.num_prompts(split) for split in ("train", "test", "ood")] == [12, 3, 2]
    assert task.prompt("ood/1").answer == "1002"


def test_training_lines_whose_prompt_is_held_out_are_left_out_and_counted(write):
    rows = sums(10) + sums(1, 9)
    task = JsonLinesTask(write("a.jsonl", rows))
    assert task.num_left_out == 1
    assert "9+1=" not in texts(task, "train")
    path = write("b.jsonl", sums(4))
    with pytest.raises(UsageError, match="every training prompt is also held out") as caught:
        JsonLinesTask(path, test_file=path)
    assert caught.value.code == "E-TASK-05"


@pytest.mark.parametrize("prompt", ["prompt", "question", "problem"])
@pytest.mark.parametrize("answer", ["answer", "solution", "target"])
def test_usual_columns_are_found(write, prompt, answer):
    task = JsonLinesTask(write("a.jsonl", sums(4, prompt=prompt, answer=answer)))
    assert (task.prompt("train/1").text, task.prompt("train/1").answer) == ("1+1=", "2")
    assert task.prompt("train/1").columns == {prompt: "1+1=", answer: 2, "level": 1}


def test_columns_can_be_set(write):
    rows = [{"prompt": "no", "q": f"{i}", "a": f"{i}", "answer": "no"} for i in range(4)]
    task = JsonLinesTask(write("a.jsonl", rows), prompt_column="q", answer_column="a")
    assert (task.prompt("train/2").text, task.prompt("train/2").answer) == ("2", "2")


def test_blank_lines_crlf_bom_and_line_separators_inside_texts_are_fine(write):
    line = '{"prompt": "a\u2028b", "answer": 1.5}\r\n\r\n'
    task = JsonLinesTask(write("a.jsonl", b"\xef\xbb\xbf" + (line + line.replace("a", "c", 1)).encode() * 1))
    assert task.prompt("train/0").text == "a\u2028b"
    assert task.prompt("train/0").answer == "1.5"


GOOD = b'{"prompt": "p", "answer": "a"}\n'


@pytest.mark.parametrize(
    ("second_line", "code", "words"),
    [
        (b"{broken", "E-TASK-03", r"a.jsonl:2: is not JSON: .*one object a line"),
        (b"[" * 100_000, "E-TASK-03", "a.jsonl:2: is not JSON"),
        (b'{"prompt": "\xff"}', "E-TASK-03", r"a.jsonl:2: is not UTF-8 \(byte 13 of the line\)"),
        (b'["p", "a"]', "E-TASK-03", "a.jsonl:2: is a JSON list"),
        (b"3", "E-TASK-03", "a.jsonl:2: is a JSON int"),
        (
            b'{"promt": "p", "answer": "a"}',
            "E-TASK-04",
            "a.jsonl:2: no column 'prompt' or 'question' or 'problem' for the prompt; columns present: "
            "'promt', 'answer'. Set task.prompt_column, such as task.prompt_column = \"promt\"",
        ),
        (
            b'{"prompt": "p", "result": "a"}',
            "E-TASK-04",
            "a.jsonl:2: no column 'answer' or 'solution' or 'target' for the answer; columns present: "
            "'prompt', 'result'. Set task.answer_column",
        ),
        (b"{}", "E-TASK-04", "columns present: none. Set task.prompt_column$"),
        (b'{"prompt": [], "answer": "a"}', "E-TASK-04", "a.jsonl:2: 'prompt' is an empty list of messages"),
        (
            b'{"prompt": [{"role": "user", "content": "p"}, {"role": "user"}], "answer": "a"}',
            "E-TASK-04",
            r"a.jsonl:2: 'prompt'\[1\] is no message; write ",
        ),
        (
            b'{"prompt": [{"role": "system", "content": "\\ud800"}, {"role": "user", "content": "p"}], "answer": "a"}',
            "E-TASK-04",
            "a.jsonl:2: 'prompt' holds half of a surrogate",
        ),
        (b'{"prompt": "", "answer": "a"}', "E-TASK-04", "a.jsonl:2: 'prompt' must be a text that is not empty"),
        (b'{"prompt": 3, "answer": "a"}', "E-TASK-04", "a.jsonl:2: 'prompt' must be a text"),
        (b'{"prompt": "p", "answer": null}', "E-TASK-04", "a.jsonl:2: 'answer' must be a text or a number"),
        (b'{"prompt": "p", "answer": true}', "E-TASK-04", "a.jsonl:2: 'answer' must be a text or a number"),
        (b'{"prompt": "\\ud800", "answer": "a"}', "E-TASK-04", "a.jsonl:2: 'prompt' holds half of a surrogate"),
    ],
)
def test_a_wrong_line_is_named_with_what_to_do(write, second_line, code, words):
    path = write("a.jsonl", GOOD + second_line + b"\n")
    with pytest.raises(UsageError, match=words) as caught:
        JsonLinesTask(path)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_a_wrong_setting_names_the_nearest_column(write):
    path = write("a.jsonl", [{"questions": "p", "prompt": "p", "answer": "a"}] * 2)
    with pytest.raises(UsageError, match=r"no column 'question' .*such as task.prompt_column = .questions"):
        JsonLinesTask(path, prompt_column="question")


def test_numeric_reward_wants_numbers_as_answers(write):
    with pytest.raises(UsageError, match=r"a.jsonl:1: 'answer' holds no number"):
        JsonLinesTask(write("a.jsonl", GOOD * 2), reward="numeric")


@pytest.mark.parametrize(("content", "words"), [(b"\n \n", "has no lines"), (GOOD, "has one line")])
def test_too_few_lines(write, content, words):
    with pytest.raises(UsageError, match=words) as caught:
        JsonLinesTask(write("a.jsonl", content))
    assert caught.value.code == "E-TASK-05"


def test_files_that_cannot_be_read(write, tmp_path):
    with pytest.raises(UsageError, match=r"task.test_file: cannot read .*gone.jsonl: No such file") as caught:
        JsonLinesTask(write("a.jsonl", sums(3)), test_file=tmp_path / "gone.jsonl")
    assert caught.value.code == "E-TASK-02"
    with pytest.raises(UsageError, match=r"task.name: cannot read"):
        JsonLinesTask(tmp_path)


def test_own_reward_is_tried_and_gets_the_columns(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(
        "def near(completions, answer, level):\n"
        "    return [l + float(c == str(a)) for c, a, l in zip(completions, answer, level)]\n"
    )
    task = JsonLinesTask(write("a.jsonl", sums(4)), reward="rewards.py:near")
    assert [score.value for score in task.score(task.prompt("train/2"), ["3", "4"])] == [3.0, 2.0]
    with pytest.raises(UsageError, match="asks for 'level', which is no column"):
        JsonLinesTask(write("b.jsonl", GOOD + GOOD.replace(b'"p"', b'"q"')), reward="rewards.py:near")


def test_own_reward_needs_no_answers(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(
        "def short(completions):\n    return [float(len(c) < 3) for c in completions]\n"
    )
    rows = [{"prompt": f"p{i}", "solution": [1, 2]} for i in range(3)] + [{"prompt": "p3"}]
    task = JsonLinesTask(write("a.jsonl", rows), reward="rewards.py:short")
    assert task.prompt("train/0").answer == ""
    assert task.score(task.prompt("train/0"), ["abcd"])[0].value == 0.0


def test_fingerprint_follows_contents_columns_and_reward_but_not_the_path(write):
    def fingerprint(name, rows, **settings):
        return JsonLinesTask(write(name, rows), **settings).fingerprint

    rows = sums(12)
    first = fingerprint("a.jsonl", rows)
    assert fingerprint("b.jsonl", rows) == first
    changed = [*rows[:5], {**rows[5], "answer": 99}, *rows[6:]]
    more = [*rows[:5], {**rows[5], "level": 99}, *rows[6:]]
    others = [
        fingerprint("c.jsonl", changed),
        fingerprint("d.jsonl", more),
        fingerprint("e.jsonl", rows[::-1]),
        fingerprint("f.jsonl", rows, reward="numeric"),
        fingerprint("g.jsonl", rows, answer_column="level"),
    ]
    assert len({first, *others}) == 6


def chat(question, system="Be brief."):
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def test_a_prompt_may_be_a_chat(write):
    rows = [{"prompt": chat(f"{i}+1="), "answer": i + 1} for i in range(4)]
    task = JsonLinesTask(write("a.jsonl", rows))
    prompt = task.prompt("train/1")
    assert (prompt.text, prompt.answer) == ("1+1=", "2")
    assert [tuple(message) for message in prompt.messages] == [("system", "Be brief."), ("user", "1+1=")]


def test_chats_that_end_alike_are_different_prompts(write):
    rows = [{"prompt": chat("why?", f"Story {i}."), "answer": i} for i in range(4)]
    task = JsonLinesTask(write("a.jsonl", rows))
    assert (task.num_prompts("train"), task.num_left_out) == (3, 0)
    other = [{"prompt": chat("why?", f"Tale {i}."), "answer": i} for i in range(4)]
    assert JsonLinesTask(write("b.jsonl", other)).fingerprint != task.fingerprint
