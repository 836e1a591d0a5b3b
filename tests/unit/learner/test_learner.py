"""When a step is taken and when it is not, what gets a backward pass, precision, and what is reported."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from motet.errors import RunFailed
from motet.journal.metrics import known

PROMPTS = ["train/0", "train/1", "train/2"]


def with_rewards(groups, value):
    return [
        dataclasses.replace(group, rollouts=tuple(dataclasses.replace(r, reward=value) for r in group.rollouts))
        for group in groups
    ]


def with_logp(groups, value):
    return [
        dataclasses.replace(
            group,
            rollouts=tuple(dataclasses.replace(r, logp_gen=np.full_like(r.logp_gen, value)) for r in group.rollouts),
        )
        for group in groups
    ]


def state_of(learner):
    adamw = learner.optimizer.adamw
    return {
        (name, key): value.clone()
        for name, master in zip(learner.optimizer.names, learner.optimizer.masters, strict=True)
        for key, value in adamw.state.get(master, {}).items()
    }


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


@pytest.fixture
def count_tokens(request):
    """Tokens of each forward pass of a policy's decoder."""

    def watch(policy):
        tokens = []

        def note(module, args, kwargs):
            tokens.append(kwargs["input_ids"].numel())

        handle = policy.model.get_decoder().register_forward_pre_hook(note, with_kwargs=True)
        request.addfinalizer(handle.remove)
        return tokens

    return watch


class TestWithoutAStep:
    """AdamW moves weights by its momentum alone; so where nothing is to be learned it is not called."""

    @pytest.fixture
    def moving(self, random_policy, make_learner, sample_groups):
        """A learner with momentum."""
        watched = make_learner(random_policy(), learning_rate=1e-2, optimizer={"weight_decay": 0.1})
        watched.learner.learn(sample_groups(random_policy(), "ann", PROMPTS), [])
        assert state_of(watched.learner)
        return watched

    @pytest.fixture(params=["no-variance", "all-dropped", "both", "nothing"])
    def useless_round(self, request, random_policy, sample_groups):
        own = with_rewards(sample_groups(random_policy(), "ann", PROMPTS, seed=1), 1.0)
        dropped = with_logp(sample_groups(random_policy(), "bob", PROMPTS, seed=2), -900.0)
        return {"no-variance": (own, []), "all-dropped": ([], dropped), "both": (own, dropped), "nothing": ([], [])}[
            request.param
        ]

    def test_weights_and_optimiser_stay_bit_for_bit(self, moving, useless_round):
        weights, state = moving.weights(), state_of(moving.learner)
        report = moving.learner.learn(*useless_round)
        assert same(moving.weights(), weights)
        assert same(state_of(moving.learner), state)
        assert report.metrics["optim/skipped"] == 1.0
        assert report.metrics.get("samples/backward", 0.0) == 0.0
        assert "optim/grad_norm" not in report.metrics
        assert moving.learner.policy_step == 1
        assert moving.learner.counters()["rounds"] == 2

    def test_every_dropped_sample_is_accounted_for(self, moving, random_policy, sample_groups):
        own = with_rewards(sample_groups(random_policy(), "ann", PROMPTS, seed=1), 1.0)
        bob = with_logp(sample_groups(random_policy(), "bob", PROMPTS, seed=2, rewards=[1.0, 0.0, 0.0, 0.0]), -900.0)
        cid = with_rewards(sample_groups(random_policy(), "cid", PROMPTS[:1], seed=2), 0.0)
        uses = moving.learner.learn(own, [*bob, *cid]).uses
        assert uses["bob"].kept == uses["cid"].kept == 0
        assert dict(uses["bob"].dropped) == {"kl": 3, "advantage": 9}, "no KL is computed where the advantage decides"
        assert dict(uses["cid"].dropped) == {"advantage": 4}


