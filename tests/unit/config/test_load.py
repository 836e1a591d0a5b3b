from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motet.config import RunFile, load_run_file
from motet.config.dump import toml_value
from motet.errors import UsageError

CONFIGS = Path(__file__).parents[3] / "configs"
NODE = '\n[[node]]\nname = "a"\nmodel = "tiny:small"\n'
GOOD = 'run = { name = "x" }' + NODE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.toml"


def failure(path: Path, content: str | bytes) -> UsageError:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UsageError) as caught:
        load_run_file(path)
    return caught.value


def lines(path: Path, content: str) -> list[str]:
    """The lines of the message, without the folder."""
    error = failure(path, content)
    assert error.code == "E-CONFIG-03"
    return [line.removeprefix(f"{path.parent}/") for line in str(error).splitlines()]


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.toml")), ids=lambda config: config.name)
def test_every_run_file_of_the_repository_loads(config: Path) -> None:
    assert load_run_file(config).run.name


def test_sums_is_the_run_of_two_sizes() -> None:
    run = load_run_file(CONFIGS / "sums.toml")
    assert [node.model for node in run.node] == ["tiny:small", "tiny:large"]
    assert (run.rollout.prompts_per_round, run.rollout.group_size, run.method.name) == (32, 8, "f_tis")


def test_defaults(path: Path) -> None:
    path.write_text(GOOD)
    run = load_run_file(path)
    assert (run.run.rounds, run.method.name, run.method.cap, run.node[0].lora) == (200, "f_tis", 2.0, None)


def test_byte_order_mark_and_windows_line_ends_are_accepted(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_run_file(path).run.name == "x"


def test_whole_numbers_serve_as_numbers_and_nothing_else_is_converted(path: Path) -> None:
    path.write_text("method = { cap = 3 }\n" + GOOD)
    assert load_run_file(path).method.cap == 3.0
    assert lines(path, "rollout = { group_size = true, max_new_tokens = 8.0, temperature = '1' }\n" + GOOD) == [
        "run.toml:1  rollout.group_size: got true; allowed: a whole number from 2 to 1024",
        "run.toml:1  rollout.max_new_tokens: got 8.0; allowed: a whole number from 1 up",
        'run.toml:1  rollout.temperature: got "1"; allowed: a number above 0',
    ]


# --- the file itself -------------------------------------------------------------------------------------------------


def test_missing_file(path: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.toml: no such file; `motet init .*run\.toml` writes one") as caught:
        load_run_file(path)
    assert caught.value.code == "E-CONFIG-01"


def test_missing_file_beside_one_of_nearly_the_same_name(path: Path) -> None:
    path.with_name("runs.toml").write_text(GOOD)
    with pytest.raises(UsageError, match=r"no such file; did you mean .*runs\.toml\?"):
        load_run_file(path)


def test_missing_folder(path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file; there is no folder .*nowhere either"):
        load_run_file(path.parent / "nowhere" / "run.toml")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder, not a run file"):
        load_run_file(tmp_path)


def test_what_is_no_ordinary_file() -> None:
    with pytest.raises(UsageError, match="not an ordinary file"):
        load_run_file("/dev/null")


def test_impossible_path() -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        load_run_file("x" * 5000 + ".toml")
    assert caught.value.code == "E-CONFIG-01"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"run = \xff", "not UTF-8 text (byte 6)"),
        ("[run]".encode("utf-16"), "not UTF-8 text (byte 0)"),
        (b"#" * 1_000_001, "too large for a run file (1,000,001 bytes"),
    ],
)
def test_content_that_is_no_text(path: Path, content: bytes, says: str) -> None:
    error = failure(path, content)
    assert error.code == "E-CONFIG-01"
    assert f"{path}: {says}" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("content", "place", "says"),
    [
        ("[run]\nname = sums\n", ":2:8", "text needs quotes"),
        ("[run]\nname = True\n", ":2:8", "true and false are written small"),
        ('[run]\nname = "x\n', ":2:10", "a quote is opened and not closed"),
        ('[run]\nname "x"\n', ":2:6", "key = value"),
        ('[run]\nname = "x"\nname = "y"\n', ":3", "this key stands twice"),
        ("[run]\n[task]\n[run]\n", ":3", "this section stands twice"),
        ('run = {\n  name = "x"\n}\n', ":1:8", "{ ... } must stand on one line"),
        ("[run\n", ":1:5", "expected ']'"),
        ("rounds = [1, 2", ":1", "unclosed array"),
        ("x = " + "9" * 5000, "", "4300 digits"),
        ("x = " + "[" * 5000 + "]" * 5000, "", "nested too deep"),
    ],
)
def test_content_that_is_no_toml(path: Path, content: str, place: str, says: str) -> None:
    error = failure(path, content)
    assert error.code == "E-CONFIG-02"
    assert str(error).startswith(f"{path}{place}")
    assert says in str(error)
    assert "\n" not in str(error)


