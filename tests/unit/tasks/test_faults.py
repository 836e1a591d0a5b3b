from __future__ import annotations

from motet.tasks import Faults, RunningSums, faults_of
from motet.tasks.faults import Fault, call_own_code


def test_faults_add_up_and_keep_the_first_line():
    faults = Faults()
    faults.add(Faults(raised=1, first="one"))
    faults.add(Faults(raised=1, timed_out=2, first="two"))
    assert faults == Faults(raised=2, timed_out=2, first="one")


def test_tasks_without_faults_have_none():
    assert faults_of(RunningSums()) == Faults()


def test_what_the_code_raises_becomes_one_printable_line_with_its_place():
    def fails():
        raise ValueError("no\n\x1b[31m such  thing" + "!" * 1000)

    outcome = call_own_code(fails)
    assert isinstance(outcome, Fault)
    assert outcome.line.startswith("ValueError: no ?[31m such thing!!!")
    assert "(test_faults.py:" in outcome.line
    assert len(outcome.line) < 300
    assert call_own_code(lambda: 3) == 3
