"""A run's settings for one node that samples nothing."""

from __future__ import annotations

from typing import Any

import pytest

from motet.config import NodeSettings, RunFile, check_replayable, replay_settings, with_rounds
from motet.errors import UsageError

KEY = "ed25519:" + "0" * 64


def make_source(**sections: dict[str, Any]) -> RunFile:
    run: dict[str, Any] = {"name": "sums", "rounds": 50}
    nodes = [
        {"name": "small", "model": "tiny:small", "lora": {"rank": 2}, "key": KEY},
        {"name": "large", "model": "tiny:large"},
    ]
    return RunFile.model_validate({"run": run, **sections, "node": nodes})


def test_one_node_keeps_its_settings_and_the_run_its_own() -> None:
    source = make_source(
        method={"name": "f_vis", "cap": 3.0},
        learner={"learning_rate": 1e-3, "schedule": "cosine"},
        rollout={"ahead": 1},
    )
    replay = replay_settings(source, source.node[0])
    assert replay.run.name == "sums-replay-small"
    assert (replay.run.seed, replay.run.rounds, replay.task) == (source.run.seed, 50, source.task)
    assert (replay.method, replay.learner) == (source.method, source.learner)
    assert replay.node == (source.node[0].model_copy(update={"key": None}),)
    assert replay.rollout.ahead == 0


def test_more_of_its_own_is_not_sampled() -> None:
    source = make_source(rollout={"top_up": True})
    assert not replay_settings(source, source.node[0]).rollout.top_up


def test_what_is_for_several_nodes_is_left_out() -> None:
    swarm = {"transport": "zenoh", "connect": ["tcp/10.0.0.1:7447"], "authority": KEY, "pace": "free"}
    source = make_source(swarm=swarm, admission={"max_influence": 0.5, "max_group_size": 32})
    measured = make_source(admission={"max_influence": "by_gradient"})
    assert replay_settings(measured, measured.node[0]).resolved_max_influence is None
    replay = replay_settings(source, source.node[1])
    assert replay.swarm == RunFile.model_validate({"run": {"name": "a"}, "node": [source.node[1]]}).swarm
    assert replay.resolved_max_influence is None
    assert replay.admission.max_group_size == 32
    horizontal = make_source(swarm={"collaboration": "horizontal"})
    assert replay_settings(horizontal, horizontal.node[1]).swarm.collaboration == "horizontal"
    gaps = make_source(swarm={"collaboration": "gaps"})
    assert replay_settings(gaps, gaps.node[1]).swarm.collaboration == "vertical"


def test_another_name_and_other_settings() -> None:
    source = make_source()
    replay = replay_settings(
        source, NodeSettings(name="model", model="tiny:large"), name="again", overrides=["node.model.learning_rate=0.1"]
    )
    assert (replay.run.name, replay.node[0].learning_rate) == ("again", 0.1)
    with pytest.raises(UsageError, match="no node") as caught:
        replay_settings(source, source.node[0], overrides=["node.large.learning_rate=0.1"])
    assert caught.value.code == "E-CONFIG-04"


@pytest.mark.parametrize(
    "override",
    ["method.name=on_policy", "swarm.transport=pipes", "swarm.pace=free", "admission.max_influence=by_gradient"],
)
def test_settings_that_a_replay_cannot_have(override: str) -> None:
    source = make_source()
    with pytest.raises(UsageError, match=override.partition("=")[0]) as caught:
        replay_settings(source, source.node[0], overrides=[override])
    assert caught.value.code == "E-REPLAY-05"


def test_a_run_of_several_nodes_is_no_replay() -> None:
    with pytest.raises(UsageError, match="trains one node, and the run file has 2") as caught:
        check_replayable(make_source())
    assert caught.value.code == "E-REPLAY-05"


def test_rounds_are_cut_and_never_raised() -> None:
    source = make_source(learner={"warmup_rounds": 10})
    assert with_rounds(source, 20).run.rounds == 20
    assert with_rounds(source, 50) == with_rounds(source, 60) == source
    with pytest.raises(UsageError, match=r"learner\.warmup_rounds: got 10, but the run has 6 rounds"):
        with_rounds(source, 6)
