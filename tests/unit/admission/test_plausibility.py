"""Honest claims of real models pass, whatever the temperature; claims that nobody can have do not."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.admission.plausibility import FALSE_ALARM, Histories, check_claims, evidence_nats
from motet.records import Rollout, decode_group, encode_group
from motet.tasks import RunningSums

LIMIT = -math.log(FALSE_ALARM)


def rollout(ids, logp):
    logp = np.broadcast_to(np.float32(logp), len(ids)) if np.ndim(logp) == 0 else np.array(logp, np.float32)
    return Rollout(np.array(ids, np.uint32), np.array(logp), "stop", 0.0)


def lowered(rollouts, nats):
    return [dataclasses.replace(r, logp_gen=(r.logp_gen - nats).astype(np.float32)) for r in rollouts]


@cache
def sampled(model, temperature, num_prompts=100, size=8):
    """Groups of a packaged model."""
    from motet.generation import HFGenerator
    from motet.models import load_policy

    policy, task = load_policy(model, device="cpu"), RunningSums()
    prompts = [policy.tokenizer.encode_prompt(task.prompt(f"train/{n}").text) for n in range(num_prompts)]
    completions = HFGenerator(policy).generate(
        prompts, num_completions=size, max_new_tokens=24, temperature=temperature, seed=5
    )
    groups = [[Rollout(c.token_ids, c.logp_gen, c.finish_reason, 0.0) for c in answers] for answers in completions]
    return groups, policy.tokenizer.vocab_size


MODELS = pytest.mark.parametrize("model", ["tiny:small", "tiny:large"])
TEMPERATURES = pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])


@MODELS
@TEMPERATURES
def test_honest_groups_pass(model, temperature):
    groups, vocab_size = sampled(model, temperature)
    worst = max(evidence_nats(group, vocab_size) for group in groups)
    assert worst < LIMIT / 2
    histories = Histories()
    assert [histories.check("bob", group) for group in groups] == [None] * len(groups)


@MODELS
@TEMPERATURES
def test_forged_groups_do_not(model, temperature):
    groups, vocab_size = sampled(model, temperature)
    for nats, share in [(2.0, 0.3), (3.0, 0.99), (30.0, 1.0)]:
        found = [check_claims(lowered(group, nats), vocab_size) for group in groups]
        assert sum(finding is not None for finding in found) >= share * len(groups)
    assert found[0].reason == "forged_logp"


def test_few_impossible_tokens_convict_among_many_likely_ones():
    likely = [rollout(range(100), -0.01) for _ in range(8)]
    assert check_claims(likely, 50_000) is None
    logp = np.full(100, -0.01, np.float32)
    logp[[10, 60]] = -30
    assert check_claims([*likely[:7], rollout(range(100), logp)], 50_000).reason == "forged_logp"
    one = np.full(100, -0.01, np.float32)
    one[10] = -14.0
    assert check_claims([*likely[:7], rollout(range(100), one)], 50_000) is None, "what is rare happens"


def test_a_collapsed_model_is_not_to_blame():
    same = [rollout([3, 5, 7, 1], -1e-3) for _ in range(8)]
    assert check_claims(same, 16) is None
    assert check_claims([rollout([3, 5, 7, 1], 0.0)] * 64, 16) is None


def test_tokens_claimed_to_be_rare_must_not_keep_coming():
    assert check_claims([rollout([3, 5, 7, 1], -2.5)] * 8, 16).reason == "forged_logp"
    assert check_claims([rollout([3, 5, 7, 1], -2.5)], 16) is None, "once is no evidence"


def test_rounding_on_the_wire_convicts_nobody():
    """A uniform sampler claims log V at each token: as low as can be."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 16, (8, 2000))
    uniform = [rollout(row, -math.log(16) - 1e-3) for row in ids]
    assert check_claims(uniform, 16) is None
    assert check_claims(lowered(uniform, 0.15), 16).reason == "forged_logp", "but not by much more"


def draw_group(random, vocab_size, size, length, sharpness):
    """Completions of a random first-order model, with its own log-probs: no two models are alike."""
    logits = random.normal(0, sharpness, (vocab_size, vocab_size))
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = []
    for _ in range(size):
        state, ids, logp = 0, [], []
        for _ in range(length):
            token = int(random.choice(vocab_size, p=p[state]))
            ids.append(token)
            logp.append(math.log(p[state, token]))
            state = token
        rows.append(rollout(ids, logp))
    return rows


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 4.0])
def test_the_product_is_a_supermartingale(sharpness):
    """Its mean stays at 1 or below, by simulation; and it exceeds 1/alpha as seldom as Ville's inequality says."""
    random = np.random.default_rng(1)
    nats = np.array([evidence_nats(draw_group(random, 5, 4, 5, sharpness), 5) for _ in range(2000)])
    for alpha in (0.5, 0.2, 0.05):
        assert (nats >= -math.log(alpha)).mean() <= alpha


