from __future__ import annotations

import json

import msgspec
import pytest

from motet.errors import RunFailed, UsageError
from motet.journal import RunDir
from motet.simulation import run_swarm
from motet.simulation.crew import Identity
from motet.simulation.identity import check_identities
from motet.simulation.observer import Quiet

OURS = Identity(task="t" * 32, tokenizer="a" * 16, prompts="p" * 32, example="<|user|>3+5=<|assistant|>")


@pytest.fixture
def run_dir(tmp_path):
    return RunDir.create(tmp_path / "here", seed=0)


def other(**fields):
    return msgspec.structs.replace(OURS, **fields)


def test_equal_nodes_are_written_down(make_run, run_dir):
    check_identities(make_run(), run_dir, {"ann": OURS, "bob": OURS})
    assert json.loads(run_dir.identity.read_text())["bob"]["prompts"] == OURS.prompts
    check_identities(make_run(), run_dir, {"ann": OURS, "bob": OURS})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"task": "u" * 32}, "rewards differ"),
        ({"tokenizer": "b" * 16}, "tokenizers differ"),
        ({"prompts": "q" * 32, "example": "<|user|>3+5=<|im_end|>"}, "'<|user|>3+5=<|im_end|>'"),
    ],
)
def test_nodes_that_differ_are_told(make_run, run_dir, fields, words):
    with pytest.raises(UsageError, match=r"nodes ann and bob cannot learn from one another") as caught:
        check_identities(make_run(), run_dir, {"ann": OURS, "bob": other(**fields)})
    assert caught.value.code == "E-SWARM-04"
    assert words in str(caught.value)
    assert not run_dir.identity.exists()


def test_of_long_prompts_the_place_where_they_part_is_shown(make_run, run_dir):
    ours, theirs = (other(prompts=text, example="x" * 500 + text + "y" * 500) for text in ("HERE", "THERE"))
    with pytest.raises(UsageError) as caught:
        check_identities(make_run(), run_dir, {"ann": ours, "bob": theirs})
    assert "xHEREy" in str(caught.value)
    assert "xTHEREy" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_each_alone_may_differ(make_run, run_dir):
    run = make_run(method={"name": "on_policy"})
    check_identities(run, run_dir, {"ann": OURS, "bob": other(tokenizer="b" * 16)})


def test_another_model_of_the_same_prompts_is_what_a_swarm_is_for(make_run, run_dir):
    check_identities(make_run(), run_dir, {"ann": other(commit="1"), "bob": other(commit="2")})


@pytest.mark.parametrize("fields", [{"task": "u" * 32}, {"prompts": "q" * 32}, {"commit": "another"}])
def test_a_run_goes_on_with_what_it_began_with(make_run, run_dir, fields):
    run = make_run(nodes={"ann": "tiny:small"})
    check_identities(run, run_dir, {"ann": OURS})
    with pytest.raises(UsageError, match=r"node ann of .* began otherwise") as caught:
        check_identities(run, run_dir, {"ann": other(**fields)})
    assert caught.value.code == "E-RESUME-03"


def test_a_damaged_record(make_run, run_dir):
    run_dir.identity.write_text("{")
    with pytest.raises(RunFailed) as caught:
        check_identities(make_run(), run_dir, {"ann": OURS, "bob": OURS})
    assert caught.value.code == "E-RESUME-02"


def test_a_changed_task_file_is_noticed_when_a_run_goes_on(make_run, tmp_path):
    file = tmp_path / "sums.jsonl"
    rows = [{"prompt": f"{a}+{b}=", "answer": f"{a + b:02d}"} for a in range(1, 6) for b in range(1, 6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = make_run(task={"name": str(file)}, run={"rounds": 3, "checkpoint_every": 1})
    asked = iter([False, True])
    assert not run_swarm(run, observer=Quiet(), should_stop=lambda: next(asked, True)).finished
    file.write_text("".join(json.dumps({**row, "answer": "0"}) + "\n" for row in rows))
    with pytest.raises(UsageError, match="began otherwise") as caught:
        run_swarm(run, observer=Quiet())
    assert caught.value.code == "E-RESUME-03"


@pytest.mark.parametrize("transport", ["memory", "pipes"])
def test_two_templates_are_told_before_the_first_round(make_run, tmp_path, tiny_policy, transport):
    folder = tmp_path / "with_template"
    tiny_policy().save(folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}1+")
    run = make_run(nodes={"ann": "tiny:small", "bob": str(folder)}, swarm={"transport": transport})
    with pytest.raises(UsageError, match="nodes ann and bob cannot learn") as caught:
        run_swarm(run, observer=Quiet())
    assert "other prompts" in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text()