def test_yaml_is_told_that_it_is_no_toml(path: Path) -> None:
    error = failure(path.with_suffix(".yaml"), "learning_rate: 1e-5\n")
    assert "a run file is TOML, and this is .yaml" in str(error)


@given(content=st.binary(max_size=60) | st.text(alphabet="[]{}=\"'#.,\n ab1", max_size=60).map(str.encode))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_gives_a_usage_error(path: Path, content: bytes) -> None:
    error = failure(path, content)
    assert error.code.startswith("E-CONFIG-")
    assert all(line.startswith(str(path)) for line in str(error).splitlines())


# --- the settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("run = { nmae = 'x' }", "run.toml:1  run.nmae: unknown; did you mean run.name?"),
        ("learnig_rate = 1", "run.toml:1  learnig_rate: unknown; did you mean learner.learning_rate?"),
        ("group_size = 1", "run.toml:1  group_size: unknown outside a section; did you mean rollout.group_size?"),
        ("method = { seed = 1 }", "run.toml:1  method.seed: unknown in [method]; did you mean run.seed?"),
        ("method = { kl_limit = 1 }", "run.toml:1  method.kl_limit: unknown; did you mean method.kl_limit_nats?"),
        (
            "method = { KL-limit-nats = 1 }",
            "run.toml:1  method.KL-limit-nats: unknown; did you mean method.kl_limit_nats?",
        ),
        (
            "swarm = { qqq = 1 }",
            "run.toml:1  swarm.qqq: unknown; "
            "[swarm] has collaboration, pace, deadline_s, max_lag, transport, listen, connect, authority, tls, "
            "max_foreign_groups, log_probs",
        ),
        (
            "rollout = { num_generations = 8 }",
            "run.toml:1  rollout.num_generations: unknown. TRL's num_generations is rollout.group_size here",
        ),
        (
            "method = { vllm_importance_sampling_clip_max = 3 }",
            "run.toml:1  method.vllm_importance_sampling_clip_max: unknown. "
            "TRL's vllm_importance_sampling_clip_max is method.cap here",
        ),
        (
            "swarm = { max_off_policy_steps = 8 }",
            "run.toml:1  swarm.max_off_policy_steps: unknown. prime-rl's max_off_policy_steps is swarm.max_lag here",
        ),
        (
            "method = { clip_ratio = 0.2 }",
            "run.toml:1  method.clip_ratio: unknown. verl's clip_ratio is method.epsilon here",
        ),
        (
            "method = { beta = 0.0 }",
            "run.toml:1  method.beta: unknown. TRL's beta has no counterpart here: F-TIS has no KL term to "
            "a reference model",
        ),
        ("[loss]\ncap = 3", "run.toml:1  loss: unknown section; its settings stand in [method] here"),
        ("[lerner]\n", "run.toml:1  lerner: unknown section; did you mean [learner]?"),
        (
            "[zzz]\n",
            "run.toml:1  zzz: unknown section; there are [run], [task], [prompt], [rollout], [method], [learner], "
            "[swarm], [admission], [evaluation], [[node]]",
        ),
        (
            "method = 'f_tis'",
            'run.toml:1  method: got "f_tis"; this is a section: write [method] and its settings below it, '
            'or method = { name = "f_tis" }',
        ),
        (
            "[[swarm]]\n",
            "run.toml:1  swarm: got a list of tables; this is a section: write [swarm] and its settings below it",
        ),
        (
            "[method]\nname = 'f-tis'",
            'run.toml:2  method.name: got "f-tis"; allowed: one of "on_policy", "nois", "vis", "tis", '
            '"f_nois", "f_vis", "f_tis"; did you mean "f_tis"?',
        ),
        (
            "[method]\nweights = 'truncatd'",
            'run.toml:2  method.weights: got "truncatd"; allowed: one of "none", "vanilla", "truncated" or '
            '"file.py:function"; did you mean "truncated"?',
        ),
        ("[swarm]\n\n# x\ndeadline_s = nan", "run.toml:4  swarm.deadline_s: got nan; allowed: a finite number above 0"),
        (
            "[task]\nterms = [\n  3,\n  1,\n]",
            "run.toml:2  task.terms: got [3, 1]; allowed: a list of at least one in [ ], each a whole "
            "number from 2 to 20",
        ),
        (
            "[task]\nterms = []",
            "run.toml:2  task.terms: got []; allowed: a list of at least one in [ ], each a whole number from 2 to 20",
        ),
        (
            "[run]\nname = 'a b'",
            "run.toml:2  run.name: got \"a b\"; allowed: letters, digits, '.', '_', '-'; 64 at most",
        ),
        (
            "[run]\nname = 'x'\nseed = 1979-05-27",
            "run.toml:3  run.seed: got 1979-05-27; allowed: a whole number from 0 to 9223372036854775807",
        ),
        ("[run]\nname = 'x'\ndir = 3", "run.toml:3  run.dir: got 3; allowed: text in quotes"),
        (
            '"a\\nb" = 1',
            "run.toml:1  'a\\nb': unknown; there are [run], [task], [prompt], [rollout], [method], [learner], "
            "[swarm], [admission], [evaluation], [[node]]",
        ),
    ],
)
def test_one_mistake_gives_one_line(path: Path, content: str, line: str) -> None:
    run = "" if "run" in tomllib.loads(content) else '[run]\nname = "x"\n'
    assert lines(path, f"{content}\n{run}{NODE}") == [line]


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (
            "name = 'a'",
            'run.toml:2  node.a.model: missing; "tiny:small", "tiny:large", "tiny:short", "tiny:long", '
            '"tiny:direct", "pypi:<package>", a GGUF file, or the folder or hub name of a language model',
        ),
        ("name = 'a'\nmodle = 'm'", "run.toml:4  node.a.modle: unknown; did you mean node.a.model?"),
        (
            "model = 'm'",
            "run.toml:2  node.0.name: missing; Name of the node: letters, digits, '.', '_', '-'; 32 at "
            "most; unique in the run",
        ),
        (
            "name = 'a'\nmodel = 'm'\nlora = true",
            "run.toml:5  node.a.lora: got true; this is a section: write [node.lora] and its settings below it",
        ),
        (
            "name = 'a'\nmodel = 'm'\n[node.lora]\nr = 8",
            "run.toml:6  node.a.lora.r: unknown. TRL's r is node.lora.rank here",
        ),
        (
            "name = 'a'\nmodel = 'm'\nlora.target_modules = 3",
            'run.toml:5  node.a.lora.target_modules: got 3; allowed: "all-linear" or a list in [ ], each '
            "text in quotes",
        ),
        (
            "name = 'a'\nmodel = 'm'\nlora.target_modules = ['q', 3]",
            'run.toml:5  node.a.lora.target_modules: got ["q", 3]; allowed: "all-linear" or a list in [ ], '
            "each text in quotes",
        ),
        (
            "name = 'a'\nmodel = 'm'\ndevice = 'gpu'",
            'run.toml:5  node.a.device: got "gpu"; allowed: "auto" (a GPU if there is one), "cpu", "cuda", '
            '"cuda:1", "mps"',
        ),
        (
            "name = 'a'\nmodel = 'm'\nweight_decay = 1",
            "run.toml:5  node.a.weight_decay: unknown in [[node]]; did you mean learner.weight_decay?",
        ),
        (
            "name = 'a'\nmodel = 'm'\n[[node]]\nname = 'a'\nmodel = 'm'",
            'run.toml:6  node.a.name: "a" names 2 nodes; every node needs a name of its own',
        ),
    ],
)
def test_mistakes_in_nodes(path: Path, node: str, line: str) -> None:
    assert lines(path, f'run.name = "x"\n[[node]]\n{node}\n') == [line]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("node.name = 'a'", "run.toml:2  node: got a table; write [[node]] in double brackets, once for each node"),
        ("node = []", "run.toml:2  node: missing; a run file needs a table [[node]] with name and model for each node"),
        ("node = [3]", "run.toml:2  node.0: got 3; allowed: a table with name and model"),
        ("", "run.toml  node: missing; a run file needs a table [[node]] with name and model for each node"),
    ],
)
def test_what_is_no_list_of_nodes(path: Path, content: str, line: str) -> None:
    assert lines(path, f'run.name = "x"\n{content}\n') == [line]


