from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from motet.config import (
    PRESETS,
    AdmissionSettings,
    GenerationSettings,
    LearnerSettings,
    LoraSettings,
    MethodSettings,
    NodeSettings,
    RolloutSettings,
    RunFile,
    RunSettings,
    SwarmSettings,
    TaskSettings,
    all_settings,
)

# A new setting is a decision: it is added here by hand, and there are to be 90 at most.
SETTINGS = [
    "run.name",
    "run.seed",
    "run.rounds",
    "run.dir",
    "run.checkpoint_every",
    "run.keep_checkpoints",
    "run.keep_best",
    "run.trackers",
    "task.name",
    "task.arguments",
    "task.ood",
    "task.ood_arguments",
    "task.score_timeout_s",
    "task.terms",
    "task.ood_terms",
    "task.test_file",
    "task.ood_file",
    "task.prompt_column",
    "task.answer_column",
    "task.reward",
    "prompt.format",
    "prompt.system",
    "prompt.template",
    "prompt.template_arguments",
    "rollout.prompts_per_round",
    "rollout.group_size",
    "rollout.max_new_tokens",
    "rollout.temperature",
    "rollout.truncated",
    "rollout.top_up",
    "rollout.ahead",
    "method.name",
    "method.weights",
    "method.rule",
    "method.cap",
    "method.level",
    "method.epsilon",
    "method.epsilon_high",
    "method.kl_limit_nats",
    "method.kl_estimator",
    "method.kl_reduction",
    "method.scale_rewards",
    "learner.learning_rate",
    "learner.schedule",
    "learner.final_learning_rate",
    "learner.warmup_rounds",
    "learner.weight_decay",
    "learner.max_grad_norm",
    "learner.precision",
    "learner.max_batch_tokens",
    "learner.gradient_checkpointing",
    "swarm.collaboration",
    "swarm.pace",
    "swarm.deadline_s",
    "swarm.max_lag",
    "swarm.transport",
    "swarm.listen",
    "swarm.connect",
    "swarm.authority",
    "swarm.tls",
    "swarm.max_foreign_groups",
    "swarm.log_probs",
    "admission.max_group_size",
    "admission.max_payload_bytes",
    "admission.max_bytes_per_round",
    "admission.quarantine_after",
    "admission.quarantine_rounds",
    "admission.max_influence",
    "evaluation.every",
    "evaluation.num_prompts",
    "evaluation.final_num_prompts",
    "evaluation.temperature",
    "evaluation.also_greedy",
    "node.name",
    "node.model",
    "node.revision",
    "node.attention",
    "node.precision",
    "node.freeze",
    "node.learning_rate",
    "node.lora.rank",
    "node.lora.alpha",
    "node.lora.target_modules",
    "node.peft",
    "node.generation.engine",
    "node.generation.url",
    "node.generation.refresh_dir",
    "node.generation.timeout_s",
    "node.device",
    "node.key",
]

TWO_NODES = (NodeSettings(name="a", model="tiny:small"), NodeSettings(name="b", model="tiny:large"))

AUTHORITY = "ed25519:" + "0f" * 32

SERVED = NodeSettings(name="a", model="m", generation=GenerationSettings(engine="vllm", refresh_dir="weights"))


def run_file(**sections: Any) -> RunFile:
    return RunFile(**{"run": RunSettings(name="x"), "node": TWO_NODES, **sections})


def test_the_settings_are_these() -> None:
    assert list(all_settings()) == SETTINGS
    assert len(SETTINGS) <= 90


def test_every_setting_is_described() -> None:
    for setting in all_settings().values():
        assert setting.description.endswith("."), setting.key


@pytest.mark.parametrize(
    ("name", "weights", "rule"),
    [
        ("on_policy", "none", "off"),
        ("nois", "none", "off"),
        ("vis", "vanilla", "off"),
        ("tis", "truncated", "off"),
        ("f_nois", "none", "either"),
        ("f_vis", "vanilla", "either"),
        ("f_tis", "truncated", "either"),
    ],
)
def test_presets(name: Any, weights: str, rule: str) -> None:
    method = MethodSettings(name=name)
    assert (method.resolved_weights, method.resolved_rule) == (weights, rule) == PRESETS[name]


def test_a_preset_is_overridden_part_by_part() -> None:
    assert MethodSettings(name="f_tis", rule="both").resolved_rule == "both"
    assert MethodSettings(name="f_tis", rule="both").resolved_weights == "truncated"
    assert MethodSettings(name="f_tis", weights="none").resolved_weights == "none"
    assert MethodSettings(name="nois", rule="either").resolved_rule == "either"


