from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from motet.tasks import Faults, Prompt, load_reward
from motet.tasks.math_reward import MathReward, last_boxed

math_verify = pytest.importorskip("math_verify", reason="needs the extra tasks")

ANYWHERE = MathReward("math")
BOXED = MathReward("boxed")


def score(reward, answer, completion):
    (found,) = reward(Prompt("train/0", "?", answer), [completion])
    return found


def theirs(answer, completion):
    expected, found = (math_verify.parse(text, parsing_timeout=None) for text in (f"\\boxed{{{answer}}}", completion))
    return float(math_verify.verify(expected, found, timeout_seconds=None))


FORMATS = [
    ("42", r"\boxed{42}", 1),
    ("42", r"so \(\boxed{42}\).", 1),
    ("42", "#### 42", 1),
    ("1250", "#### 1,250", 1),
    ("1234.5", "1,234.50", 1),
    ("1234.5", r"\boxed{1,234.50}", 1),
    ("10000", r"\boxed{10{,}000}", 1),
    ("10000", r"\boxed{10000.00}", 1),
    ("1/2", r"\boxed{\frac{1}{2}}", 1),
    ("1/2", r"\boxed{\frac12}", 1),
    ("1/2", r"\boxed{\dfrac{1}{2}}", 1),
    (r"\frac{1}{2}", "the answer is 1/2", 1),
    (r"\frac{1}{2}", "0.5", 1),
    ("0.5", r"$\frac{2}{4}$", 1),
    ("0.333333", "1/3", 1),
    (r"1\frac{1}{2}", r"$\frac{3}{2}$", 1),
    ("1.5", r"$1\frac{1}{2}$", 1),
    ("42", "42 km", 1),
    ("42", r"\boxed{42\text{ km}}", 1),
    ("5", "$5", 1),
    ("5", r"\boxed{\$5}", 1),
    ("5", "It costs $5.", 1),
    ("50", r"\boxed{50\%}", 1),
    ("50", "50%", 1),
    ("0.5", "50%", 1),
    ("42", "The answer is 42. I hope this helps!", 1),
    ("42", "**42**", 1),
    ("7", "3 + 4 = 7", 1),
    ("7", "first 3, then 4, in the end 7.", 1),
    ("3", "first 3, then 4, in the end 7.", 0),
    ("7", r"\boxed{3} no, \boxed{7}", 0),  # math-verify reads two boxes as a set
    ("-5", "-5", 1),
    ("-5", "\\boxed{\u22125}", 1),
    ("5", "-5", 0),
    ("(0,1]", r"\boxed{(0,1]}", 1),
    ("(0,1]", r"\boxed{[0,1]}", 0),
    (r"(-\infty, 3)", r"\boxed{(-\infty,3)}", 1),
    (r"\{1,2\}", r"\boxed{\{2,1\}}", 1),
    (r"\{1,2\}", r"\boxed{1, 2}", 1),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3,\pi/2)}", 1),
    ("1200", r"\boxed{1.2\times 10^3}", 1),
    ("1200", r"\boxed{1.2 \cdot 10^{3}}", 1),
    ("0.001", r"$10^{-3}$", 1),
    ("3", r"\boxed{x=3}", 1),
    ("x+1", r"\boxed{1+x}", 1),
    (r"\frac{\sqrt{3}}{2}", r"\boxed{\sqrt{3}/2}", 1),
    (r"\text{Evelyn}", r"\boxed{\text{Evelyn}}", 1),
    (r"90^\circ", r"\boxed{90}", 1),
    ("41", r"\boxed{42}", 0),
    ("5", "", 0),
    ("5", "no idea", 0),
    ("5", r"\boxed{}", 0),
]


@pytest.mark.parametrize(("answer", "completion", "value"), FORMATS)
def test_verdicts_are_those_of_math_verify(answer, completion, value):
    assert score(ANYWHERE, answer, completion).value == value == theirs(answer, completion)


@pytest.mark.parametrize(
    ("answer", "completion", "value"), [row for row in FORMATS if row[1].count("\\boxed{") == 1 and "{}" not in row[1]]
)
def test_one_box_gets_the_same_verdict_under_both_rewards(answer, completion, value):
    assert score(BOXED, answer, completion).parts == {"format": 1.0, "answer": value}