sizes = st.integers(1, 4)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.floats(-1000, 0, width=32)), min_size=1), min_size=1), sizes)
@settings(max_examples=100)
def test_any_claims_give_a_number(rows, repeats):
    group = [rollout(*zip(*row, strict=True)) for row in rows] * repeats
    assert math.isfinite(evidence_nats(group, 10))


def naive_nats(rollouts, vocab_size, slack=0.1):
    """With loops."""
    log_means, log_M = [], [0.0, 0.0, 0.0]
    stakes = (1.0, 1 / 8, 1 / 64)
    for number, row in enumerate(rollouts):
        ids = row.token_ids.tolist()
        for t, (token, logp) in enumerate(zip(ids, row.logp_gen.tolist(), strict=True)):
            before = [r.token_ids.tolist() for r in rollouts[:number] if r.token_ids.tolist()[:t] == ids[:t]]
            going_on = sum(len(other) > t and other[t] == token for other in before)
            ratio = (going_on + 1 / vocab_size) / (len(before) + 1) / math.exp(logp + slack)
            log_M = [log + math.log(1 - s + s * ratio) for log, s in zip(log_M, stakes, strict=True)]
            log_means.append(math.log(sum(map(math.exp, log_M)) / 3))
    return max(log_means)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6))
def test_it_is_the_formula(seed, size, length):
    random = np.random.default_rng(seed)
    group = [
        rollout(random.integers(0, 3, random.integers(1, length + 1)), -1.0 * random.random()) for _ in range(size)
    ]
    assert evidence_nats(group, 3) == pytest.approx(naive_nats(group, 3), abs=1e-6)


def test_large_groups_are_compared_in_blocks(monkeypatch):
    random = np.random.default_rng(3)
    group = draw_group(random, 4, 20, 9, 2.0)
    whole = evidence_nats(group, 4)
    monkeypatch.setattr("motet.admission.plausibility._MAX_CELLS", 300)
    assert evidence_nats(group, 4) == whole


class TestHistories:
    def claims(self, nats, count=1):
        return [[rollout([1, 2, 3], -nats)] for _ in range(count)]

    def play(self, histories, *groups):
        return [histories.check("bob", group) for group in groups]

    def settled(self, spread=0.1):
        histories = Histories()
        random = np.random.default_rng(0)
        self.play(histories, *[self.claims(0.5 + spread * random.random())[0] for _ in range(40)])
        return histories

    def test_a_leap_is_unusual(self):
        (finding,) = self.play(self.settled(), *self.claims(2.5))
        assert finding.reason == "unusual_logp"
        assert finding.detail.startswith("2.50 nats a token claimed, 0.5")

    def test_a_drop_is_not(self):
        assert self.play(self.settled(), *self.claims(0.01)) == [None], "it censors the sender alone"

    @pytest.mark.parametrize("nats", [0.9, 1.4])
    def test_nor_is_a_small_rise(self, nats):
        assert self.play(self.settled(), *self.claims(nats)) == [None]

    def test_nor_a_leap_of_one_who_always_leaps(self):
        histories = Histories()
        self.play(histories, *(self.claims(nats)[0] for nats in [0.2, 2.2] * 20))
        assert self.play(histories, *self.claims(4.0)) == [None]

    def test_the_first_groups_have_nothing_to_be_compared_with(self):
        histories = Histories()
        assert self.play(histories, *self.claims(0.5, 23), *self.claims(9.0)) == [None] * 24

    def test_a_peer_that_has_changed_is_believed_again(self):
        found = self.play(self.settled(), *self.claims(3.0, 64))
        assert found[0] is not None
        assert found[-1] is None
        assert sum(finding is not None for finding in found) <= 33

    def test_peers_have_histories_of_their_own(self):
        assert self.settled().check("cid", self.claims(9.0)[0]) is None

    def test_histories_survive_an_interruption(self):
        before, after = self.settled(), Histories()
        after.restore(before.to_dict())
        assert after.to_dict() == before.to_dict()
        assert self.play(after, *self.claims(2.5))[0].reason == "unusual_logp"


def test_compact_log_probs_are_judged_like_exact_ones():
    from motet.records import Group, SamplerInfo

    groups, vocab_size = sampled("tiny:small", 1.0)
    for rollouts in groups[:20]:
        group = Group("bob", 0, "train/0", SamplerInfo("m", 0, 1.0, "t"), tuple(rollouts))
        there = decode_group(encode_group(group)).rollouts
        assert evidence_nats(there, vocab_size) == pytest.approx(evidence_nats(rollouts, vocab_size), abs=0.05)
