from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from motet.cli.bench_view import Ticker, learner_lines, learner_table, quick_table

FIGURE = {
    "seconds": 12.3456,
    "tokens_per_s": 1234.5,
    "peak": 7_123_000_000,
    "mfu": 0.612,
    "parts": {"optimizer_s": 0.5},
    "did": {"loss/value": -0.5, "optim/grad_norm": 2.0},
}
MACHINE = {"cpu": "X", "device": "cpu", "threads": 2, "versions": {"torch": "2.13"}}


def result(*arms: str) -> dict[str, Any]:
    ratios = {f"times_as_fast_as_{other}": 12.5 for other in arms} | {f"peak_to_{other}": 0.25 for other in arms}
    return {
        "date": "2026-01-01T00:00:00+00:00",
        "machine": MACHINE,
        "settings": {
            "model": {"name": "smollm2-135m", "lora": False},
            "kind": "ftis",
            "dtype": "fp32",
            "prompts": 8,
            "prompt": 44,
            "group_size": 8,
            "completion": 24,
        },
        "parameters": 134_515_008,
        "rates": {"before": {"fp32": 1.6e11, "bf16": 5e8}},
        "batch": {
            "completion_tokens": 973,
            "external": 0.5,
            "external_dropped": 0.5,
            "external_dropped_kl": 0.0625,
            "groups_without_variance": 0.375,
            "learned": 0.5,
        },
        "figures": {arm: {**FIGURE, **ratios, "settings": {"trl": "1.16.0"}} for arm in arms},
    }


def shown(table: object) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_learner_s_table_fits_into_80_columns() -> None:
    found = result("trl", "plain", "fast")
    for figure in found["figures"].values():
        figure["settings"] |= {"mode": "fp32", "rows": 8, "checkpointing": False, "gradient_accumulation_steps": 8}
        figure["settings"] |= {"optim": "adamw_torch_fused", "loss_type": "grpo", "chosen": "tried"}
    text = shown(learner_table(found))
    for word in (
        "s/step",
        "x trl",
        "x plain",
        "12.346",
        "1,234",
        "7,123",
        "of trl's",
        "0.25",
        "0.61",
        "optim s",
        "0.500",
    ):
        assert word in text
    lines = "\n".join(learner_lines(found))
    assert "TRL 1.16.0, fp32, micro-batches of 8 x 8, gradient checkpointing off" in lines
    assert "fp32 160, bf16 0.5" in lines
    assert "on X, 2 threads; torch 2.13" in lines
    assert "completions of 6 to 24 (973 tokens)" in lines


def test_one_arm_alone_has_a_table_too() -> None:
    assert "fast" in shown(learner_table(result("fast")))
    assert "equality" not in "".join(learner_lines(result("fast")))


def test_what_got_slower_is_marked() -> None:
    verdicts = [
        {"name": "learner/ftis", "stored": 3.0, "least": 2.1, "slower": True},
        {"name": "new", "stored": None, "least": None, "slower": False},
    ]
    text = shown(quick_table({"verdicts": verdicts, "ratios": {"learner/ftis": 2.0, "new": 1.0}}))
    assert "slower" in text
    assert "not stored" in text


def test_progress_in_a_pipe_is_a_line_for_each_text_and_no_more_within_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("motet.cli.bench_view.time.monotonic", lambda: now)
    with Ticker() as ticker:
        for text, after in (("one", 0.0), ("one", 1.0), ("one", 0.9), ("two", 0.1)):
            now += after
            ticker.say(text)
    assert capsys.readouterr().err.splitlines() == [
        "one (0 s; 0 s in all)",
        "one (2 s; 2 s in all)",
        "two (0 s; 2 s in all)",
    ]