class TestNonFinite:
    def test_a_bad_gradient_is_no_step(self, random_policy, make_learner, sample_groups):
        watched = make_learner(random_policy())
        groups = sample_groups(random_policy(), "ann", PROMPTS)
        watched.learner.learn(groups, [])
        weights, state = watched.weights(), state_of(watched.learner)
        handle = next(iter(watched.learner.policy.trainable().values())).register_hook(lambda grad: grad * math.inf)
        report = watched.learner.learn(groups, [])
        handle.remove()
        assert report.metrics["optim/skipped"] == 1.0
        assert not math.isfinite(report.metrics["optim/grad_norm"])
        assert same(watched.weights(), weights)
        assert same(state_of(watched.learner), state)
        assert watched.learner.policy_step == 1
        after = watched.learner.learn(groups, [])
        assert after.metrics["optim/skipped"] == 0.0, "the bad gradient must be forgotten"
        assert watched.learner.policy_step == 2

    def test_ten_in_a_row_end_the_run_and_a_good_one_starts_the_count_anew(
        self, random_policy, make_learner, sample_groups
    ):
        watched = make_learner(random_policy())
        groups = sample_groups(random_policy(), "ann", PROMPTS[:1])
        parameter = next(iter(watched.learner.policy.trainable().values()))
        for _ in range(2):
            handle = parameter.register_hook(lambda grad: grad * math.nan)
            for _ in range(9):
                assert watched.learner.learn(groups, []).metrics["optim/skipped"] == 1.0
            handle.remove()
            assert watched.learner.learn(groups, []).metrics["optim/skipped"] == 0.0
        parameter.register_hook(lambda grad: grad * math.nan)
        for _ in range(9):
            watched.learner.learn(groups, [])
        with pytest.raises(RunFailed, match=r"random:llama.*10 steps in a row.*learning_rate") as caught:
            watched.learner.learn(groups, [])
        assert caught.value.code == "E-LEARN-01"

    def test_a_round_without_anything_to_learn_does_not_end_the_count(self, random_policy, make_learner, sample_groups):
        watched = make_learner(random_policy())
        groups = sample_groups(random_policy(), "ann", PROMPTS[:1])
        next(iter(watched.learner.policy.trainable().values())).register_hook(lambda grad: grad * math.nan)
        for _ in range(9):
            watched.learner.learn(groups, [])
        watched.learner.learn(with_rewards(groups, 0.0), [])
        with pytest.raises(RunFailed):
            watched.learner.learn(groups, [])

    def test_an_own_log_prob_that_is_not_finite_costs_its_sample_alone(
        self, random_policy, make_learner, sample_groups
    ):
        groups = sample_groups(random_policy(), "ann", PROMPTS)
        first = groups[0].rollouts[0]
        logp = first.logp_gen.copy()
        logp[0] = np.nan
        rollouts = (dataclasses.replace(first, logp_gen=logp), *groups[0].rollouts[1:])
        groups[0] = dataclasses.replace(groups[0], rollouts=rollouts)
        watched = make_learner(random_policy())
        metrics = watched.learner.learn(groups, []).metrics
        assert metrics["optim/skipped"] == 0.0
        assert metrics["self_check/non_finite_share"] == pytest.approx(1 / 12)
        assert all(bool(torch.isfinite(p).all()) for p in watched.weights().values())


