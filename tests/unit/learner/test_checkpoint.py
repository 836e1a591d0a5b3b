"""A learner saved and loaded goes on bit for bit; files that are missing, damaged or foreign are one clear line."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from motet.errors import RunFailed
from motet.learner import load_learner, load_weights, save_learner

PROMPTS = ["train/0", "train/1"]


@pytest.fixture
def trained(random_policy, make_learner, sample_groups):
    """A learner after two rounds, in some precision."""

    def train(precision="fp32", rounds=2):
        watched = make_learner(random_policy(), precision=precision, optimizer={"schedule": "cosine"})
        for seed in range(rounds):
            watched.learner.learn(sample_groups(random_policy(), "ann", PROMPTS, seed=seed), [])
        return watched

    return train


@pytest.fixture
def folder(trained, tmp_path):
    save_learner(tmp_path, trained().learner)
    return tmp_path


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("rounds", [0, 2])
def test_a_loaded_learner_goes_on_bit_for_bit(
    trained, make_learner, random_policy, sample_groups, tmp_path, precision, rounds
):
    first = trained(precision, rounds)
    save_learner(tmp_path, first.learner)
    second = make_learner(random_policy(seed=9), precision=precision, optimizer={"schedule": "cosine"})
    load_learner(tmp_path, second.learner)
    assert second.learner.counters() == first.learner.counters()
    groups = sample_groups(random_policy(), "ann", PROMPTS, seed=7)
    for watched in (first, second):
        watched.learner.learn(groups, [])
    for name, weight in first.weights().items():
        assert torch.equal(weight, second.weights()[name])
        assert torch.equal(first.learner.policy.trainable()[name], second.learner.policy.trainable()[name])
    for mine, theirs in zip(first.learner.optimizer.masters, second.learner.optimizer.masters, strict=True):
        state, other = (w.learner.optimizer.adamw.state[m] for w, m in ((first, mine), (second, theirs)))
        assert state.keys() == other.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(state[key], other[key]) for key in state)


def test_weights_alone(folder, trained, random_policy):
    policy = random_policy(seed=9)
    load_weights(folder, policy)
    for name, weight in trained().weights().items():
        assert torch.equal(policy.trainable()[name], weight)


def refused(folder, learner):
    with pytest.raises(RunFailed) as caught:
        load_learner(folder, learner)
    assert caught.value.code == "E-CHECKPOINT-01"
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def resave(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def first_moment(tensors):
    return next(key for key in tensors if key.endswith("/exp_avg"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "weights.safetensors").unlink(),
        lambda f: (f / "optimizer.safetensors").unlink(),
        lambda f: (f / "learner.json").unlink(),
        lambda f: (f / "weights.safetensors").write_bytes(b"nonsense"),
        lambda f: (f / "optimizer.safetensors").write_bytes((f / "optimizer.safetensors").read_bytes()[:-1]),
        lambda f: (f / "learner.json").write_text("{"),
        lambda f: (f / "learner.json").write_text("[]"),
        lambda f: (f / "learner.json").write_text('{"rounds": 1}'),
        lambda f: (f / "learner.json").write_text(json.dumps(dict.fromkeys(("rounds", "policy_step"), "x"))),
        lambda f: (f / "learner.json").write_bytes(b"\xff"),
        lambda f: resave(f / "weights.safetensors", lambda t: t.pop(min(t))),
        lambda f: resave(f / "optimizer.safetensors", lambda t: t.pop(first_moment(t))),
        lambda f: resave(f / "optimizer.safetensors", lambda t: t.update({"x/exp_avg": torch.zeros(1)})),
        lambda f: resave(f / "optimizer.safetensors", lambda t: t.update({first_moment(t): torch.zeros(1)})),
        lambda f: resave(f / "optimizer.safetensors", lambda t: t.clear()),
    ],
    ids=["no-weights", "no-moments", "no-counters", "weights-nonsense", "moments-cut", "counters-cut", "counters-list",
         "counters-few", "counters-words", "counters-bytes", "weights-few", "moments-few", "moments-unknown",
         "moments-shape", "moments-none"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_one_line(folder, make_learner, random_policy, damage):
    damage(folder)
    refused(folder, make_learner(random_policy()).learner)


@pytest.mark.parametrize("other", [{"architecture": "qwen3"}, {"hidden_size": 64, "head_dim": 16}])
def test_a_checkpoint_of_another_model(folder, make_learner, random_policy, other):
    refused(folder, make_learner(random_policy(**other)).learner)


def test_moments_of_another_model(folder, make_learner, random_policy, sample_groups, tmp_path):
    other = make_learner(random_policy("qwen3"))
    other.learner.learn(sample_groups(random_policy(), "ann", PROMPTS), [])
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    save_learner(foreign, other.learner)
    shutil.copy(foreign / "optimizer.safetensors", folder)
    refused(folder, make_learner(random_policy()).learner)
