"""What `HFGenerator` promises beyond the contract: one prefill for each group, rows that leave, memory bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.errors import RunFailed
from motet.generation import HFGenerator
from motet.learner.batch import build_batch
from motet.learner.scoring import score_rows
from motet.records import Group, Rollout, SamplerInfo

PROMPTS = {"train/0": "3+5+9=", "train/1": "1+2=", "train/2": "9+9+9+9+9+9+9+9+9+9=", "train/3": "="}


def encode_all(policy):
    return {prompt_id: policy.tokenizer.encode_prompt(text) for prompt_id, text in PROMPTS.items()}


def groups_of(policy, generator, *, temperature, num_completions=5, max_new_tokens=12, seed=3):
    """Completions as the learner gets them."""
    ids = encode_all(policy)
    completions = generator.generate(
        list(ids.values()),
        num_completions=num_completions,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
    )
    info = SamplerInfo(policy.label, 0, temperature, policy.tokenizer.fingerprint)
    return [
        Group("ann", 0, prompt_id, info, tuple(Rollout(c.token_ids, c.logp_gen, c.finish_reason, 0.0) for c in group))
        for prompt_id, group in zip(ids, completions, strict=True)
    ]


@pytest.fixture
def seen(request):
    """Shapes of the ids that went through a policy's decoder, in order."""

    def watch(policy):
        shapes = []

        def note(module, args, kwargs):
            shapes.append(tuple(kwargs["input_ids"].shape))

        handle = policy.model.get_decoder().register_forward_pre_hook(note, with_kwargs=True)
        request.addfinalizer(handle.remove)
        return shapes

    return watch


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2"])
def test_learner_scores_what_was_sampled_alike(random_policy, architecture):
    """Prompts and temperatures mixed in one batch: left padding with a cache there, right padding without here."""
    policy = random_policy(architecture, end_token_ids=(1, 6))
    generator = HFGenerator(policy)
    groups = [
        group for temperature in (0.5, 1.0, 1.8) for group in groups_of(policy, generator, temperature=temperature)
    ]
    batch = build_batch(groups, [], prompt_ids=encode_all(policy).__getitem__, joined=False)
    with torch.no_grad():
        scored_BT = score_rows(policy, batch, torch.arange(len(batch)))
    assert len(batch.length_B.unique()) > 3
    torch.testing.assert_close(scored_BT, batch.logp_gen_BT, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", ["small", "large"])
def test_packaged_models_score_alike(tiny_policy, size):
    """Pre-trained models are sharp: a rare token's log-prob has the rounding error of large logits."""
    policy = tiny_policy(size)
    groups = groups_of(policy, HFGenerator(policy), temperature=1.0, num_completions=8, max_new_tokens=24)
    batch = build_batch(groups[:2], [], prompt_ids=encode_all(policy).__getitem__, joined=False)
    with torch.no_grad():
        scored_BT = score_rows(policy, batch, torch.arange(len(batch)))
    torch.testing.assert_close(scored_BT, batch.logp_gen_BT, atol=1e-5, rtol=1e-5)


def test_bf16_scores_nearly_alike(random_policy):
    policy = random_policy()
    policy.cast(torch.bfloat16)
    groups = groups_of(policy, HFGenerator(policy), temperature=1.0)
    batch = build_batch(groups, [], prompt_ids=encode_all(policy).__getitem__, joined=False)
    with torch.no_grad():
        scored_BT = score_rows(policy, batch, torch.arange(len(batch)))
    assert scored_BT.dtype == torch.float32
    assert bool(torch.isfinite(batch.logp_gen_BT).all())
    assert bool((batch.logp_gen_BT <= 0).all())
    torch.testing.assert_close(scored_BT, batch.logp_gen_BT, atol=0.1, rtol=0)


def held_rows(running):
    """Rows in the model at each step: those that ended leave when a quarter of them have."""
    held, rows = [], running[0]
    for count in running[1:]:
        if count and rows - count >= max(1, rows / 4):
            rows = count
        held.append(rows if count else 0)
    return held


@pytest.mark.parametrize("takes_plans", [True, False])
def test_each_prompt_is_prefilled_once_and_finished_rows_leave(random_policy, seen, takes_plans):
    policy = random_policy(end_token_ids=(1, 2, 3))
    policy.takes_plans = takes_plans
    shapes = seen(policy)
    prompts = list(encode_all(policy).values())
    groups = HFGenerator(policy, fuse=False).generate(
        prompts, num_completions=16, max_new_tokens=10, temperature=1.0, seed=0
    )
    lengths = np.array([len(completion.token_ids) for group in groups for completion in group])
    assert shapes[0] == ((1, sum(map(len, prompts))) if takes_plans else (len(prompts), max(map(len, prompts))))
    # A completion of n tokens needs n - 1 passes after the prefill: its last token is never fed.
    running = [int((lengths > step).sum()) for step in range(10)]
    assert shapes[1:] == [(rows, 1) for rows in held_rows(running) if rows]
    assert running[-1] < running[0] == 64


def test_no_more_than_max_rows_side_by_side(random_policy, seen):
    policy = random_policy()
    shapes = seen(policy)
    prompts = list(encode_all(policy).values())[:2]
    groups = HFGenerator(policy, max_rows=4, fuse=False).generate(
        prompts, num_completions=[5, 6], max_new_tokens=4, temperature=1.0, seed=0
    )
    assert [len(group) for group in groups] == [5, 6]
    assert max(rows for rows, _ in shapes) == 4
    first, second = map(len, prompts)
    # Rows 0-3 of the first, its last with 3 of the second, the rest.
    assert [width for _, width in shapes if width > 1] == [first, first + second, second]


@pytest.mark.parametrize(("architecture", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("gemma2", "eager")])
@pytest.mark.parametrize("takes_plans", [True, False])
def test_columns_of_padding_alone_never_make_a_nan(random_policy, architecture, attention, takes_plans):
    """The prompt of one token stands in 19 columns of padding, at which nothing may be attended to."""
    policy = random_policy(architecture, attn_implementation=attention)
    policy.takes_plans = takes_plans
    prompts = list(encode_all(policy).values())
    (*_, long, short) = HFGenerator(policy).generate(
        prompts, num_completions=3, max_new_tokens=6, temperature=1.0, seed=1
    )
    for completion in (*long, *short):
        assert np.isfinite(completion.logp_gen).all()
    alone = HFGenerator(policy).generate(prompts[-1:], num_completions=1, max_new_tokens=6, temperature=0.0, seed=0)
    padded = HFGenerator(policy).generate(prompts, num_completions=1, max_new_tokens=6, temperature=0.0, seed=0)
    assert alone[0][0].token_ids.tolist() == padded[-1][0].token_ids.tolist()
    np.testing.assert_allclose(alone[0][0].logp_gen, padded[-1][0].logp_gen, atol=1e-5, rtol=0)


def test_a_limit_of_one_token(random_policy):
    policy = random_policy()
    prompts = list(encode_all(policy).values())
    groups = HFGenerator(policy).generate(prompts, num_completions=9, max_new_tokens=1, temperature=1.0, seed=0)
    assert {len(completion.token_ids) for group in groups for completion in group} == {1}


def test_an_adapter_that_has_learned_samples_otherwise_and_scores_alike(tiny_policy):
    from motet.models.lora import LoraOptions

    policy = tiny_policy(lora=LoraOptions(rank=2, alpha=4.0, target_modules="all-linear"))
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.2)
    groups = groups_of(policy, HFGenerator(policy), temperature=1.0)
    batch = build_batch(groups, [], prompt_ids=encode_all(policy).__getitem__, joined=False)
    with torch.no_grad():
        scored_BT = score_rows(policy, batch, torch.arange(len(batch)))
        base_BT = score_rows(tiny_policy(), batch, torch.arange(len(batch)))
    torch.testing.assert_close(scored_BT, batch.logp_gen_BT, atol=1e-5, rtol=0)
    assert float((base_BT - scored_BT).abs().max()) > 0.1


def test_a_broken_model_is_a_failed_run(random_policy):
    policy = random_policy()
    with torch.no_grad():
        next(policy.model.parameters()).fill_(torch.nan)
    with pytest.raises(RunFailed, match=r"random:llama.*not a number") as caught:
        HFGenerator(policy).generate([[2, 3]], num_completions=2, max_new_tokens=2, temperature=1.0, seed=0)
    assert caught.value.code == "E-LEARN-02"
