"""The packed learner against the padded one: same log-probs, same verdicts, same gradient, whatever the shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.models.lora import LoraOptions
from motet.records import Group, Rollout, SamplerInfo

SHAPES = {
    "short": [(5, [3, 1, 7]), (1, [2, 5]), (9, [4, 4, 4, 4])],
    "pairs": [(4, [3, 3]), (6, [1, 8])],
    "groups of 64": [(3, [1 + i % 5 for i in range(64)])],
    "one token each": [(5, [1] * 4), (2, [1] * 4)],
    "long prompts": [(300, [4, 2]), (260, [1, 6])],
    "long completions": [(2, [200, 31]), (3, [150, 150])],
}
WIDE = {"max_position_embeddings": 512}


def groups_of(shape, *, vocab_size, peers=("ann", "bob"), seed=0):
    """Groups of random ids with random log-probs; every second one is a peer's, and each has both rewards."""
    random = np.random.default_rng(seed)
    prompts, groups = {}, []
    for number, (prompt, lengths) in enumerate(shape):
        prompts[f"train/{number}"] = random.integers(2, vocab_size, prompt).tolist()
        rollouts = tuple(
            Rollout(
                random.integers(2, vocab_size, length).astype(np.uint32),
                (-random.exponential(np.log(vocab_size), length)).astype(np.float32),
                "length",
                float(place % 2),
            )
            for place, length in enumerate(lengths)
        )
        info = SamplerInfo("m", 0, 0.8 if number % 2 else 1.0, "t")
        groups.append(Group(peers[number % 2], 0, f"train/{number}", info, rollouts))
    return prompts, groups


@pytest.fixture
def both(random_policy, make_learner, assert_alike):
    """Takes the same step on the packed and on the padded path and compares all that comes of it."""

    def compare(architecture, shape, *, tolerance=2e-5, vocab_size=16, config=None, **options):
        prompts, groups = groups_of(shape, vocab_size=vocab_size)
        own = [group for group in groups if group.peer == "ann"]
        foreign = [group for group in groups if group.peer == "bob"]
        reports, learners = [], []
        for packed in (True, False):
            policy = random_policy(architecture, vocab_size=vocab_size, **WIDE, **(config or {}))
            assert policy.takes_plans
            policy.takes_plans = packed
            watched = make_learner(policy, prompt_ids=prompts.__getitem__, **options)
            reports.append(watched.learner.learn(own, foreign))
            learners.append(watched)
        assert_alike(learners[0].gradients[0], learners[1].gradients[0], tolerance)
        for peer, use in reports[0].uses.items():
            plain = reports[1].uses[peer]
            assert (use.kept, use.dropped, use.worth) == (
                plain.kept,
                plain.dropped,
                pytest.approx(plain.worth, rel=1e-4),
            )
        assert reports[0].metrics == pytest.approx(reports[1].metrics, rel=1e-3, abs=1e-5)

    return compare


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(both, shape):
    both("llama", SHAPES[shape])


@pytest.mark.parametrize("architecture", ["qwen3", "gemma2", "gemma3_text", "mistral", "gpt_oss", "gpt2"])
def test_architectures(both, architecture):
    window = {"sliding_window": 4} if architecture in ("gemma2", "gemma3_text", "mistral", "gpt_oss") else {}
    both(architecture, SHAPES["short"], config=window)


@pytest.mark.parametrize("options", [{"rule": "both"}, {"rule": "off"}, {"level": "sequence"}, {"kl_limit_nats": 3.0}])
def test_methods(both, options):
    both("llama", SHAPES["short"], **options)


@pytest.mark.parametrize("max_batch_tokens", [1, 12, 40])
def test_micro_batches(both, max_batch_tokens):
    both("llama", SHAPES["short"], max_batch_tokens=max_batch_tokens)


def test_shares_of_one_prompt(both):
    both("llama", [(5, [3, 4, 2, 6])] * 4, joined=True)


def test_a_vocabulary_of_262_thousand(both):
    """One chunk of logits holds 64 tokens here: completions of 70 are visited twice."""
    both("llama", [(4, [70, 5]), (3, [2, 2])], vocab_size=262_144)


def test_bf16_rounds_no_more_than_the_padded_path(random_policy, make_learner):
    prompts, groups = groups_of(SHAPES["short"], vocab_size=16)

    def gradient(precision, *, packed):
        policy = random_policy()
        policy.takes_plans = packed
        watched = make_learner(policy, prompt_ids=prompts.__getitem__, precision=precision)
        watched.learner.learn(groups, [])
        return torch.cat([part.flatten() for part in watched.gradients[0].values()])

    exact = gradient("fp32", packed=False)
    packed_error, padded_error = ((gradient("bf16", packed=p) - exact).norm() for p in (True, False))
    assert 0 < float(packed_error) < 1.25 * float(padded_error)
    assert float(packed_error) < 0.05 * float(exact.norm())


def test_an_adapter(tiny_policy, make_learner, assert_alike):
    prompts, groups = groups_of(SHAPES["short"], vocab_size=16)
    gradients = []
    for packed in (True, False):
        policy = tiny_policy(lora=LoraOptions(rank=2, alpha=4.0, target_modules="all-linear"))
        with torch.no_grad():  # an adapter begins at zero, where half of its gradient is zero too
            for name, parameter in policy.trainable().items():
                torch.manual_seed(len(name))
                parameter.add_(torch.randn_like(parameter) / 10)
        policy.takes_plans = packed
        watched = make_learner(policy, prompt_ids=prompts.__getitem__)
        watched.learner.learn(groups[:1], groups[1:])
        gradients.append(watched.gradients[0])
    assert gradients[0].keys() == policy.trainable().keys()
    assert_alike(*gradients, 2e-5)
