"""What must not change a step, and that a step is the formula's: compared with plain loops over full logits."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch

from motet.records import Group

OWN, PEER, OTHER = ["train/0", "train/1", "train/2"], ["train/3", "train/4", "train/2"], ["train/5"]


def counts(report):
    return {peer: (use.kept, dict(use.dropped)) for peer, use in report.uses.items()}


def near(policy, *, seed):
    """A model a little off, as that of a peer that has learned something else."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
    return policy


@pytest.fixture
def round_of_groups(random_policy, sample_groups):
    """Own groups, those of a peer that is near (at another temperature), and those of one that is far."""
    own = sample_groups(random_policy(), "ann", OWN, seed=1)
    bob = sample_groups(near(random_policy(), seed=5), "bob", PEER, seed=2, temperature=0.7, size=5)
    cid = sample_groups(random_policy("qwen3", seed=6), "cid", OTHER, seed=3, size=3)
    return own, [*bob, *cid]


def naive_gradient(policy, own, foreign, method, *, texts):
    """-(1/B) sum_i (1/|a_i|) sum_t w min(R A', clip(R) A') with loops, one row at a time; R = 1 in value."""
    rows = []
    for group in (*own, *foreign):
        rewards = [rollout.reward for rollout in group.rollouts]
        mean = sum(rewards) / len(rewards)
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / max(1, len(rewards) - 1))
        for rollout in group.rollouts:
            advantage = 0.0 if std == 0 else (rollout.reward - mean) / (std + 1e-4)
            rows.append((group, rollout, advantage, group in foreign))
    loss = torch.zeros((), dtype=torch.float64)
    kept = 0
    for group, rollout, advantage, external in rows:
        prompt = policy.tokenizer.encode_prompt(texts[group.prompt_id])
        ids = rollout.token_ids.tolist()
        logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double()
        logp = torch.log_softmax(logits / group.sampler.temperature, -1)[range(len(ids)), ids]
        differences = logp.detach().numpy() - rollout.logp_gen
        ratios = [math.exp(d) for d in differences]
        kl = sum(ratio - 1 - math.log(ratio) for ratio in ratios)
        no_better, too_far = advantage <= 0, kl > method["kl_limit_nats"]
        if external and method["rule"] == "either" and (no_better or too_far):
            continue
        if external and method["rule"] == "both" and advantage < 0 and too_far:
            continue
        kept += 1
        if method["level"] == "sequence":
            ratios = [math.prod(ratios)] * len(ratios)
        weights = {
            "none": [1.0] * len(ratios),
            "vanilla": ratios,
            "truncated": [min(ratio, method["cap"]) for ratio in ratios],
        }[method["weights"]]
        # At R = 1 neither branch of the minimum is clipped, and dR = d logp.
        surrogate = sum(w * advantage * p for w, p in zip(weights, logp, strict=True)) / len(ids)
        loss = loss - surrogate / len(rows)
    policy.model.zero_grad()
    loss.backward()
    gradient = {name: p.grad.clone() for name, p in policy.trainable().items()}
    policy.model.zero_grad()
    return gradient, kept


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(
    ("weights", "rule"),
    [*itertools.product(["none", "vanilla", "truncated"], ["either", "off"]), ("truncated", "both")],
)
def test_a_step_is_the_formula(random_policy, make_learner, round_of_groups, assert_alike, texts, weights, rule, level):
    own, foreign = round_of_groups
    method = {"weights": weights, "rule": rule, "level": level, "cap": 1.5, "kl_limit_nats": 3.0}
    watched = make_learner(random_policy(), dtype=torch.float64, max_batch_tokens=60, **method)
    expected, kept = naive_gradient(watched.learner.policy, own, foreign, method, texts=texts)
    report = watched.learner.learn(own, foreign)
    assert_alike(watched.gradients[0], expected, 1e-6)
    num_own = sum(len(group.rollouts) for group in own)
    assert sum(use.kept for use in report.uses.values()) == kept - num_own
    if rule == "either":
        assert 0 < kept - num_own < sum(len(group.rollouts) for group in foreign)
        assert report.metrics["filter/dropped/kl"] > 0, "the limit should have dropped some row by its KL alone"


def truncated(old_BT, gen_BT, mask_BT):
    return (old_BT - gen_BT).exp().clamp(max=1.5) * mask_BT


def either(advantage_B, kl_B, is_external_B):
    return ~is_external_B | ((advantage_B > 0) & (kl_B <= 3.0))