def test_missing_run(path: Path) -> None:
    assert lines(path, NODE) == ['run.toml  run: missing; a run file needs a section [run] with at least name = "..."']


def test_all_mistakes_come_at_once_in_the_order_of_the_file(path: Path) -> None:
    content = """
run = { name = "x", seed = -1, max_steps = 9 }
[rollout]
group_size = 1
[method]
name = "tiss"
kl_limt_nats = 3
[learner]
warmup_rounds = 201
[[node]]
name = "a"
model = "m"
[[node]]
name = "a"
modle = "m"
"""
    found = [line.partition(": ")[0] for line in lines(path, content)]
    assert found == [
        "run.toml:2  run.seed",
        "run.toml:2  run.max_steps",
        "run.toml:4  rollout.group_size",
        "run.toml:6  method.name",
        "run.toml:7  method.kl_limt_nats",
        "run.toml:9  learner.warmup_rounds",
        "run.toml:14  node.a.name",
        "run.toml:15  node.a.modle",
    ]


def test_no_contradiction_is_claimed_with_a_setting_that_is_wrong_itself(path: Path) -> None:
    content = "run = { name = 'x', rounds = '500' }\nlearner = { warmup_rounds = 300 }" + NODE
    assert [line.partition(": ")[0] for line in lines(path, content)] == ["run.toml:1  run.rounds"]


def test_a_long_value_is_cut(path: Path) -> None:
    (line,) = lines(path, f"run = {{ name = 'x', seed = '{'y' * 500}' }}" + NODE)
    assert len(line) < 200


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SECTIONS = list(RunFile.model_fields)


def as_toml(value: Any) -> str:
    """Any value as TOML; tables in one line, and 0 for None."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return toml_value(0 if value is None else value)


@given(st.dictionaries(st.sampled_from(SECTIONS) | st.text(max_size=5), JUNK, min_size=1, max_size=5))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_toml_gives_one_line_for_each_mistake(path: Path, content: dict[str, Any]) -> None:
    text = "\n".join(f"{as_toml(key)} = {as_toml(value)}" for key, value in content.items()) + "\n"
    found = lines(path, text)
    assert found
    assert all(line.startswith("run.toml") for line in found)