class TestRowsWithoutGradient:
    @pytest.mark.parametrize("rule", ["either", "both", "off"])
    def test_only_rows_that_may_be_learned_from_go_forward(
        self, random_policy, make_learner, sample_groups, count_tokens, texts, rule
    ):
        watched = make_learner(random_policy(), rule=rule)
        tokens = count_tokens(watched.learner.policy)
        own = sample_groups(random_policy(), "ann", PROMPTS[:1], rewards=[1.0, 0.0, 0.0, 0.0])
        dead = with_rewards(sample_groups(random_policy(), "ann", PROMPTS[1:2]), 1.0)
        bob = sample_groups(random_policy(), "bob", PROMPTS[1:2], rewards=[1.0, 1.0, 0.0, 0.0], seed=4)
        dead_bob = with_rewards(sample_groups(random_policy(), "bob", PROMPTS[2:]), 0.0)
        report = watched.learner.learn([*own, *dead], [*bob, *dead_bob])
        from_bob = bob[0].rollouts[: 2 if rule == "either" else 4]
        encode = watched.learner.policy.tokenizer.encode_prompt
        prompts = [len(encode(texts[prompt_id])) for prompt_id in PROMPTS[:2]]
        inputs = [len(rollout.token_ids) - 1 for rollout in [*own[0].rollouts, *from_bob]]
        assert tokens == [sum(prompts) + sum(inputs)], "each prompt once, and no completion's last token"
        assert report.metrics["samples/backward"] == 4 + len(from_bob)
        assert report.metrics["group/zero_variance_share"] == 0.5

    def test_a_row_that_fails_by_its_kl_gets_no_backward_pass(
        self, random_policy, make_learner, sample_groups, count_tokens
    ):
        """Most of what went forward was dropped: the kept rest goes forward once more, alone."""
        watched = make_learner(random_policy(), rule="either")
        tokens = count_tokens(watched.learner.policy)
        near = sample_groups(random_policy(), "bob", PROMPTS[:1], rewards=[1.0, 0.0, 0.0, 0.0])
        far = with_logp(sample_groups(random_policy(), "bob", PROMPTS[1:2], rewards=[1.0, 1.0, 1.0, 0.0]), -900.0)
        report = watched.learner.learn([], [*near, *far])
        assert report.metrics["samples/backward"] == 1
        assert len(tokens) == 2
        assert tokens[1] < tokens[0] / 2

    def test_rows_of_advantage_zero_count_in_the_denominator(
        self, random_policy, make_learner, sample_groups, assert_alike
    ):
        own = sample_groups(random_policy(), "ann", PROMPTS[:1])
        dead = with_rewards(sample_groups(random_policy(), "ann", PROMPTS[1:2]), 1.0)
        alone, with_dead = make_learner(random_policy()), make_learner(random_policy())
        alone.learner.learn(own, [])
        with_dead.learner.learn([*own, *dead], [])
        halved = {name: gradient / 2 for name, gradient in alone.gradients[0].items()}
        assert_alike(with_dead.gradients[0], halved, 1e-6)


class TestPrecision:
    def test_small_steps_are_kept_by_the_masters(self, random_policy, make_learner, sample_groups):
        """At a rate of 1e-6 a bf16 weight is the same after ten steps; its fp32 master is not."""
        groups = sample_groups(random_policy(), "ann", PROMPTS)
        watched = make_learner(random_policy(), precision="bf16", learning_rate=1e-6)
        policy = watched.learner.policy
        before, rounded = watched.weights(), {name: p.detach().clone() for name, p in policy.trainable().items()}
        for _ in range(10):
            assert watched.learner.learn(groups, []).metrics["optim/skipped"] == 0.0
        assert {p.dtype for p in policy.trainable().values()} == {torch.bfloat16}
        assert {p.dtype for p in watched.weights().values()} == {torch.float32}
        moved = [float((p != before[name]).float().mean()) for name, p in watched.weights().items()]
        visible = [float((p != rounded[name]).float().mean()) for name, p in policy.trainable().items()]
        assert min(moved) > 0.5
        assert max(visible) < 0.2
        for name, parameter in policy.trainable().items():
            assert torch.equal(parameter, watched.weights()[name].bfloat16())

    def test_bf16_goes_where_fp32_goes(self, random_policy, make_learner, sample_groups):
        groups = sample_groups(random_policy(), "ann", PROMPTS)
        foreign = sample_groups(random_policy(), "bob", PROMPTS, seed=5)
        half, full = (make_learner(random_policy(), precision=precision) for precision in ("bf16", "fp32"))
        metrics = half.learner.learn(groups, foreign).metrics
        full.learner.learn(groups, foreign)
        assert {gradient.dtype for gradient in half.gradients[0].values()} == {torch.float32}
        flat = [torch.cat([g.flatten() for g in watched.gradients[0].values()]) for watched in (half, full)]
        assert float(torch.nn.functional.cosine_similarity(*flat, dim=0)) > 0.99
        assert metrics["clip/share"] == 0.0, "one step a round: the ratio is 1 whatever bf16 rounds"

    def test_bf16_gradients_of_micro_batches_add_up_in_fp32(self, random_policy, make_learner, sample_groups):
        groups = sample_groups(random_policy(), "ann", PROMPTS, size=8)
        single = make_learner(random_policy(), precision="bf16", max_batch_tokens=1)
        whole = make_learner(random_policy(), precision="fp32")
        single.learner.learn(groups, [])
        whole.learner.learn(groups, [])
        assert all(p.grad is None for p in single.learner.policy.trainable().values())
        flat = [torch.cat([g.flatten() for g in watched.gradients[0].values()]) for watched in (single, whole)]
        assert float(torch.nn.functional.cosine_similarity(*flat, dim=0)) > 0.99

    def test_a_saved_policy_after_bf16_training(self, random_policy, make_learner, sample_groups, tmp_path):
        from transformers import AutoModelForCausalLM

        watched = make_learner(random_policy(), precision="bf16")
        watched.learner.learn(sample_groups(random_policy(), "ann", PROMPTS), [])
        policy = watched.learner.policy
        policy.save(tmp_path)
        ids = torch.tensor([[3, 11, 5, 12]])
        with torch.no_grad():
            theirs = AutoModelForCausalLM.from_pretrained(tmp_path)(input_ids=ids).logits[0].float()
            ours = policy.logits(policy.hidden_states(ids, torch.arange(4)[None])[0])
        torch.testing.assert_close(theirs, ours)