def test_own_functions_equal_to_ours_take_the_same_step(random_policy, make_learner, round_of_groups, assert_alike):
    options = {"cap": 1.5, "kl_limit_nats": 3.0}
    ours, own = (
        make_learner(random_policy(), dtype=torch.float64, max_batch_tokens=60, **options, weights=weights, rule=rule)
        for weights, rule in (("truncated", "either"), (truncated, either))
    )
    expected, found = ours.learner.learn(*round_of_groups), own.learner.learn(*round_of_groups)
    assert_alike(own.gradients[0], ours.gradients[0], 1e-6)
    assert {peer: use.kept for peer, use in found.uses.items()} == {p: use.kept for p, use in expected.uses.items()}
    assert {reason for use in found.uses.values() for reason in use.dropped} == {"rule"}
    share = expected.metrics["filter/dropped_share"]
    assert found.metrics["filter/dropped_share"] == found.metrics["filter/dropped/rule"] == share > 0
    for name in ("samples/backward", "external/influence_share"):
        assert found.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-4)


def test_an_own_rule_may_keep_what_is_worse_than_its_group(random_policy, make_learner, round_of_groups, texts):
    """It is asked with the true KL: a rule that keeps only what is far drops nobody for a KL of 0."""
    far = make_learner(random_policy(), dtype=torch.float64, rule=lambda _advantage, kl_B, _external: kl_B > 3.0)
    uses = far.learner.learn(*round_of_groups).uses
    method = {"weights": "truncated", "rule": "off", "level": "token", "cap": 2.0, "kl_limit_nats": 3.0}
    near_by, worse_too = ({**method, "rule": "both"}, method)
    counts = [naive_gradient(random_policy(), *round_of_groups, m, texts=texts)[1] for m in (near_by, worse_too)]
    num_worse_and_far = counts[1] - counts[0]
    better = make_learner(random_policy(), dtype=torch.float64, rule=lambda a_B, kl_B, _: (kl_B > 3.0) & (a_B > 0))
    kept_better = sum(use.kept for use in better.learner.learn(*round_of_groups).uses.values())
    assert num_worse_and_far > 0
    assert sum(use.kept for use in uses.values()) == kept_better + num_worse_and_far


def test_an_own_rule_judges_advantages_before_they_are_scaled(random_policy, make_learner, round_of_groups):
    rule = lambda advantage_B, _kl, _external: advantage_B > 0.4  # noqa: E731
    free, held = (make_learner(random_policy(), rule=rule, max_influence=limit) for limit in (None, 0.1))
    expected, found = free.learner.learn(*round_of_groups), held.learner.learn(*round_of_groups)
    assert found.metrics["external/influence_scale"] < 0.5
    assert counts(found) == counts(expected)
    assert found.metrics["samples/backward"] == expected.metrics["samples/backward"]


