"""The run files of the paper's pairs: all of them resolve, and each runs with small models of its architecture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motet.cli.main import main
from motet.config import load_run_file

FOLDER = Path(__file__).parents[2] / "configs" / "paper"
PAIRS = sorted(FOLDER.glob("*.toml"))

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION = "Tom has {} apples and buys {}. How many has he?"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two Qwen2 models of random weights with one byte-level tokenizer, as folders."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: id_ for id_, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=TEMPLATE,
    )
    folders = {}
    for name, width in (("1.5B", 32), ("3B", 48)):
        config = AutoConfig.for_model(
            "qwen2",
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            eos_token_id=tokenizer.eos_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(width)
            model = AutoModelForCausalLM.from_config(config)
        folders[name] = tmp_path_factory.mktemp(f"qwen{width}")
        model.save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
    return folders


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A few rows in the schemas of GSM8K and MATH-500."""
    gsm8k, math500 = tmp_path_factory.mktemp("gsm8k"), tmp_path_factory.mktemp("math500")
    for split, first in (("train", 1), ("test", 40)):
        rows = [
            {"question": QUESTION.format(n, n + 1), "answer": f"{n}+{n + 1}={2 * n + 1}\n#### {2 * n + 1}"}
            for n in range(first, first + 30)
        ]
        (gsm8k / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [
        {
            "problem": f"Compute ${n}^2$.",
            "solution": f"It is $\\boxed{{{n * n}}}$.",
            "answer": str(n * n),
            "subject": "Algebra",
            "level": 1,
            "unique_id": f"test/algebra/{n}.json",
        }
        for n in range(1, 9)
    ]
    (math500 / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"gsm8k": gsm8k, "math500": math500}


def test_there_are_six_pairs() -> None:
    assert len(PAIRS) == 6


@pytest.mark.parametrize("file", PAIRS, ids=lambda path: path.stem)
def test_the_papers_settings(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swarm", str(file), "--dry-run"]) == 0
    assert 'name = "gsm8k"' in capsys.readouterr().out
    run = load_run_file(file)
    method = run.method
    assert (method.resolved_weights, method.resolved_rule) == ("truncated", "either")
    assert (method.cap, method.epsilon, method.kl_limit_nats) == (2.0, 0.2, 50.0)
    assert (run.rollout.group_size, run.learner.learning_rate, run.evaluation.temperature) == (12, 1e-6, 0.0)
    assert (run.task.name, run.task.ood) == ("gsm8k", "math500")
    assert sum(node.lora is not None for node in run.node) == file.stem.startswith("parameters")


@pytest.mark.slow
@pytest.mark.parametrize("file", PAIRS, ids=lambda path: path.stem)
def test_it_runs_with_small_models(
    file: Path,
    models: dict[str, Path],
    data: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for package in ("datasets", "math_verify", "peft"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    here: dict[str, object] = {
        "run.rounds": 2,
        "task.name": f"gsm8k:{data['gsm8k']}",
        "task.ood": f"math500:{data['math500']}",
        "rollout.prompts_per_round": 2,
        "rollout.group_size": 2,
        "rollout.max_new_tokens": 6,
        "learner.precision": "fp32",
        "evaluation.num_prompts": 2,
        "evaluation.final_num_prompts": 2,
    }
    for node in load_run_file(file).node:
        here[f"node.{node.name}.model"] = models[node.model.rpartition("-")[2]]
    flags = [flag for key, value in here.items() for flag in ("--set", f"{key}={value}")]
    assert main(["swarm", str(file), *flags]) == 0
    (run_dir,) = (tmp_path / "runs").iterdir()
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["round"] == 1]
    assert len(last) == 2
    assert all(row["external/groups"] == 1 and "accuracy/ood" in row for row in last)
    assert "held-out" in capsys.readouterr().out
