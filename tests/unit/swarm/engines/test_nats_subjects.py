from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from motet.swarm.engines.nats_subjects import Subjects, name_of, token_of

SUBJECTS = Subjects("0a")


@given(st.text(min_size=1))
@example("a.b")
@example("*")
@example(">")
@example("=2E")
@example("a b\r\nPUB x")
def test_a_name_is_one_harmless_token_and_comes_back(name: str) -> None:
    try:
        token = token_of(name)
    except UnicodeEncodeError:  # a lone surrogate is no text
        return
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert name_of(token) == name


@given(st.text(alphabet="aZ0_-=2EF.*", min_size=1))
def test_a_name_has_no_second_spelling(token: str) -> None:
    name = name_of(token)
    assert name is None or token_of(name) == token


@pytest.mark.parametrize("token", ["", "=41", "a.b", "=2e", "=FF", "=2", "*", "a b"])
def test_other_spellings_are_none(token: str) -> None:
    assert name_of(token) is None


@pytest.mark.parametrize("topic", ["beat/ann", "roll/lab.gpu-1/12", "card/bob", "beat/=2E", "roll/*/>"])
def test_topics_come_back(topic: str) -> None:
    assert SUBJECTS.topic_of(SUBJECTS.subject_of(topic)) == topic


@pytest.mark.parametrize(
    "subject", ["motet.0b.roll.ann.1", "motet.0b.beat.ann", "motet.0a.roll.=41nn.1", "motet.0a.", "x"]
)
def test_subjects_of_others_have_no_topic(subject: str) -> None:
    assert SUBJECTS.topic_of(subject) is None


def test_a_slash_in_a_name_is_no_way_to_another_topic() -> None:
    assert SUBJECTS.topic_of(f"motet.0a.roll.{token_of('ann/1')}") is None


@pytest.mark.parametrize("topic", ["beat/", "roll//1"])
def test_empty_parts_are_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        SUBJECTS.subject_of(topic)


@pytest.mark.parametrize("run_id_hex", ["", "0A", "a.b", "**", ">"])
def test_run_ids_are_hexadecimal(run_id_hex: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        Subjects(run_id_hex)
