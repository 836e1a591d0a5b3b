"""Answers of a server, one fault at a time."""

from __future__ import annotations

import json

import pytest

from motet.errors import EnvironmentFault
from motet.generation.vllm_answer import Asked, read_answer

END = 1
ASKED = Asked(prompt=[5, 6], count=1, max_new_tokens=3, end_token_ids=[END], vocab_size=16)


def answer(ids, logp, *, finish="length", **changes):
    choice = {
        "index": 0,
        "text": "ignored",
        "finish_reason": finish,
        "stop_reason": None,
        "logprobs": {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": logp, "top_logprobs": [None]},
        "token_ids": ids,
        "prompt_token_ids": [5, 6],
        **changes,
    }
    return json.dumps({"id": "cmpl-1", "choices": [choice], "usage": {}}).encode()


def read(body, asked=ASKED):
    return read_answer(body, asked, url="http://host:1")


def refusal(body):
    with pytest.raises(EnvironmentFault, match="http://host:1") as caught:
        read(body)
    assert caught.value.code == "E-VLLM-04"
    return str(caught.value)


@pytest.mark.parametrize(
    ("ids", "finish", "expected"),
    [([7, 8, 9], "length", "length"), ([7, END], "stop", "stop"), ([7, 8, END], "length", "stop")],
)
def test_completions(ids, finish, expected):
    logp = [-0.5, -1.5, 0.0][: len(ids)]
    (completion,) = read(answer(ids, logp, finish=finish))
    assert completion.token_ids.tolist() == ids
    assert completion.logp_gen.tolist() == logp
    assert completion.finish_reason == expected


def test_rounding_above_zero():
    (completion,) = read(answer([7, END], [3e-6, -0.5], finish="stop"))
    assert completion.logp_gen.tolist() == [0.0, -0.5]


def test_order_is_by_index():
    both = [json.loads(answer([i, END], [-0.5, -0.5], finish="stop"))["choices"][0] for i in (8, 7)]
    both[0]["index"] = 1
    asked = Asked(ASKED.prompt, 2, 3, [END], 16)
    found = read(json.dumps({"choices": both}).encode(), asked)
    assert [int(completion.token_ids[0]) for completion in found] == [7, 8]


@pytest.mark.parametrize("logp", [None, -9999.0, 0.5])
def test_log_probs_that_are_none(logp):
    assert "processed_logprobs" in refusal(answer([7, END], [logp, -0.5], finish="stop"))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (answer([], []), "0 tokens"),
        (answer([7, 8, 9, 10], [-0.5] * 4), "4 tokens"),
        (answer([7, 16, 8], [-0.5] * 3), "id 16"),
        (answer([7, END, 8], [-0.5] * 3), "behind an end token"),
        (answer([7, 8], [-0.5] * 2, finish="stop"), "end token"),
        (answer([7, 8], [-0.5] * 2), "cut at 2"),
        (answer([7, 8, 9], [-0.5] * 2), "2 log-probs for 3 tokens"),
        (answer([7, 8, 9], [-0.5] * 3, token_ids=[7, 8, 10]), "differ"),
        (answer([7, 8, 9], [-0.5] * 3, token_ids=[7]), "differ"),
        (answer([7, 8, 9], [-0.5] * 3, finish="error"), '"error"'),
        (answer([7, 8, 9], [-0.5] * 3, finish=None), "None"),
        (answer([7, 8, 9], [-0.5] * 3, prompt_token_ids=[6]), "prompt"),
        (answer([7, 8, 9], [-0.5] * 3, logprobs=None), "no log-probs"),
        (answer([7, 8, 9], ["x"] * 3), "no answer of vLLM's"),
        (answer([7], [-0.5], logprobs={"tokens": ["token_id:-1"], "token_logprobs": [-0.5]}), "no token ids"),
        (b"", "no answer of vLLM's"),
        (b'{"object": "error"}', "no answer of vLLM's"),
    ],
)
def test_refusals(body, word):
    assert word in refusal(body)
