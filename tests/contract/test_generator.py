"""What every generator must do. Another one passes by adding how it is made from a policy to `GENERATORS`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.generation import HFGenerator, VLLMGenerator


def padded(policy):
    """As for an architecture that takes no attention plans."""
    policy.takes_plans = False
    return HFGenerator(policy)


GENERATORS = {
    "hf": HFGenerator,
    "hf-padded": padded,
    "hf-few-rows": lambda policy: HFGenerator(policy, max_rows=9),
}
ARCHITECTURES = ("llama", "qwen3", "gemma2")
PROMPTS = ("3+5+9=", "1+2=", "9+9+9+9+9+9=", "7=")
CHI_SQUARE_15_LIMIT = 44.3  # a chi-square of 15 degrees of freedom exceeds it once in ten thousand


class Refreshed:
    """A generator whose server gets the policy's weights before every call, as a node does it between rounds."""

    def __init__(self, inner):
        self._inner = inner
        self._step = 0

    def generate(self, prompts, **arguments):
        self._step += 1
        self._inner.refresh(self._step)
        return self._inner.generate(prompts, **arguments)


@pytest.fixture(params=[*GENERATORS, pytest.param("vllm", marks=pytest.mark.network)])
def make(request, tmp_path):
    """Makes a generator from a policy."""
    if request.param != "vllm":
        yield GENERATORS[request.param]
        return
    with request.getfixturevalue("vllm_stub").Server() as server:
        yield lambda policy: Refreshed(VLLMGenerator(policy, server.url, refresh_dir=tmp_path / "weights"))


def ids_of(policy, texts=PROMPTS):
    return [policy.tokenizer.encode_prompt(text) for text in texts]


def generate(generator, prompts, *, num_completions=4, max_new_tokens=12, temperature=1.0, seed=0):
    return generator.generate(
        prompts, num_completions=num_completions, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed
    )


@torch.no_grad()
def plain_logp(policy, prompt, token_ids, temperature):
    """Log-probs of one completion: one row, no padding, no cache, the model's own logits."""
    ids = [*prompt, *token_ids]
    logits = policy.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, len(prompt) - 1 : -1].double()
    logp = torch.log_softmax(logits / temperature, dim=-1)
    return logp.gather(1, torch.tensor(token_ids)[:, None]).squeeze(1).numpy()


def flat(groups):
    return [completion for group in groups for completion in group]


def same(first, second):
    return all(
        np.array_equal(a.token_ids, b.token_ids) and np.array_equal(a.logp_gen, b.logp_gen)
        for a, b in zip(flat(first), flat(second), strict=True)
    )


