from __future__ import annotations

import pytest

from motet.bench.gate import gate_for, gate_tokens_per_s, passable
from motet.bench.wire import draw_groups
from motet.records import encode_group


@pytest.mark.parametrize("vocab_size", [16, 49_152])
@pytest.mark.parametrize("completion", [2, 12, 200])
def test_what_is_measured_passes_every_check(vocab_size, completion):
    groups = [passable(group, vocab_size) for group in draw_groups(vocab_size, completion, num_tokens=5000, seed=0)]
    gate = gate_for(groups, vocab_size)
    verdicts = [
        gate.admit(peer=group.peer, round=group.round, payload=encode_group(group), current_round=group.round)
        for group in groups
    ]
    assert {verdict.reason for verdict in verdicts} == {None}


def test_a_rate_is_found():
    assert gate_tokens_per_s(draw_groups(500, 12, num_tokens=500, seed=0), 500, repeats=2) > 0
