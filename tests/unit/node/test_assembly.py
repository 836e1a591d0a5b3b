"""Settings become objects."""

from __future__ import annotations

import json

import pytest
import torch

from motet.config import RunFile
from motet.errors import UsageError
from motet.node import policy_of


def test_every_setting_of_the_method_reaches_the_learner(make_run, assemble):
    method = {
        "name": "tis", "rule": "both", "cap": 3.0, "level": "sequence", "epsilon": 0.1, "epsilon_high": 0.3,
        "kl_limit_nats": 7.0, "kl_estimator": "k2", "kl_reduction": "mean", "scale_rewards": "none",
    }  # fmt: skip
    built = assemble(make_run(method=method)).members["ann"].node.learner.method
    del method["name"]
    assert {name: getattr(built, name) for name in method} == method
    assert built.weights == "truncated"


@pytest.mark.parametrize(
    ("name", "weights", "rule"),
    [
        ("nois", "none", "off"),
        ("vis", "vanilla", "off"),
        ("f_nois", "none", "either"),
        ("f_tis", "truncated", "either"),
    ],
)
def test_presets(make_run, assemble, name, weights, rule):
    built = assemble(make_run(method={"name": name})).members["bob"].node.learner.method
    assert (built.weights, built.rule) == (weights, rule)


def test_own_functions_reach_the_learner(make_run, assemble, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def one(old, gen, mask):\n    return mask.float()\n\ndef near(a, kl, ext):\n    return kl < 5\n")
    run = make_run(method={"weights": f"{mine}:one", "rule": f"{mine}:near"})
    built = assemble(run).members["ann"].node.learner.method
    assert (built.weights.__name__, built.rule.__name__) == (f"{mine}:one", f"{mine}:near")


def test_an_own_function_is_tried_before_a_model_is_loaded(make_run):
    run = make_run(method={"rule": "nowhere.py:near"}, nodes={"ann": "./no_such_model"})
    with pytest.raises(UsageError) as caught:
        policy_of(run, run.node[0])
    assert caught.value.code == "E-METHOD-01"


def test_what_a_node_sets_for_itself(make_run, assemble):
    sections = {
        "learner": {"learning_rate": 1e-3, "schedule": "linear", "final_learning_rate": 1e-4},
        "rollout": {"truncated": "mask", "temperature": 0.5},
        "evaluation": {"temperature": 0.0},
    }
    settings = make_run(**sections).model_dump()
    first, second = settings["node"]
    own = {"learning_rate": 1e-2, "precision": "bf16", "freeze": ("*embed_tokens*",)}
    settings["node"] = ({**first, **own}, second)
    ann, bob = assemble(RunFile.model_validate(settings)).members.values()
    rates = [(m.node.learner.optimizer.options.rate(0), m.node.learner.optimizer.options.rate(3)) for m in (ann, bob)]
    assert rates == [pytest.approx((1e-2, 1e-3)), pytest.approx((1e-3, 1e-4))]
    assert [next(iter(m.policy.trainable().values())).dtype for m in (ann, bob)] == [torch.bfloat16, torch.float32]
    assert [any("embed" in name for name in m.policy.trainable()) for m in (ann, bob)] == [False, True]
    assert {m.node.learner.method.truncated for m in (ann, bob)} == {"mask"}
    assert {m.examiner._temperature for m in (ann, bob)} == {0.0}


def test_a_template_that_cannot_be_read(make_run, assemble, tmp_path):
    with pytest.raises(UsageError, match=r"prompt\.template: cannot read") as caught:
        assemble(make_run(prompt={"template": str(tmp_path / "none.jinja")}))
    assert caught.value.code == "E-MODEL-12"


def test_the_optimisers_settings(make_run, assemble):
    learner = {
        "learning_rate": 0.5, "schedule": "cosine", "final_learning_rate": 0.25, "warmup_rounds": 2,
        "weight_decay": 0.1, "max_grad_norm": 2.0, "precision": "bf16",
    }  # fmt: skip
    member = assemble(make_run(learner=learner)).members["ann"]
    options = member.node.learner.optimizer.options
    assert (options.learning_rate, options.schedule, options.final_learning_rate) == (0.5, "cosine", 0.25)
    assert (options.warmup_steps, options.num_steps, options.weight_decay) == (2, 4, 0.1)
    assert options.max_grad_norm == 2.0
    assert {p.dtype for p in member.policy.trainable().values()} == {torch.bfloat16}


def test_pace(make_run, assemble):
    assert assemble(make_run()).members["ann"].node.max_lag is None
    free = assemble(make_run(swarm={"pace": "free", "max_lag": 3})).members["ann"].node
    assert free.max_lag == 3
    assert free.deadline_s == 60.0


def test_who_meets_whom(make_run, assemble):
    shared = assemble(make_run())
    assert shared.members["ann"].node.exchange.peers() == ["bob"]
    assert shared.hubs["ann"] is shared.hubs["bob"]
    alone = assemble(make_run(method={"name": "on_policy"}))
    assert alone.members["ann"].node.exchange.peers() == []
    assert alone.hubs["ann"] is not alone.hubs["bob"]
    assert len(alone.members["ann"].node.assignment.plan("ann", 0)) == 6
    assert list(alone.members) == ["ann", "bob"]


def test_adapters_of_a_run_differ_by_node_and_not_by_run(make_run, assemble):
    settings = make_run().model_dump()
    for node in settings["node"]:
        node["lora"] = {"rank": 2, "target_modules": ("q_proj",)}
    first, again = (assemble(RunFile.model_validate(settings)).members for _ in range(2))
    ann, bob = (first[name].policy.trainable() for name in ("ann", "bob"))
    assert all("q_proj.lora_" in name for name in ann)
    assert any(not torch.equal(ann[name], bob[name]) for name in ann)
    assert all(torch.equal(ann[name], p) for name, p in again["ann"].policy.trainable().items())


def test_a_task_that_is_too_small(make_run, assemble, tmp_path):
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(5)))
    with pytest.raises(UsageError, match=r"rollout\.prompts_per_round.*6.*training prompts") as caught:
        assemble(make_run(task={"name": str(file)}))
    assert caught.value.code == "E-SWARM-02"


def test_a_task_from_a_file(make_run, assemble, tmp_path):
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(30)))
    assembly = assemble(make_run(task={"name": str(file)}))
    node = assembly.members["ann"].node
    prompt = assembly.task.prompt("train/0").text
    assert node.production.sampler.prompt_ids("train/0") == tuple(
        assembly.members["ann"].policy.tokenizer.encode_prompt(prompt)
    )