class TestGenerator:
    def test_groups_come_in_the_order_of_the_prompts_with_their_counts(self, make, random_policy):
        policy = random_policy()
        groups = generate(make(policy), ids_of(policy), num_completions=[2, 0, 5, 1])
        assert [len(group) for group in groups] == [2, 0, 5, 1]

    def test_one_count_serves_all(self, make, random_policy):
        policy = random_policy()
        assert [len(group) for group in generate(make(policy), ids_of(policy), num_completions=3)] == [3] * 4

    def test_no_prompts_no_groups(self, make, random_policy):
        assert generate(make(random_policy()), []) == []

    @pytest.mark.parametrize("end_token_ids", [(1,), (1, 4, 9)])
    def test_form_of_a_completion(self, make, random_policy, end_token_ids):
        policy = random_policy(end_token_ids=end_token_ids)
        completions = flat(generate(make(policy), ids_of(policy), num_completions=20, max_new_tokens=9))
        for completion in completions:
            ids = completion.token_ids
            assert ids.dtype == np.uint32
            assert completion.logp_gen.dtype == np.float32
            assert ids.shape == completion.logp_gen.shape
            assert 1 <= len(ids) <= 9
            assert not np.isin(ids[:-1], end_token_ids).any()
            stopped = ids[-1] in end_token_ids
            assert completion.finish_reason == ("stop" if stopped else "length")
            assert stopped or len(ids) == 9
        assert {c.finish_reason for c in completions} == {"stop", "length"}
        assert {int(c.token_ids[-1]) for c in completions if c.finish_reason == "stop"} == set(end_token_ids)

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
    def test_log_probs_are_those_of_the_model_at_the_temperature(self, make, random_policy, architecture, temperature):
        """Prompts of different lengths, rows that leave at different steps: each row as if it were alone."""
        policy = random_policy(architecture, end_token_ids=(1, 4, 9))
        prompts = ids_of(policy)
        groups = generate(make(policy), prompts, temperature=temperature, num_completions=10)
        assert len({len(c.token_ids) for c in flat(groups)}) > 2
        for prompt, group in zip(prompts, groups, strict=True):
            for completion in group:
                expected = plain_logp(policy, prompt, completion.token_ids.tolist(), temperature)
                np.testing.assert_allclose(completion.logp_gen, expected, atol=1e-5, rtol=0)

    def test_greedy_takes_the_likeliest_and_reports_temperature_one(self, make, random_policy):
        policy = random_policy()
        prompts = ids_of(policy)
        groups = generate(make(policy), prompts, temperature=0.0, num_completions=2, seed=1)
        assert same(groups, generate(make(policy), prompts, temperature=0.0, num_completions=2, seed=2))
        for prompt, (completion, _) in zip(prompts, groups, strict=True):
            ids = completion.token_ids.tolist()
            with torch.no_grad():
                logits = policy.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
            assert logits.argmax(dim=-1).tolist() == ids
            np.testing.assert_allclose(completion.logp_gen, plain_logp(policy, prompt, ids, 1.0), atol=1e-5, rtol=0)

    def test_the_seed_decides(self, make, random_policy):
        policy = random_policy()
        first = generate(make(policy), ids_of(policy), seed=5)
        assert same(first, generate(make(policy), ids_of(policy), seed=5))
        other = generate(make(policy), ids_of(policy), seed=6)
        assert [c.token_ids.tolist() for c in flat(first)] != [c.token_ids.tolist() for c in flat(other)]

    def test_completions_of_a_group_differ(self, make, random_policy):
        policy = random_policy()
        (group,) = generate(make(policy), ids_of(policy, PROMPTS[:1]), num_completions=12)
        assert len({tuple(completion.token_ids.tolist()) for completion in group}) > 6

    def test_global_random_state_is_neither_read_nor_written(self, make, random_policy):
        policy = random_policy()
        torch.manual_seed(1)
        np.random.seed(1)
        first = generate(make(policy), ids_of(policy))
        torch.manual_seed(2)
        before = torch.get_rng_state(), np.random.get_state()[1].copy()
        assert same(first, generate(make(policy), ids_of(policy)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_every_token_comes_as_often_as_its_probability_says(self, random_policy, temperature):
        """Nothing is truncated: over 6000 first tokens, and over the second ones of the commonest first token."""
        policy = random_policy()
        prompt = ids_of(policy, ["3+5="])[0]
        (group,) = generate(
            HFGenerator(policy, max_rows=2000),
            [prompt],
            num_completions=6000,
            max_new_tokens=2,
            temperature=temperature,
        )
        firsts = np.array([int(completion.token_ids[0]) for completion in group])
        assert chi_square(firsts, probabilities(policy, prompt, temperature)) < CHI_SQUARE_15_LIMIT
        commonest = int(np.bincount(np.delete(firsts, firsts == 1)).argmax())
        seconds = [int(c.token_ids[1]) for c in group if c.token_ids[0] == commonest]
        assert chi_square(seconds, probabilities(policy, [*prompt, commonest], temperature)) < CHI_SQUARE_15_LIMIT

    def test_current_weights_are_used(self, make, random_policy):
        policy = random_policy()
        generator = make(policy)
        before = generate(generator, ids_of(policy), temperature=0.0)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(-1.0)
        assert not all(
            np.array_equal(a.logp_gen, b.logp_gen)
            for a, b in zip(flat(before), flat(generate(generator, ids_of(policy), temperature=0.0)), strict=True)
        )


def chi_square(drawn, probability):
    expected = probability * len(drawn)
    assert expected.min() > 5, "the test needs a flatter distribution"
    observed = np.bincount(drawn, minlength=len(probability))
    return float(((observed - expected) ** 2 / expected).sum())


@torch.no_grad()
def probabilities(policy, ids, temperature):
    return torch.softmax(policy.model(input_ids=torch.tensor([ids])).logits[0, -1].double() / temperature, -1).numpy()
