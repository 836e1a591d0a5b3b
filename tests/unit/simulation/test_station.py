from __future__ import annotations

import pytest
import torch

from motet.simulation.station import use_threads


@pytest.mark.parametrize(("num_processes", "ahead", "left"), [(1, 0, 8), (2, 0, 4), (1, 1, 4), (3, 1, 1), (16, 0, 1)])
def test_processes_and_sampling_ahead_share_the_threads(make_run, num_processes, ahead, left):
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        assert use_threads(make_run(rollout={"ahead": ahead}), num_processes=num_processes) == 8
        assert torch.get_num_threads() == left
    finally:
        torch.set_num_threads(before)
