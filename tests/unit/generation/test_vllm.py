"""What `VLLMGenerator` promises beyond the contract: what it asks for, what it holds against the learner, refreshes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from motet.errors import EnvironmentFault, MotetError, UsageError
from motet.generation import VLLMGenerator
from motet.generation.vllm import plain_score
from motet.models.lora import LoraOptions

pytestmark = pytest.mark.network

PROMPTS = ("3+5+9=", "1+2=", "9+9+9+9+9+9=")
LORA = LoraOptions(rank=4, alpha=8.0, target_modules="all-linear")
COMPLETIONS = "/v1/completions"


def generate(generator, texts=PROMPTS, **options):
    arguments = {"num_completions": 2, "max_new_tokens": 8, "temperature": 1.0, "seed": 0, **options}
    return generator.generate([generator.policy.tokenizer.encode_prompt(text) for text in texts], **arguments)


def flat(groups):
    return [completion for group in groups for completion in group]


@pytest.fixture
def start(vllm_stub):
    """A running server with what it does wrong, and a generator on it: `start(policy, raw=True)`."""
    running = []

    def begin(policy, *, serves=None, server=None, options=None, **faults):
        state = vllm_stub.Server(
            model=policy.model if serves is None else serves, faults=vllm_stub.Faults(**faults), **(server or {})
        )
        running.append(state.__enter__())
        waits = []
        generator = VLLMGenerator(policy, state.url, pause=waits.append, **(options or {}))
        generator.policy, generator.waits = policy, waits
        return generator, state

    yield begin
    for state in running:
        state.__exit__()


def fails(generator, code, *words, kind=EnvironmentFault, **options):
    with pytest.raises(kind) as caught:
        generate(generator, **options)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


class TestRequests:
    def test_everything_that_could_bend_the_distribution_is_said(self, start, tiny_policy):
        generator, server = start(tiny_policy())
        generate(generator, texts=PROMPTS[:1], num_completions=3, temperature=0.7)
        body = server.bodies(COMPLETIONS)[-1]
        prompt = body.pop("prompt")
        assert prompt == generator.policy.tokenizer.encode_prompt(PROMPTS[0])
        assert body.pop("seed") > 0
        assert body == {
            "model": "base",
            "n": 3,
            "max_tokens": 8,
            "temperature": 0.7,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "stop_token_ids": list(generator.policy.tokenizer.end_token_ids),
            "ignore_eos": True,
            "skip_special_tokens": False,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "min_tokens": 0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }

    def test_prompts_have_seeds_far_apart(self, start, tiny_policy):
        generator, server = start(tiny_policy())
        generate(generator, texts=PROMPTS * 4)
        generate(generator, texts=PROMPTS * 4, seed=1)
        seeds = sorted(body["seed"] for body in server.bodies(COMPLETIONS)[1:])
        assert len(seeds) == 24
        assert min(np.diff(seeds)) > 1_000_000

    def test_greedy_is_asked_for_once_and_given_to_all(self, start, tiny_policy):
        generator, server = start(tiny_policy())
        (group,) = generate(generator, texts=PROMPTS[:1], num_completions=5, temperature=0.0)
        assert len(group) == 5
        assert server.bodies(COMPLETIONS)[-1]["n"] == 1

    def test_nothing_asked_nothing_sent(self, start, tiny_policy):
        generator, server = start(tiny_policy())
        assert generate(generator, num_completions=0) == [[], [], []]
        assert server.seen == []

    def test_the_key_comes_from_the_environment(self, start, tiny_policy, monkeypatch):
        generator, _ = start(tiny_policy(), server={"api_key": "secret"})
        message = fails(generator, "E-VLLM-08", "401", "MOTET_VLLM_API_KEY")
        assert "secret" not in message
        monkeypatch.setenv("MOTET_VLLM_API_KEY", "secret")
        generator, server = start(tiny_policy(), server={"api_key": "secret"})
        generate(generator)
        assert set(server.keys) == {"Bearer secret"}


class TestServer:
    @pytest.mark.parametrize(
        ("server", "words"),
        [({"version": "0.10.1"}, ("0.10.1", "0.10.2")), ({"version": "0.9.2.dev3+gabc"}, ("0.9.2", "0.10.2"))],
    )
    def test_too_old(self, start, tiny_policy, server, words):
        fails(start(tiny_policy(), server=server)[0], "E-VLLM-02", *words)

    @pytest.mark.parametrize("version", ["0.10.2", "0.28.0", "1.0.0rc1", "dev"])
    def test_new_enough(self, start, tiny_policy, version):
        assert len(generate(start(tiny_policy(), server={"version": version})[0])) == 3

    def test_no_vllm(self, start, tiny_policy):
        fails(start(tiny_policy(), no_version=True)[0], "E-VLLM-02", "no vLLM server")

    def test_not_even_http(self, start, tiny_policy):
        fails(start(tiny_policy(), not_http=True)[0], "E-VLLM-02", "does not speak HTTP")

    def test_too_short_a_context_is_told_before_sampling(self, start, tiny_policy):
        generator, server = start(tiny_policy(), server={"max_model_len": 15})
        fails(generator, "E-VLLM-03", "15 tokens", "--max-model-len")
        assert COMPLETIONS not in server.paths()

    def test_no_limit_known(self, start, tiny_policy):
        assert len(generate(start(tiny_policy(), server={"max_model_len": None})[0])) == 3

    def test_the_base_model_is_chosen_where_adapters_are_loaded(self, start, tiny_policy):
        policy = tiny_policy()
        generator, server = start(policy)
        server.adapters["somebody-else"] = policy.model
        generate(generator)
        assert {body["model"] for body in server.bodies(COMPLETIONS)} == {"base"}


class TestFailures:
    def test_nobody_there(self, tiny_policy):
        waits = []
        generator = VLLMGenerator(tiny_policy(), "http://127.0.0.1:1", pause=waits.append)
        generator.policy = tiny_policy()
        fails(generator, "E-VLLM-01", "http://127.0.0.1:1")
        assert waits == [0.5, 2.0, 8.0]

    def test_passing_failures_are_tried_again(self, start, tiny_policy):
        generator, _ = start(tiny_policy(), fails=3)
        assert [len(group) for group in generate(generator)] == [2, 2, 2]
        assert generator.waits == [0.5, 2.0, 8.0]

    def test_lasting_failures_are_told(self, start, tiny_policy):
        message = fails(start(tiny_policy(), fails=99)[0], "E-VLLM-07", "500", "EngineCore encountered an issue")
        assert "dead" not in message

    def test_a_dead_engine_is_told(self, start, tiny_policy):
        fails(start(tiny_policy(), dead=True)[0], "E-VLLM-07", "its engine is dead")

    def test_a_silent_server_is_not_waited_for(self, start, tiny_policy):
        generator, server = start(tiny_policy(), silent=True, options={"timeout_s": 0.1})
        fails(generator, "E-VLLM-01", "within 0.1 s", "timeout_s")
        assert len(server.seen) == 1

    def test_lost_connections_are_tried_again(self, start, tiny_policy):
        generator, server = start(tiny_policy())
        generate(generator)
        server.faults.hangs_up = 2
        assert [len(group) for group in generate(generator)] == [2, 2, 2]

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            ({"garbage": True}, ("no answer of vLLM's",)),
            ({"beyond": True}, ("70000", "vocabulary")),
            ({"no_ids": True}, ("no token ids",)),
            ({"no_logprobs": True}, ("no log-probs",)),
            ({"truncates_prompt": True}, ("prompt",)),
            ({"aborts": True}, ("abort",)),
            ({"one_too_few": True}, ("completions",)),
            ({"cut_at": 3}, ("cut at 3 tokens", "--generation-config vllm")),
        ],
    )
    def test_answers_that_are_not_what_was_asked_for(self, start, tiny_policy, fault, words):
        generator, server = start(tiny_policy(), **fault)
        fails(generator, "E-VLLM-04", server.url, *words)

    def test_an_end_token_left_out_of_both_lists(self, start, tiny_policy):
        generator, _ = start(tiny_policy(), no_end=True)
        fails(generator, "E-VLLM-04", "end token", max_new_tokens=24)

    @pytest.mark.parametrize("fault", ["end_not_in_ids", "no_token_ids"])
    def test_an_end_token_with_a_log_prob_is_kept(self, start, tiny_policy, fault):
        policy = tiny_policy()
        expected = generate(start(policy)[0], max_new_tokens=24)
        found = generate(start(policy, **{fault: True})[0], max_new_tokens=24)
        assert {c.finish_reason for group in expected for c in group} == {"stop"}
        for a, b in zip(flat(expected), flat(found), strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()


class TestAgainstTheLearner:
    def test_agreement_is_noted(self, start, tiny_policy):
        generator, server = start(tiny_policy())
        assert generator.agreement is None
        generate(generator)
        generate(generator)
        assert generator.agreement.max < 1e-5
        assert generator.agreement.num_tokens == 32
        assert [body["temperature"] for body in server.bodies(COMPLETIONS)].count(2.0) == 1

    @pytest.mark.parametrize("temperature", [0.7, 1.0])
    def test_log_probs_without_temperature(self, start, tiny_policy, temperature):
        generator, _ = start(tiny_policy(), raw=True)
        message = fails(generator, "E-VLLM-05", "temperature 1:", "--logprobs-mode", temperature=temperature)
        assert message.count("-") > 2  # both averages stand there

    @pytest.mark.parametrize("top_k", [3, 12])
    def test_truncated_sampling(self, start, random_policy, top_k):
        fails(start(random_policy(), top_k=top_k)[0], "E-VLLM-05", "truncates")

    def test_another_model(self, start, random_policy):
        generator, _ = start(random_policy(seed=1), serves=random_policy(seed=2).model)
        fails(generator, "E-VLLM-05", "other weights")

    def test_logits_for_log_probs(self, start, random_policy):
        generator, _ = start(random_policy(), logits=True)
        fails(generator, "E-VLLM-04", "log-prob is 1.0", "processed_logprobs")

    @pytest.mark.parametrize(("offset", "passes"), [(0.04, True), (0.06, False)])
    def test_the_tolerance(self, start, tiny_policy, offset, passes):
        policy = tiny_policy()
        exact = plain_score(policy)

        def score(prompt, token_ids, temperature):
            return exact(prompt, token_ids, temperature) + np.float32(offset)

        generator, _ = start(policy, options={"score": score, "tolerance": 0.05})
        if passes:
            generate(generator)
            assert generator.agreement.mean == pytest.approx(offset, abs=1e-5)
        else:
            fails(generator, "E-VLLM-05", "0.0600 nats apart", "allowed 0.05")

    def test_soft_caps_and_sliding_windows_are_scored_as_they_sample(self, start, random_policy):
        policy = random_policy("gemma2")
        generator, _ = start(policy)
        generate(generator)
        assert generator.agreement.max < 1e-4


def shift(policy, size=0.3):
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for parameter in policy.trainable().values():
            parameter.add_(torch.randn_like(parameter) * size)


class TestRefresh:
    def test_new_weights_go_through_the_folder(self, start, tiny_policy, tmp_path):
        policy, step = tiny_policy(), 0
        generator, server = start(
            policy, serves=torch.nn.Linear(1, 1), options={"refresh_dir": tmp_path, "policy_step": lambda: step}
        )
        for step in (0, 0, 1, 2):
            if step != generator.served_step:
                shift(policy, 0.02)
            generate(generator)
            assert generator.served_step == step
            assert generator.agreement.max < 1e-4
            (folder,) = tmp_path.iterdir()
            assert folder.name.endswith(f"-step-{step}")
        asked = server.bodies("/collective_rpc")
        assert [body["method"] for body in asked] == ["reload_weights"] * 3
        assert len({body["kwargs"]["weights_path"] for body in asked}) == 3
        assert server.paths().count("/reset_prefix_cache") == 3
        salts = [body.get("cache_salt") for body in server.bodies(COMPLETIONS)]
        assert len(set(salts)) == 3
        assert None not in salts

    def test_a_step_that_is_served_is_not_sent_again(self, start, tiny_policy, tmp_path):
        generator, server = start(tiny_policy(), options={"refresh_dir": tmp_path})
        generator.refresh(4)
        generator.refresh(4)
        assert server.paths().count("/collective_rpc") == 1
        assert generator.served_step == 4

    def test_own_ways_to_save(self, start, tiny_policy, tmp_path):
        policy = tiny_policy()
        folders = []

        def save(folder):
            folders.append(folder)
            policy.save(folder)

        start(policy, options={"refresh_dir": tmp_path})[0].refresh(0, save)
        assert len(folders) == 1
        assert folders[0].parent == tmp_path

    def test_weights_that_never_arrive(self, start, tiny_policy, tmp_path):
        policy = tiny_policy()
        generator, server = start(policy, options={"refresh_dir": tmp_path})
        generator.refresh(0)
        generate(generator)
        server.faults.stale = True
        shift(policy)
        generator.refresh(1)
        fails(generator, "E-VLLM-05", "other weights")

    def test_a_server_that_was_started_anew_gets_them_again(self, start, tiny_policy, tmp_path):
        generator, server = start(tiny_policy(), options={"refresh_dir": tmp_path, "policy_step": lambda: 3})
        generate(generator)
        server.faults.hangs_up = 1
        generate(generator)
        assert generator.served_step is None
        generate(generator)
        assert server.paths().count("/collective_rpc") == 2

    def test_without_a_folder(self, start, tiny_policy):
        generator, _ = start(tiny_policy(), options={"policy_step": lambda: 0})
        fails(generator, "E-VLLM-09", "refresh_dir", kind=UsageError)

    def test_a_folder_that_cannot_be_written(self, start, tiny_policy, tmp_path):
        (tmp_path / "file").write_text("")
        generator, _ = start(tiny_policy(), options={"refresh_dir": tmp_path / "file", "policy_step": lambda: 0})
        fails(generator, "E-VLLM-09", "file", kind=UsageError)

    @pytest.mark.parametrize(
        ("fault", "code", "words"),
        [
            ({"no_dev_mode": True}, "E-VLLM-06", ("VLLM_SERVER_DEV_MODE=1",)),
            ({"no_weights_path": True}, "E-VLLM-07", ("weights_path", "same path")),
        ],
    )
    def test_servers_that_cannot(self, start, tiny_policy, tmp_path, fault, code, words):
        options = {"refresh_dir": tmp_path, "policy_step": lambda: 0}
        generator, server = start(tiny_policy(), options=options, **fault)
        fails(generator, code, *words)
        assert server.paths().count("/collective_rpc") == 1
        assert generator.served_step is None


class TestAdapters:
    @pytest.fixture
    def adapted(self, start, tiny_policy, tmp_path):
        """A policy with an adapter that does something, and a server with the model below it."""
        pytest.importorskip("peft", reason="adapters need peft")

        def build(**faults):
            policy = tiny_policy(lora=LORA)
            return start(policy, serves=tiny_policy().model, options={"refresh_dir": tmp_path}, **faults)

        return build

    def test_the_adapter_decides_what_is_sampled(self, adapted, tmp_path):
        generator, server = adapted()
        generator.refresh(0)
        before = generate(generator, temperature=0.0)
        assert generator.agreement.max < 1e-5
        shift(generator.policy)
        generator.refresh(1)
        after = generate(generator, temperature=0.0)
        assert generator.agreement.max < 1e-5
        assert any(not np.array_equal(a.logp_gen, b.logp_gen) for a, b in zip(flat(before), flat(after), strict=True))
        (name,) = server.adapters
        assert name.endswith("-step-1")
        assert [folder.name for folder in tmp_path.iterdir()] == [name]
        loads = [path for path in server.paths() if path.endswith("_adapter")]
        assert loads == ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter"]

    def test_an_ignored_adapter_shows(self, adapted):
        generator, _ = adapted(ignores_adapter=True)
        generator.refresh(0)
        generate(generator)  # it does nothing yet
        shift(generator.policy)
        generator.refresh(1)
        fails(generator, "E-VLLM-05", "an adapter?")

    def test_a_server_that_takes_none(self, adapted):
        generator, _ = adapted(no_adapters=True)
        with pytest.raises(EnvironmentFault, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING") as caught:
            generator.refresh(0)
        assert caught.value.code == "E-VLLM-06"

    def test_a_server_that_does_not_see_the_folder(self, adapted):
        generator, _ = adapted()

        def elsewhere(folder):
            (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))

        with pytest.raises(EnvironmentFault, match="under the same path") as caught:
            generator.refresh(0, elsewhere)
        assert caught.value.code == "E-VLLM-06"

    def test_a_server_that_forgot_the_one_before(self, adapted):
        generator, server = adapted()
        generator.refresh(0)
        server.adapters.clear()
        generator.refresh(1)
        assert len(generate(generator)) == 3

    @pytest.mark.parametrize(
        ("config", "word"),
        [
            ({"peft_type": "IA3"}, "IA3"),
            ({"peft_type": "LORA", "use_dora": True}, "DoRA"),
            ({"peft_type": "LORA", "bias": "all"}, "biases"),
            ({"peft_type": "LORA", "modules_to_save": ["lm_head"]}, "lm_head"),
            ({"peft_type": "LORA", "bias": "none", "target_modules": ["q_proj", "lm_head"]}, "lm_head"),
            ({"peft_type": "LORA", "target_modules": ["embed_tokens"]}, "embed_tokens"),
        ],
    )
    def test_adapters_that_it_cannot_serve(self, adapted, config, word):
        generator, server = adapted()

        def save(folder):
            (folder / "adapter_config.json").write_text(json.dumps(config))

        with pytest.raises(MotetError, match=word) as caught:
            generator.refresh(0, save)
        assert caught.value.code == "E-VLLM-06"
        assert "/v1/load_lora_adapter" not in server.paths()
