"""The packaged models are ordinary Hugging Face folders, small, and right in about a third of their samples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.errors import UsageError
from motet.models import tiny
from motet.models.tiny import TINY_MODELS, tiny_path
from motet.tasks.running_sums import RunningSums

NAMES = tuple(TINY_MODELS)
ALPHABET = "0123456789+=.;"


def load(name: str) -> tuple[torch.nn.Module, object]:
    folder = tiny_path(name)
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def test_the_known_names() -> None:
    assert NAMES == ("tiny:small", "tiny:large", "tiny:short", "tiny:long", "tiny:direct")


@pytest.mark.parametrize(("name", "nearest"), [("tiny:smal", "tiny:small"), ("tiny:Large", "tiny:large")])
def test_an_unknown_name_is_answered_with_the_known_ones(name: str, nearest: str) -> None:
    with pytest.raises(UsageError) as caught:
        tiny_path(name)
    assert caught.value.code == "E-MODEL-01"
    message = str(caught.value)
    assert name in message
    assert '"tiny:small", "tiny:large", "tiny:short", "tiny:long", "tiny:direct"' in message
    assert message.endswith(f'did you mean "{nearest}"?')


def test_asking_for_a_path_needs_no_torch() -> None:
    code = f"""if True:
        import runpy, sys
        assert runpy.run_path({tiny.__file__!r})["tiny_path"]("tiny:small").is_dir()
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_weights_together_are_small() -> None:
    files = [file for name in NAMES for file in tiny_path(name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 6_000_000
    assert {file.suffix for file in files} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("tiny:small", 65_000, 85_000),
        ("tiny:large", 400_000, 500_000),
        ("tiny:short", 150_000, 180_000),
        ("tiny:long", 150_000, 180_000),
        ("tiny:direct", 75_000, 110_000),
    ],
)
def test_a_model_is_a_llama_in_fp32_of_its_size(name: str, low: int, high: int) -> None:
    model, _ = load(name)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert low <= sum(parameter.numel() for parameter in model.parameters()) <= high
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.eos_token_id == load(name)[1].eos_token_id
    assert model.config.vocab_size <= 32


def test_short_and_long_differ_in_nothing_but_weights() -> None:
    def shapes(name: str) -> dict[str, torch.Size]:
        return {key: value.shape for key, value in load(name)[0].state_dict().items()}

    assert shapes("tiny:short") == shapes("tiny:long")


def test_all_models_share_one_tokenizer() -> None:
    def files(name: str) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in Path(tiny_path(name)).glob("tokenizer*")}

    assert all(files(name) == files("tiny:small") for name in NAMES)
    assert len(files("tiny:small")) >= 2


TOKENIZER = AutoTokenizer.from_pretrained(tiny_path("tiny:small"))


@given(st.text(alphabet=ALPHABET, max_size=40))
def test_a_character_is_a_token_and_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert len(ids) == len(text)
    assert all(id_ < 32 and id_ != TOKENIZER.pad_token_id for id_ in ids)
    assert TOKENIZER.decode(ids) == text


def test_the_end_token_ends_a_solution() -> None:
    task = RunningSums()
    solution = task.solution(task.prompt("train/0"))
    assert TOKENIZER.encode(solution)[-1] == TOKENIZER.eos_token_id
    assert TOKENIZER.eos_token == ";"


def samples(name: str, terms: tuple[int, ...], num_prompts: int) -> tuple[list[str], float]:
    """Sampled answers to held-out sums, and the share of them that is right."""
    model, tokenizer = load(name)
    task = RunningSums(terms=terms, ood_terms=())
    prompts = [task.prompt(f"test/{index}") for index in range(num_prompts)]
    inputs = tokenizer([prompt.text for prompt in prompts], padding=True, padding_side="left", return_tensors="pt")
    torch.manual_seed(0)
    ids = model.generate(**inputs, do_sample=True, top_k=0, top_p=1.0, max_new_tokens=24)
    decoded = tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :])
    texts = [text.replace("<pad>", "") for text in decoded]
    scores = [task.score(prompt, [text])[0] for prompt, text in zip(prompts, texts, strict=True)]
    return texts, sum(score.value for score in scores if score) / num_prompts


@pytest.mark.parametrize("name", NAMES)
def test_base_accuracy_leaves_much_to_learn(name: str) -> None:
    """256 sampled answers: standard error 3 points, so the bounds have room around the measured accuracy."""
    assert 0.2 < samples(name, (3, 4, 5, 6), 256)[1] < 0.45


@pytest.mark.parametrize(("terms", "better", "worse"), [((3, 4), "short", "long"), ((5, 6), "long", "short")])
def test_short_and_long_are_each_better_where_the_other_is_worse(
    terms: tuple[int, ...], better: str, worse: str
) -> None:
    """Measured 36 and 24 points apart; the standard error of the difference is 4."""
    assert samples(f"tiny:{better}", terms, 256)[1] > samples(f"tiny:{worse}", terms, 256)[1] + 0.15


def test_direct_writes_no_partial_sums_and_fails_at_long_sums() -> None:
    texts, brief = samples("tiny:direct", (3, 4), 256)
    long_texts, long = samples("tiny:direct", (6, 7), 256)
    assert all("." not in text for text in texts + long_texts)
    assert brief > 0.25  # measured 0.34
    assert long < 0.18  # measured 0.10