class TestAdapter:
    def test_only_the_adapter_moves(self, tiny_policy, make_learner, sample_groups):
        from motet.models.lora import LoraOptions

        policy = tiny_policy(lora=LoraOptions(2, 4.0, "all-linear"))
        before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
        watched = make_learner(policy)
        groups = sample_groups(tiny_policy(), "ann", PROMPTS)
        for _ in range(2):
            assert watched.learner.learn(groups, []).metrics["optim/skipped"] == 0.0
        moved = {name for name, p in policy.model.named_parameters() if not torch.equal(p, before[name])}
        assert moved == set(policy.trainable())


class TestReport:
    def test_metrics_are_those_of_the_table_and_finite(self, random_policy, make_learner, sample_groups):
        own = sample_groups(random_policy(), "ann", PROMPTS)
        foreign = sample_groups(random_policy("qwen3"), "bob", PROMPTS, seed=3)
        metrics = make_learner(random_policy()).learner.learn(own, foreign).metrics
        assert all(known(name) for name in metrics)
        assert all(math.isfinite(value) for value in metrics.values())
        assert {"self_check/weight_mean", "kl_gen_old/sum_p95", "external/influence_share"} <= metrics.keys()

    def test_rewards_and_lengths(self, random_policy, make_learner, sample_groups):
        own = sample_groups(random_policy(), "ann", PROMPTS[:1], rewards=[1.0, 0.0, 0.0, 0.0])
        foreign = sample_groups(random_policy(), "bob", PROMPTS[1:2], rewards=[1.0, 1.0, 1.0, 0.0], seed=2)
        metrics = make_learner(random_policy()).learner.learn(own, foreign).metrics
        assert metrics["reward/own_mean"] == 0.25
        assert metrics["reward/external_mean"] == 0.75
        assert metrics["reward/mean"] == 0.5
        rollouts = own[0].rollouts
        assert metrics["completion/length_mean"] == sum(len(r.token_ids) for r in rollouts) / 4
        assert metrics["completion/cut_share"] == sum(r.finish_reason == "length" for r in rollouts) / 4

    def test_own_samples_agree_with_the_sampler(self, random_policy, make_learner, sample_groups):
        own = sample_groups(random_policy(), "ann", PROMPTS)
        metrics = make_learner(random_policy()).learner.learn(own, []).metrics
        assert metrics["self_check/logp_gap_max"] < 1e-5
        assert metrics["self_check/weight_mean"] == pytest.approx(1.0, abs=1e-5)
        assert metrics["clip/share"] == 0.0
        assert not any(name.startswith(("weight/", "filter/", "external/")) for name in metrics)
