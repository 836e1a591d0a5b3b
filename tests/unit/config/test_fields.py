from __future__ import annotations

import pytest

from motet.config.fields import all_sections, all_settings


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("run.seed", "a whole number from 0 to 9223372036854775807"),
        ("run.rounds", "a whole number from 1 up"),
        ("run.dir", "text in quotes"),
        ("run.name", "letters, digits, '.', '_', '-'; 64 at most"),
        ("rollout.group_size", "a whole number from 2 to 1024"),
        ("rollout.temperature", "a number above 0"),
        ("method.epsilon", "a number above 0 and below 1"),
        ("method.epsilon_high", "a number above 0"),
        ("method.weights", 'one of "none", "vanilla", "truncated" or "file.py:function"'),
        ("swarm.transport", 'one of "memory", "pipes", "zenoh", "nats"'),
        ("rollout.ahead", "a whole number from 0 to 1"),
        ("task.terms", "a list of at least one in [ ], each a whole number from 2 to 20"),
        ("node.lora.target_modules", '"all-linear" or a list in [ ], each text in quotes'),
        ("node.device", '"auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps"'),
    ],
)
def test_what_is_allowed_in_plain_words(key: str, allowed: str) -> None:
    assert all_settings()[key].allowed == allowed


def test_required_settings_have_no_default() -> None:
    assert {key for key, setting in all_settings().items() if setting.required} == {
        "run.name",
        "node.name",
        "node.model",
    }
    assert all_settings()["run.name"].default is None
    assert all_settings()["learner.learning_rate"].default == 1e-6


def test_text_is_told_from_choices_and_lists() -> None:
    assert {key for key, setting in all_settings().items() if setting.is_text} == {
        "run.name", "run.dir", "task.name", "task.test_file", "task.ood_file", "task.prompt_column",
        "task.answer_column", "task.reward", "task.ood", "prompt.system", "prompt.template", "node.name", "node.model",
        "node.revision", "node.device", "node.generation.url", "node.generation.refresh_dir", "node.key",
        "swarm.authority", "swarm.tls",
    }  # fmt: skip


def test_every_section_says_what_it_is_for() -> None:
    assert list(all_sections()) == [
        "run", "task", "prompt", "rollout", "method", "learner", "swarm", "admission", "evaluation", "node",
        "node.lora", "node.generation",
    ]  # fmt: skip
    assert all(purpose.endswith(".") and "\n" not in purpose for purpose in all_sections().values())
