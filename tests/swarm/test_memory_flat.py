"""Memory does not grow with the rounds of a run."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from network_hub import Stage

pytestmark = pytest.mark.slow


def test_an_exchange_needs_no_more_after_2000_rounds_than_after_500():
    stage = Stage(num_rounds=2001)
    nodes = stage.meet("ann", "bob")
    for node in nodes:
        node.begin(0)
    held = {}
    tracemalloc.start()
    try:
        for round in range(2001):
            stage.now_s += 0.05
            for node in nodes:
                node.publish(round, [bytes([round % 256]) * 500] * 2)
            for node in nodes:
                assert len(node.collect(round, deadline_s=10.0)) == 2
                node.num_late(), node.num_refused(), node.events(), node.status()
            if round in (500, 2000):
                gc.collect()
                held[round] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        stage.party.close()
    assert held[2000] - held[500] < 100_000, held