def test_an_own_function_takes_the_place_of_a_preset() -> None:
    method = MethodSettings(name="f_tis", weights="mine.py:my_weights", rule="lab.rules:near")
    assert (method.resolved_weights, method.resolved_rule) == ("mine.py:my_weights", "lab.rules:near")
    assert MethodSettings(rule="mine.py:near").resolved_weights == "truncated"


@pytest.mark.parametrize("name", ["mine.py", "mine.py:", "mine.py:my weights", ":near"])
def test_what_names_no_function_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        MethodSettings(weights=name)


def test_settings_are_frozen() -> None:
    run = run_file()
    with pytest.raises(ValidationError):
        run.method.cap = 3.0


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"node": (TWO_NODES[0], TWO_NODES[0])}, ("node", 1, "name")),
        ({"learner": LearnerSettings(warmup_rounds=201)}, ("learner", "warmup_rounds")),
        ({"method": MethodSettings(weights="mine.py:f", level="sequence")}, ("method", "level")),
        (
            {"learner": LearnerSettings(schedule="linear", learning_rate=1e-5, final_learning_rate=1e-4)},
            ("learner", "final_learning_rate"),
        ),
        (
            {
                "rollout": RolloutSettings(group_size=2),
                "node": (*TWO_NODES, NodeSettings(name="c", model="tiny:small")),
                "swarm": SwarmSettings(collaboration="horizontal"),
            },
            ("rollout", "group_size"),
        ),
        ({"rollout": RolloutSettings(ahead=1), "method": MethodSettings(name="nois")}, ("rollout", "ahead")),
        ({"rollout": RolloutSettings(ahead=1), "method": MethodSettings(weights="none")}, ("rollout", "ahead")),
        ({"rollout": RolloutSettings(prompts_per_round=1)}, ("rollout", "prompts_per_round")),
        ({"rollout": RolloutSettings(group_size=65)}, ("rollout", "group_size")),
        ({"task": TaskSettings(terms=(3, 4), ood_terms=(4,))}, ("task", "ood_terms")),
        (
            {"node": (NodeSettings(name="a", model="m", lora=LoraSettings(), peft={"peft_type": "IA3"}),)},
            ("node", 0, "peft"),
        ),
        (
            {"node": (NodeSettings(name="a", model="m", generation=GenerationSettings(engine="vllm")),)},
            ("node", 0, "generation", "refresh_dir"),
        ),
        ({"rollout": RolloutSettings(ahead=1), "node": (SERVED,)}, ("rollout", "ahead")),
        ({"swarm": SwarmSettings(listen=("tcp/0.0.0.0:7447",))}, ("swarm", "listen")),
        ({"swarm": SwarmSettings(transport="pipes", max_foreign_groups=9)}, ("swarm", "max_foreign_groups")),
        ({"swarm": SwarmSettings(transport="nats")}, ("swarm", "connect")),
        (
            {"swarm": SwarmSettings(transport="nats", connect=("nats://h:1",), listen=("tcp/h:2",))},
            ("swarm", "listen"),
        ),
        (
            {"swarm": SwarmSettings(transport="zenoh", collaboration="horizontal", authority=AUTHORITY)},
            ("swarm", "collaboration"),
        ),
    ],
)
def test_contradictions_are_refused_and_located(sections: dict[str, Any], key: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        run_file(**sections)
    (finding,) = caught.value.errors()
    assert [contradiction.key for contradiction in finding["ctx"]["found"]] == [key]


@pytest.mark.parametrize(
    "sections",
    [
        {"rollout": RolloutSettings(prompts_per_round=1), "node": TWO_NODES[:1]},
        {"rollout": RolloutSettings(prompts_per_round=1), "method": MethodSettings(name="on_policy")},
        {"rollout": RolloutSettings(group_size=65), "admission": AdmissionSettings(max_group_size=65)},
        {"rollout": RolloutSettings(group_size=2), "swarm": SwarmSettings(collaboration="horizontal")},
        {"learner": LearnerSettings(warmup_rounds=200)},
        {"swarm": SwarmSettings(transport="zenoh", listen=("tcp/0.0.0.0:7447",), authority=AUTHORITY)},
        {"swarm": SwarmSettings(transport="nats", connect=("nats://h:4222",), max_foreign_groups=9)},
        {"task": TaskSettings(name="sums.jsonl", terms=(3, 4), ood_terms=(4,))},
    ],
)
def test_what_only_resembles_a_contradiction_is_accepted(sections: dict[str, Any]) -> None:
    assert run_file(**sections).run.name == "x"


def test_nodes_share_groups_unless_alone_or_on_policy() -> None:
    assert run_file().shares_groups
    assert not run_file(node=TWO_NODES[:1]).shares_groups
    assert not run_file(method=MethodSettings(name="on_policy")).shares_groups
