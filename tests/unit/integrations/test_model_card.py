"""The card is valid for the hub, tells numbers of the run, and is not led astray by names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from motet import __version__
from motet.config import RunFile
from motet.integrations.model_card import Subject, license_of, model_card
from motet.journal import JsonLinesWriter, RunDir, write_json


def make_run(**sections: dict[str, Any]) -> RunFile:
    nodes = [
        {"name": "ann", "model": "owner/base", "lora": {"rank": 4}},
        {"name": "bob", "model": "a|b`c<script>", "freeze": ["model.embed_tokens.*"]},
    ]
    run = {"name": "r", "rounds": 3, "seed": 7}
    return RunFile.model_validate({"run": run, "task": {"name": "gym:chain_sum"}, "node": nodes, **sections})


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir.create(tmp_path / "r", seed=7)
    with JsonLinesWriter(run_dir.metrics) as rows:
        for round, solved in ((-1, 10), (0, None), (1, 50), (2, 90)):
            for node in ("ann", "bob"):
                exam = {} if solved is None else examined("test", solved if node == "ann" else 1)
                work = {
                    "own/groups": 4,
                    "external/groups": 3,
                    "external/influence_share": 0.25,
                    "admission/rejected": 1,
                }
                rows.write({"round": round, "node": node, **exam, **(work if round >= 0 else {})})
    write_json(run_dir.summary, {"nodes": {"bob": {"parameters": 2_000_000, "trained_parameters": 1_500_000}}})
    return run_dir


def examined(split: str, solved: int) -> dict[str, float]:
    return {f"accuracy/{split}": solved / 100, f"accuracy/{split}/se": 0.03, f"accuracy/{split}/num_prompts": 100}


def card_of(run: RunFile, run_dir: RunDir, **changes: Any) -> str:
    facts = {
        "settings": run.node[0],
        "form": "adapter",
        "num_parameters": 1_234_567,
        "num_trained": 8_192,
        "rounds_done": 3,
        "hub_name": "owner/base",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "license": "apache-2.0",
        **changes,
    }
    return model_card(run, run_dir, Subject(**facts), name="out", base="owner/base")


def test_the_front_matter_is_the_hub_s(run_dir: RunDir) -> None:
    data = ModelCard(card_of(make_run(), run_dir), ignore_metadata_errors=False).data.to_dict()
    assert data == {
        "base_model": "owner/base",
        "base_model_relation": "adapter",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "license": "apache-2.0",
        "tags": ["motet", "grpo", "reinforcement-learning", "f-tis", "lora"],
    }
    merged = ModelCard(card_of(make_run(), run_dir, form="merged", license=None)).data.to_dict()
    assert (merged["library_name"], merged["base_model_relation"]) == ("transformers", "finetune")
    assert "license" not in merged


@pytest.mark.parametrize("hub_name", [None, "tiny:small", "a\nb: c/d", "/home/me/model"])
def test_what_is_no_hub_name_is_no_base_model(hub_name: str | None, run_dir: RunDir) -> None:
    data = ModelCard(card_of(make_run(), run_dir, hub_name=hub_name)).data.to_dict()
    assert "base_model" not in data


def test_results_have_wilson_s_intervals(run_dir: RunDir) -> None:
    text = card_of(make_run(evaluation={"temperature": 0.0}), run_dir)
    assert "| held-out | 10.0 % (5.5 to 17.4) | 90.0 % (82.6 to 94.5) | 100 |" in text
    assert "solved by the likeliest tokens (greedy)" in text
    earlier = card_of(make_run(), run_dir, rounds_done=2)
    assert "| held-out | 10.0 % (5.5 to 17.4) | 50.0 % (40.4 to 59.6) | 100 |" in earlier
    assert "one answer sampled at temperature 1" in earlier
    assert "not measured at this round" in card_of(make_run(), run_dir, rounds_done=1)


def test_swarm_and_data_are_told(run_dir: RunDir) -> None:
    text = card_of(make_run(), run_dir, rounds_done=2)
    assert "trained together with 1 other model by" in text
    assert "after 2 of 3 rounds" in text
    assert "| ann (this model) | owner/base | LoRA, rank 4, alpha 16 | 1,234,567 | 8,192 |" in text
    assert "2,000,000 | 1,500,000 |" in text
    assert "8 groups of completions of its own and 6 of other nodes of the swarm (2 were rejected on arrival)" in text
    assert "Completions of others made up 25 % of the updates." in text
    assert f"exported with motet {__version__}" in text
    assert "at commit `0123456789abcdef0123456789abcdef01234567`" in text


def test_names_are_no_markup(run_dir: RunDir) -> None:
    run = make_run()
    text = card_of(run, run_dir)
    assert r"| bob | a\|b\`c\<script\> | all weights; frozen: model.embed\_tokens.\* |" in text
    other = card_of(run, run_dir, settings=run.node[1], form="model")
    assert "a fine-tuned ``a|b`c<script>``" in other
    assert "<script>" not in other.replace("``a|b`c<script>``", "")


@pytest.mark.parametrize("form", ["model", "merged", "adapter"])
def test_the_lines_that_load_it_are_python(form: str, run_dir: RunDir) -> None:
    text = card_of(make_run(), run_dir, form=form)
    code = text.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 4
    compile(code, "card", "exec")
    assert ("PeftModel" in code) == (form == "adapter")


def test_a_lone_node_has_no_swarm(run_dir: RunDir) -> None:
    text = card_of(make_run(method={"name": "on_policy"}), run_dir)
    assert "trained alone by" in text
    assert "Every node trained alone." in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\nlicense: mit\ntags:\n- x\n---\n# a\n", "mit"),
        ("---\ntags: []\n---\nlicense: mit\n", None),
        ("license: mit\n", None),
        ("---\nlicense: 'x: y'\n---\n", None),
        ("", None),
    ],
)
def test_the_licence_of_a_folder(text: str, expected: str | None, tmp_path: Path) -> None:
    assert license_of(tmp_path) is None
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    assert license_of(tmp_path) == expected


def test_a_run_without_evaluations(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "r", seed=7)
    assert "No evaluation was made." in card_of(make_run(), run_dir)
    run_dir.summary.write_text(json.dumps([1]), encoding="utf-8")
    assert "| bob |" in card_of(make_run(), run_dir)