@pytest.mark.parametrize("minus", ["\u2212", "\ufe63", "\uff0d"])
def test_other_signs_for_minus_which_math_verify_cannot_read_are_read(minus):
    assert theirs("-5", f"so {minus}5") == 0.0
    assert score(ANYWHERE, "-5", f"so {minus}5").value == 1.0
    assert score(ANYWHERE, f"{minus}5", "-5").value == 1.0


@pytest.mark.parametrize(
    ("completion", "parts", "extracted"),
    [
        (r"it is \boxed{42}", {"format": 1.0, "answer": 1.0}, "42"),
        (r"\boxed{41} no \boxed{ 42 }", {"format": 1.0, "answer": 1.0}, "42"),
        (r"\boxed{42} or \boxed{41}", {"format": 1.0, "answer": 0.0}, "41"),
        (r"\boxed{42} or \boxed{41", {"format": 1.0, "answer": 1.0}, "42"),
        (r"\boxed{\boxed{42}}", {"format": 1.0, "answer": 1.0}, "42"),
        ("it is 42", {"format": 0.0, "answer": 0.0}, None),
        (r"\boxed{42", {"format": 0.0, "answer": 0.0}, None),
        (r"\boxed{ }", {"format": 0.0, "answer": 0.0}, None),
        (r"\boxed 42", {"format": 0.0, "answer": 0.0}, None),
        (r"\boxed{" + "9" * 3000 + "}", {"format": 1.0, "answer": 0.0}, "9" * 197 + "..."),
    ],
)
def test_the_papers_reward_is_format_and_answer(completion, parts, extracted):
    found = score(BOXED, "42", completion)
    assert (found.value, found.parts, found.extracted) == (parts["answer"], parts, extracted)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"} \boxed{1} {", "1"),
        (r"{ \boxed{1}", "1"),
        (r"\\boxed{1}", "1"),
        (r"\boxed{1\}", None),
        (r"boxed{1}", None),
        (r"\fbox{1}", None),
        ("", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@given(st.text("\\{}boxed1 "))
def test_the_content_of_a_box_is_a_part_of_the_text(text):
    content = last_boxed(text)
    assert content is None or (content.strip() == content != "" and content in text)


@pytest.mark.parametrize("text", ["\\boxed{" * 20_000, "{" * 100_000, "\\" * 100_000, "\\boxed{}" * 20_000])
def test_hostile_braces_take_linear_time(text):
    start = time.process_time()
    assert last_boxed(text) is None
    assert time.process_time() - start < 1.0


@settings(deadline=None, max_examples=60)
@given(st.text("0123456789.,-+/\\{}()[]$% abx=") | st.text(max_size=50))
@example("9" * 50_000)
@example("\\boxed{" * 5_000)
@example("\\frac{1}{" * 500)
@example("(" * 20_000)
@example("\ud800 \\boxed{\ud800}")
def test_any_text_gets_a_score(text):
    for reward in (ANYWHERE, BOXED):
        assert score(reward, "42", text).value in (0.0, 1.0)


def test_a_latex_bomb_costs_one_completion():
    reward = load_reward("boxed", timeout_s=1.0)
    found = reward(Prompt("train/0", "?", "42"), [r"\boxed{42}", r"\boxed{9^{9^{9^{9}}}}", r"\boxed{6 \cdot 7}"])
    assert [one and one.value for one in found] == [1.0, None, 1.0]
    assert reward.faults == Faults(timed_out=1, first="scoring stopped after 1 s")
    reward.close()


@pytest.mark.parametrize("answer", ["72", "#### 72", "24+48=72\n#### 72", r"So it is $\boxed{72}$."])
def test_a_reference_may_be_a_whole_solution(answer):
    assert score(ANYWHERE, answer, "72").value == 1.0
    assert score(ANYWHERE, answer, "48").value == 0.0


def test_digest_names_the_versions():
    assert ANYWHERE.digest.startswith("math/1, math-verify ")
    assert "sympy" in BOXED.digest
    assert ANYWHERE.digest != BOXED.digest
