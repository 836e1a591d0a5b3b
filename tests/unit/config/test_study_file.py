"""Study files: which runs they make, and one clear line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.config import Planned, load_run_file, load_study_file, merged, plan_runs
from motet.errors import UsageError

TEXT = """study = { name = "s", seeds = [1, 0] }

[settings]
rollout = { group_size = 4, prompts_per_round = 6 }
method = { cap = 5.0 }

[pair.size]
node = [{ name = "small", model = "tiny:small" }, { name = "large", model = "tiny:large", lora = { rank = 2 } }]
settings = { rollout = { group_size = 5, temperature = 0.5 } }

[pair.same]
node = [{ name = "a", model = "tiny:small" }, { name = "b", model = "tiny:small" }]

[arm.alone]
settings = { method = { name = "on_policy" } }

[arm.tis]
settings = { method = { name = "tis" }, rollout = { group_size = 6 } }
pairs = ["size"]
seeds = [7]
"""

REPLAY = 'seeds = [7]\n[replay.r]\nof = "tis"\n'
CHOICE = 'seeds = [7]\n[choice.{}]\nreference = "{}"\nof = ["{}"]'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def plan(tmp_path: Path, *overrides: str, text: str = TEXT) -> list[Planned]:
    path = write(tmp_path, text)
    return plan_runs(load_study_file(path), source=path, overrides=overrides)


def test_order_and_size(tmp_path: Path) -> None:
    assert [run.label for run in plan(tmp_path)] == [
        "size/alone/0", "same/alone/0", "size/alone/1", "same/alone/1", "size/tis/7",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["sums", "mixes", "pace", "level", "speedup"])
def test_the_studies_of_this_repository_can_be_planned(name: str) -> None:
    path = Path(__file__).parents[3] / f"configs/study/{name}.toml"
    study = load_study_file(path)
    planned = plan_runs(study, source=path)
    assert {run.pair for run in planned} == set(study.pair)
    assert {run.arm for run in planned} == {*study.arm, *study.replay}


def test_a_pair_may_have_some_seeds_only(tmp_path: Path) -> None:
    text = TEXT.replace("[pair.same]", "[pair.same]\nseeds = [1, 7]")
    assert [run.label for run in plan(tmp_path, text=text)] == [
        "size/alone/0", "size/alone/1", "same/alone/1", "size/tis/7",
    ]  # fmt: skip


def test_a_pair_may_have_some_arms_only(tmp_path: Path) -> None:
    text = TEXT.replace("[pair.same]", '[pair.same]\narms = ["tis"]')
    assert [run.label for run in plan(tmp_path, text=text)] == ["size/alone/0", "size/alone/1", "size/tis/7"]


def test_a_replay_may_be_of_some_seeds_only(tmp_path: Path) -> None:
    text = TEXT + '[replay.again]\nof = "tis"\nseeds = [0]\n'
    assert not [run for run in plan(tmp_path, text=text) if run.archive is not None]
    again = plan(tmp_path, text=text.replace("seeds = [0]", "seeds = [0, 7]"))
    assert {run.seed for run in again if run.archive is not None} == {7}


def test_replays_come_last_one_for_each_node(tmp_path: Path) -> None:
    runs = plan(tmp_path, text=TEXT + '[replay.again]\nof = "tis"\nsettings = { method = { cap = 9.0 } }\n')
    replays = [run for run in runs if run.archive is not None]
    assert runs[-2:] == replays
    assert [run.label for run in replays] == ["size/again/7/small", "size/again/7/large"]
    small, large = (run.run for run in replays)
    assert (small.run.dir, small.run.name) == ("runs/s/runs/size/again/seed_7", "small")
    assert replays[0].archive == Path("runs/s/runs/size/tis/seed_7")
    assert (small.method.name, small.method.cap, small.rollout.group_size) == ("tis", 9.0, 6)
    assert [node.lora is None for node in (small.node[0], large.node[0])] == [True, False]


def test_what_cannot_be_replayed_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pair size, replay again: method\.name: the arm trains alone") as caught:
        plan(tmp_path, text=TEXT + '[replay.again]\nof = "alone"\n')
    assert caught.value.code == "E-STUDY-02"


def test_no_more_rounds_are_replayed_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.rounds: got 900; no more than the arm's own 200 are stored"):
        plan(tmp_path, text=TEXT + '[replay.again]\nof = "tis"\nsettings = { run = { rounds = 900 } }\n')


def test_the_arm_lies_over_the_pair_and_the_pair_over_all(tmp_path: Path) -> None:
    runs = {run.label: run.run for run in plan(tmp_path)}
    assert runs["size/tis/7"].rollout.group_size == 6
    assert runs["size/tis/7"].rollout.temperature == 0.5
    assert runs["size/tis/7"].rollout.prompts_per_round == 6
    assert (runs["size/tis/7"].method.name, runs["size/tis/7"].method.cap) == ("tis", 5.0)
    assert runs["size/alone/0"].rollout.group_size == 5
    assert runs["same/alone/0"].rollout.group_size == 4


def test_places_tell_runs_apart(tmp_path: Path) -> None:
    runs = plan(tmp_path)
    places = {(run.run.run.dir, run.run.run.name) for run in runs}
    assert len(places) == len(runs)
    assert ("runs/s/runs/size/tis", "seed_7") in places
    assert [run.run.run.seed for run in runs] == [run.seed for run in runs]


def test_overrides_lie_over_everything_and_touch_no_other_run(tmp_path: Path) -> None:
    study = load_study_file(write(tmp_path, TEXT))
    before = study.model_dump()
    only = study.model_copy(update={"pair": {"size": study.pair["size"]}})
    changed = plan_runs(
        only, source=tmp_path, overrides=["rollout.group_size=9", "node.large.lora.rank=3", "node.small.freeze=['x']"]
    )
    assert {run.run.rollout.group_size for run in changed} == {9}
    assert {run.run.node[1].lora.rank for run in changed if run.run.node[1].lora is not None} == {3}
    assert study.model_dump() == before
    assert plan_runs(only, source=tmp_path)[0].run.node[0].freeze == ()


def test_merging_copies() -> None:
    first = {"a": {"b": {"c": 1}}, "d": 1}
    both = merged(first, {"a": {"b": {"e": 2}}, "d": {"f": 3}})
    assert both == {"a": {"b": {"c": 1, "e": 2}}, "d": {"f": 3}}
    both["a"]["b"]["c"] = 9
    assert first == {"a": {"b": {"c": 1}}, "d": 1}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds = [1, 0]", "seeds = []", "study.toml:1  study.seeds: got []; allowed: one or more"),
        ("seeds = [1, 0]", "seeds = 3", "study.toml:1  study.seeds: got 3; allowed: a list"),
        ("seeds = [1, 0]", "seeds = [-1]", "study.toml:1  study.seeds.0: got -1; allowed: a whole number from 0 up"),
        ("seeds = [1, 0]", "sedes = [1]", "study.toml:1  study.sedes: unknown; did you mean seeds?"),
        ("seeds = [1, 0]", "zz = [1]", "study.toml:1  study.zz: unknown; there are name, dir, seeds, fresh_seeds"),
        ("seeds = [7]", "seeds = [7]\ntitel = 1", "arm.tis.titel: unknown; did you mean title?"),
        (
            "seeds = [1, 0]",
            "fresh_seeds = [1, 9]",
            "study.fresh_seeds: no arm has the seed 9; the seeds of all arms are 0, 1",
        ),
        (
            "seeds = [1, 0]",
            "fresh_seeds = [0, 1, 2, 3, 4, 7]",
            "study.fresh_seeds: all seeds are fresh: leave some out",
        ),
        ('pairs = ["size"]', "pairs = []", "arm.tis.pairs: got []; allowed: one or more"),
        ("[pair.same]", "[pair.same]\narms = []", "pair.same.arms: got []; allowed: one or more"),
        ("[pair.same]", "[pair.same]\nseeds = []", "pair.same.seeds: got []; allowed: one or more"),
        (
            "seeds = [7]",
            'seeds = [7]\n[choice.k]\nreference = "alone"\nof = ["tis"]\nnum_prompts = 0',
            "choice.k.num_prompts: got 0; allowed: a whole number from 1 up",
        ),
        (
            "seeds = [7]",
            'seeds = [7]\n[replay.r]\nof = "tis"\nsettings = { admission = { max_influence = 0.5 } }',
            "replay.r.settings.admission.max_influence: a replay has nothing of its own to weigh a peer against",
        ),
        ('name = "s"', 'name = "a/b"', 'study.toml:1  study.name: got "a/b"; allowed: letters, digits'),
        ('name = "s", ', "", "study.toml:1  study.name: missing"),
        ("seeds = [1, 0]", 'baseline = "lone"', 'there is no arm "lone"; arms are alone, tis'),
        ('pairs = ["size"]', 'pairs = ["sizes"]', 'arm.tis.pairs: there is no pair "sizes"; pairs are size, same'),
        ("[pair.same]", '[pair.same]\narms = ["lone"]', 'pair.same.arms: there is no arm "lone"; arms are alone, tis'),
        (
            "seeds = [7]",
            'seeds = [7]\n[choice.tis]\nreference = "alone"\nof = ["tis"]',
            "choice.tis: an arm or a replay has this name",
        ),
        (
            "seeds = [7]",
            'seeds = [7]\n[choice.k]\nreference = "a"\nof = ["tis"]',
            'choice.k.reference: there is no arm "a"',
        ),
        ("seeds = [7]", 'seeds = [7]\n[choice.k]\nreference = "alone"\nof = ["b"]', 'choice.k.of: there is no arm "b"'),
        ("[pair.same]", '[pair."a b"]', 'pair.a b: got "a b"; allowed: letters, digits'),
        ("[settings]", "[run]\nrounds = 3\n[settings]", "study.toml:3  run: unknown at the top of the file"),
        ("method = { cap", "run = { seed = 3 }\nmethod = { cap", "settings.run.seed: the study decides this itself"),
        ("settings = { rollout", "settings = { node = [], rollout", "pair.size.settings.node: nodes stand in a pair"),
        ('{ method = { name = "tis" }', '{ run = { name = "x" }', "arm.tis.settings.run.name: the study decides this"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(UsageError) as caught:
        load_study_file(write(tmp_path, TEXT.replace(old, new, 1)))
    assert caught.value.code == "E-STUDY-01"
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_study_file(write(tmp_path, "study = { seeds = [0.5] }\npair = 3\n"))
    said = [line.partition("study.toml")[2] for line in str(caught.value).splitlines()]
    assert len(said) == 4
    assert any(line.startswith(":1  study.seeds.0: got 0.5; allowed: a whole number") for line in said)
    assert any(line.startswith(":2  pair: got 3; allowed: a table") for line in said)
    assert any(line.startswith("  arm: missing; a study file needs a table [arm.NAME]") for line in said)


def test_combinations_that_are_no_run_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, text=TEXT.replace('"tis"', '"tsi"'))
    assert caught.value.code == "E-STUDY-02"
    assert 'study.toml: pair size, arm tis: method.name: got "tsi"' in str(caught.value)
    with pytest.raises(UsageError, match="arm tis: run: got 3"):
        plan(tmp_path, text=TEXT.replace('{ method = { name = "tis" }', "{ run = 3"))
    with pytest.raises(UsageError, match=r"swarm\.transport: the runs of a study stay on this machine"):
        plan(tmp_path, "swarm.transport=zenoh")


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("run.seed=3", "--set run.seed=3: pair size: the study decides this itself"),
        ("run.name=x", "--set run.name=x: pair size: the study decides this itself"),
        ("node.small.model=tiny:large", 'pair same: no node "small"'),
        ("rounds", "--set rounds: pair size: write it as section.key=value"),
    ],
)
def test_overrides_that_cannot_be(tmp_path: Path, flag: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, flag)
    assert caught.value.code == "E-CONFIG-04"
    assert says in str(caught.value)


def test_a_run_file_is_no_study_file_and_the_other_way_round(tmp_path: Path) -> None:
    path = write(tmp_path, 'run = { name = "r" }\n[[node]]\nname = "a"\nmodel = "tiny:small"\n')
    with pytest.raises(UsageError, match=r"a run file, not a study file; `motet swarm .*study\.toml` runs it"):
        load_study_file(path)
    with pytest.raises(UsageError, match=r"a study file, not a run file; `motet study .*study\.toml` runs it"):
        load_run_file(write(tmp_path, TEXT))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file; configs/study/sums\.toml is one to start from"):
        load_study_file(tmp_path / "study.toml")
    with pytest.raises(UsageError, match=r"empty; configs/study/sums\.toml is one to start from"):
        load_study_file(write(tmp_path, "\n"))
