from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.config import (
    AdmissionSettings,
    EvaluationSettings,
    LearnerSettings,
    LoraSettings,
    MethodSettings,
    NodeSettings,
    RolloutSettings,
    RunFile,
    RunSettings,
    SwarmSettings,
    TaskSettings,
    dump_run_file,
    json_schema,
    load_run_file,
)
from motet.config.dump import toml_value

TEXT = st.text(max_size=12)
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
COUNT = st.integers(1, 10**30)


def node(name: str) -> st.SearchStrategy[NodeSettings]:
    lora = st.builds(LoraSettings, rank=COUNT, alpha=POSITIVE, target_modules=st.lists(TEXT, max_size=3).map(tuple))
    return st.builds(
        NodeSettings, name=st.just(name), model=TEXT, lora=st.none() | lora, device=st.sampled_from(["auto", "cuda:7"])
    )


def run_files() -> st.SearchStrategy[RunFile]:
    run = st.builds(
        RunSettings,
        name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"),
        seed=st.integers(0, 2**63 - 1),
        rounds=COUNT,
        dir=TEXT,
        checkpoint_every=COUNT,
    )
    return st.builds(
        RunFile,
        run=run,
        task=st.builds(
            TaskSettings,
            name=st.just("t.jsonl"),
            terms=st.lists(st.integers(2, 20), min_size=1, max_size=4).map(tuple),
            ood_terms=st.lists(st.integers(2, 20), max_size=2).map(tuple),
            test_file=st.none() | TEXT,
            answer_column=st.none() | TEXT,
            reward=TEXT,
        ),
        rollout=st.builds(RolloutSettings, prompts_per_round=st.integers(2, 99), group_size=st.integers(2, 64)),
        method=st.builds(
            MethodSettings,
            weights=st.none() | st.just("vanilla"),
            epsilon=st.floats(1e-300, 0.99),
            epsilon_high=st.none() | POSITIVE,
            cap=POSITIVE,
        ),
        learner=st.builds(LearnerSettings, learning_rate=POSITIVE, max_grad_norm=POSITIVE),
        swarm=st.builds(SwarmSettings, pace=st.sampled_from(["lockstep", "free"]), max_lag=st.integers(0, 9)),
        admission=st.builds(AdmissionSettings, max_payload_bytes=COUNT),
        evaluation=st.builds(EvaluationSettings, every=st.integers(0, 9)),
        node=st.tuples(node("a"), node("b.c")),
    )


@given(run=run_files())
@settings(max_examples=60, deadline=None)
def test_a_dumped_run_file_loads_back_equal(run: RunFile, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("dump") / "run.toml"
    path.write_text(dump_run_file(run), encoding="utf-8", newline="\n")
    assert load_run_file(path) == run


def test_a_dump_has_every_setting_that_has_a_value(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('run = { name = "x" }\n[[node]]\nname = "a"\nmodel = "tiny:small"\n')
    parsed = tomllib.loads(dump_run_file(load_run_file(path)))
    assert parsed["rollout"]["group_size"] == 8
    generation = {"engine": "hf", "url": "http://127.0.0.1:8000", "timeout_s": 600.0}
    node = {"name": "a", "model": "tiny:small", "attention": "auto", "freeze": [], "device": "auto"}
    assert parsed["node"] == [{**node, "generation": generation}]
    assert "weights" not in parsed["method"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        {},
        {"a": 1, "b c": {"d": ["x"]}, "\u00e9": "y"},
        'a"b\\c',
        "\n\t\x00\x1f\x7f",
        "\u00e9\U0001f600",
        1,
        -0.0,
        1e-300,
        1e300,
        True,
        [],
        [[1], ["x"]],
    ],
)
def test_values_read_back(value: Any) -> None:
    assert tomllib.loads(f"v = {toml_value(value)}")["v"] == value


def test_the_schema_describes_every_setting_and_allows_no_other() -> None:
    schema = json.loads(json_schema())
    assert schema["required"] == ["run", "node"]
    assert schema["additionalProperties"] is False
    group_size = schema["$defs"]["RolloutSettings"]["properties"]["group_size"]
    assert (group_size["minimum"], group_size["maximum"], group_size["default"]) == (2, 1024, 8)
    assert "num_generations" in group_size["description"]
    assert all(definition["additionalProperties"] is False for definition in schema["$defs"].values())
