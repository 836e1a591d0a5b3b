from __future__ import annotations

from pathlib import Path

import pytest

from motet.config import RunFile, load_run_file
from motet.errors import UsageError

TEXT = """
run = { name = "x" }
[[node]]
name = "small"
model = "tiny:small"
[[node]]
name = "large.v2"
model = "tiny:large"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(TEXT)
    return path


def load(path: Path, *flags: str) -> RunFile:
    return load_run_file(path, flags)


def test_values_are_read_as_toml(path: Path) -> None:
    run = load(path, "rollout.group_size=16", "learner.learning_rate=1e-4", "task.terms=[3, 4]", "method.name='tis'")
    assert run.rollout.group_size == 16
    assert run.learner.learning_rate == 1e-4
    assert run.task.terms == (3, 4)
    assert run.method.name == "tis"


def test_values_that_are_no_toml_are_text(path: Path) -> None:
    run = load(path, "method.name=nois", "run.dir=/tmp/some where", "task.reward=f.py:score", "task.test_file=a=b")
    assert run.method.name == "nois"
    assert run.run.dir == "/tmp/some where"
    assert run.task.reward == "f.py:score"
    assert run.task.test_file == "a=b"


def test_a_text_setting_takes_numbers_as_text(path: Path) -> None:
    assert load(path, "run.name=7").run.name == "7"
    assert load(path, "run.name=2026-01-02").run.name == "2026-01-02"
    assert load(path, "run.dir=true").run.dir == "true"


def test_a_value_cannot_smuggle_in_another_key(path: Path) -> None:
    assert load(path, "run.dir='a'\nvalue2 = 3").run.dir == "'a'\nvalue2 = 3"


def test_the_last_flag_wins(path: Path) -> None:
    assert load(path, "run.seed=1", "run.seed=2").run.seed == 2


def test_a_node_is_named_by_name_or_number(path: Path) -> None:
    assert load(path, "node.small.model=m").node[0].model == "m"
    assert load(path, "node.1.model=m").node[1].model == "m"
    assert load(path, "node.large.v2.model=m").node[1].model == "m"


def test_a_name_goes_before_a_number(path: Path) -> None:
    path.write_text(TEXT.replace('"large.v2"', '"0"'))
    assert load(path, "node.0.model=m").node[1].model == "m"


def test_lora_is_switched_on_by_setting_one_of_its_settings(path: Path) -> None:
    lora = load(path, "node.small.lora.rank=4").node[0].lora
    assert lora is not None
    assert (lora.rank, lora.alpha) == (4, 16.0)


def test_a_whole_section_can_be_set(path: Path) -> None:
    run = load(path, "method.cap=9", "swarm.pace=free")
    assert (run.method.cap, run.swarm.pace) == (9.0, "free")


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("rollout.group_size", "section.key=value"),
        ("group_size=3", "section.key=value"),
        ("=3", "section.key=value"),
        ("", "section.key=value"),
        (".=3", "section.key=value"),
        ("node.smal.model=x", 'did you mean "small"?'),
        ("node.7.model=x", "small, large.v2"),
        ("node.small=x", "node.NAME.key=value"),
        ("run.name.first=x", "name is no section"),
        ("node.small.model.x=1", "model is no section"),
    ],
)
def test_flags_that_cannot_be_carried_out(path: Path, flag: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(path, flag, "run.seed=3")
    assert caught.value.code == "E-CONFIG-04"
    assert str(caught.value).startswith(f"--set {flag}")
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("rollout.group_szie=9", "rollout.group_szie: unknown; did you mean rollout.group_size?"),
        ("rollout.group_size=1", "rollout.group_size: got 1; allowed: a whole number from 2 to 1024"),
        ("node.small.lora.rank=big", 'node.small.lora.rank: got "big"; allowed: a whole number from 1 up'),
        ("node.large.v2.device=gpu", 'node.large.v2.device: got "gpu"; allowed: "auto"'),
        ("learner.warmup_rounds=500", "learner.warmup_rounds: got 500, but the run has 200 rounds (run.rounds)"),
        ("lerner.learning_rate=1", "lerner: unknown section; did you mean [learner]?"),
    ],
)
def test_a_wrong_value_names_the_flag(path: Path, flag: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(path, flag)
    assert caught.value.code == "E-CONFIG-03"
    assert str(caught.value).startswith(f"--set {flag}  {line}")


def test_nodes_cannot_be_set_where_there_are_none(path: Path) -> None:
    path.write_text('run = { name = "x" }\n')
    with pytest.raises(UsageError, match=r"--set node.a.model=m: the run file has no \[\[node\]\] tables"):
        load(path, "node.a.model=m")