# In float64 too the norms of transformers round to float32, and packed rows meet them with other last digits.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
@pytest.mark.parametrize("max_batch_tokens", [1, 30, 100])
def test_micro_batches_change_nothing(
    random_policy, make_learner, round_of_groups, assert_alike, dtype, tolerance, max_batch_tokens
):
    whole = make_learner(random_policy(), dtype=dtype)
    split = make_learner(random_policy(), dtype=dtype, max_batch_tokens=max_batch_tokens)
    report, again = whole.learner.learn(*round_of_groups), split.learner.learn(*round_of_groups)
    assert_alike(split.gradients[0], whole.gradients[0], tolerance)
    assert counts(report) == counts(again)
    assert report.metrics == pytest.approx(again.metrics, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("max_batch_tokens", [40, 16384])
def test_the_order_of_groups_and_rollouts_changes_nothing(
    random_policy, make_learner, round_of_groups, assert_alike, max_batch_tokens
):
    own, foreign = round_of_groups
    turned = [
        [dataclasses.replace(group, rollouts=group.rollouts[::-1]) for group in groups[::-1]]
        for groups in (own, foreign)
    ]
    first = make_learner(random_policy(), dtype=torch.float64, max_batch_tokens=max_batch_tokens)
    second = make_learner(random_policy(), dtype=torch.float64, max_batch_tokens=max_batch_tokens)
    report, again = first.learner.learn(own, foreign), second.learner.learn(*turned)
    assert_alike(second.gradients[0], first.gradients[0], 1e-10)
    assert report.metrics == pytest.approx(again.metrics, rel=1e-5, abs=1e-6)
    assert counts(report) == counts(again)


def test_padding_changes_nothing(random_policy, make_learner, round_of_groups, sample_groups, assert_alike):
    """A long group of no variance makes every row of the batch longer, and doubles the denominator."""
    own, foreign = round_of_groups
    num_rows = sum(len(group.rollouts) for group in (*own, *foreign))
    long = sample_groups(
        random_policy(), "ann", ["train/4"], size=num_rows, rewards=[0.0] * num_rows, max_new_tokens=40, seed=9
    )
    assert max(len(rollout.token_ids) for rollout in long[0].rollouts) > 20
    plain, padded = (make_learner(random_policy(), dtype=torch.float64) for _ in range(2))
    plain.learner.learn(own, foreign)
    padded.learner.learn([*own, *long], foreign)
    doubled = {name: 2 * gradient for name, gradient in padded.gradients[0].items()}
    assert_alike(doubled, plain.gradients[0], 1e-10)


def test_own_groups_alone_are_plain_grpo(random_policy, make_learner, round_of_groups, assert_alike, texts):
    """With log-probs that are the learner's own every weight is 1, nothing is filtered: all methods are one."""
    own, _ = round_of_groups
    exact = [rescored(random_policy(), group, texts) for group in own]
    grpo = make_learner(random_policy(), weights="none", rule="off")
    grpo.learner.learn(exact, [])
    for weights, rule in [("truncated", "either"), ("vanilla", "both")]:
        other = make_learner(random_policy(), weights=weights, rule=rule)
        report = other.learner.learn(exact, [])
        assert_alike(other.gradients[0], grpo.gradients[0], 1e-5)
        assert report.metrics["self_check/weight_mean"] == pytest.approx(1.0, abs=1e-5)
        assert report.uses == {}


def rescored(policy, group: Group, texts) -> Group:
    """The group with log-probs of `policy` at the group's temperature."""
    prompt = policy.tokenizer.encode_prompt(texts[group.prompt_id])
    rollouts = []
    for rollout in group.rollouts:
        ids = rollout.token_ids.tolist()
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double()
        logp = torch.log_softmax(logits / group.sampler.temperature, -1)[range(len(ids)), ids]
        rollouts.append(dataclasses.replace(rollout, logp_gen=logp.float().numpy()))
    return dataclasses.replace(group, rollouts=tuple(rollouts))


def test_the_senders_temperature_is_scored_with(random_policy, make_learner, sample_groups):
    """A peer with our own weights at another temperature is on-policy: weights of 1 and no divergence."""
    foreign = sample_groups(random_policy(), "bob", OWN, temperature=0.5, size=8, seed=4)
    report = make_learner(random_policy()).learner.learn([], foreign)
    assert report.metrics["weight/mean_before_cap"] == pytest.approx(1.0, abs=1e-4)
    assert report.metrics["kl_gen_old/sum_p95"] < 1e-6
    lied = [dataclasses.replace(g, sampler=dataclasses.replace(g.sampler, temperature=1.0)) for g in foreign]
    report = make_learner(random_policy()).learner.learn([], lied)
    assert report.metrics["kl_gen_old/sum_p95"] > 0.1


def test_joined_shares_are_one_group(random_policy, make_learner, sample_groups, assert_alike):
    """Horizontal: the shares of two nodes give the step of the whole group, were it not for the filter."""
    share_of_ann = sample_groups(random_policy(), "ann", ["train/0"], rewards=[1.0, 0.0], size=2, seed=1)
    share_of_bob = sample_groups(random_policy(), "bob", ["train/0"], rewards=[1.0, 1.0, 0.5], size=3, seed=2)
    whole = dataclasses.replace(share_of_ann[0], rollouts=share_of_ann[0].rollouts + share_of_bob[0].rollouts)
    joined = make_learner(random_policy(), dtype=torch.float64, joined=True, rule="off")
    vertical = make_learner(random_policy(), dtype=torch.float64, rule="off")
    apart = make_learner(random_policy(), dtype=torch.float64, rule="off")
    assert joined.learner.learn(share_of_ann, share_of_bob).metrics["group/zero_variance_share"] == 0
    vertical.learner.learn([whole], [])
    apart.learner.learn(share_of_ann, share_of_bob)
    assert_alike(joined.gradients[0], vertical.gradients[0], 1e-6)
    with pytest.raises(AssertionError):
        assert_alike(apart.gradients[0], vertical.gradients[0], 1e-3)


def test_a_joined_share_alone_has_no_variance(random_policy, make_learner, sample_groups):
    """Shares without variance of their own teach once they are joined."""
    ann = sample_groups(random_policy(), "ann", ["train/0"], rewards=[0.0, 0.0], size=2, seed=1)
    bob = sample_groups(random_policy(), "bob", ["train/0"], rewards=[1.0, 1.0], size=2, seed=2)
    report = make_learner(random_policy(), joined=True).learner.learn(ann, bob)
    assert report.metrics["samples/backward"] == 4
    assert make_learner(random_policy()).learner.learn(ann, bob).metrics["samples/backward"] == 0


def test_joined_groups_of_different_rounds_stay_apart(random_policy, make_learner, sample_groups):
    ann = sample_groups(random_policy(), "ann", ["train/0"], rewards=[0.0, 0.0], size=2, seed=1, round=1)
    bob = sample_groups(random_policy(), "bob", ["train/0"], rewards=[1.0, 1.0], size=2, seed=2, round=0)
    report = make_learner(random_policy(), joined=True).learner.learn(ann, bob)
    assert report.metrics["samples/backward"] == 0
