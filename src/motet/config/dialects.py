"""Words of other trainers, and where the same thing is set here.

A run file has one spelling for each setting; a word of TRL, prime-rl or verl is answered with ours, never accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TRL, PRIME, VERL, COMMON = "TRL", "prime-rl", "verl", ""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A word that is not ours.

    Attributes:
        dialect: whose word it is; "" if many use it.
        key: the setting that means the same here, or "" if nothing does.
        note: what differs, or why there is no such setting.
    """

    dialect: str
    key: str
    note: str = ""


_TRANSLATIONS: Final[dict[str, dict[str, str]]] = {
    TRL: {
        "num_generations": "rollout.group_size",
        "max_completion_length": "rollout.max_new_tokens",
        "max_steps": "run.rounds",
        "output_dir": "run.dir",
        "run_name": "run.name",
        "save_steps": "run.checkpoint_every",
        "eval_steps": "evaluation.every",
        "save_total_limit": "run.keep_checkpoints",
        "load_best_model_at_end": "run.keep_best",
        "report_to": "run.trackers",
        "mask_truncated_completions": "rollout.truncated",
        "use_vllm": "node.generation.engine",
        "vllm_server_base_url": "node.generation.url",
        "chat_template_kwargs": "prompt.template_arguments",
        "chat_template_path": "prompt.template",
        "attn_implementation": "node.attention",
        "model_revision": "node.revision",
        "lr_scheduler_type": "learner.schedule",
        "warmup_steps": "learner.warmup_rounds",
        "importance_sampling_level": "method.level",
        "vllm_importance_sampling_clip_max": "method.cap",
        "vllm_importance_sampling_cap": "method.cap",
        "model_name_or_path": "node.model",
        "dataset_name": "task.name",
        "reward_funcs": "task.reward",
        "lora_r": "node.lora.rank",
        "r": "node.lora.rank",
        "lora_alpha": "node.lora.alpha",
        "lora_target_modules": "node.lora.target_modules",
    },
    PRIME: {
        "rollouts_per_example": "rollout.group_size",
        "max_completion_tokens": "rollout.max_new_tokens",
        "max_off_policy_steps": "swarm.max_lag",
        "max_async_level": "swarm.max_lag",
        "max_norm": "learner.max_grad_norm",
    },
    VERL: {
        "max_response_length": "rollout.max_new_tokens",
        "clip_ratio": "method.epsilon",
        "clip_ratio_low": "method.epsilon",
        "clip_ratio_high": "method.epsilon_high",
        "rollout_is": "method.weights",
        "rollout_is_threshold": "method.cap",
        "tis_imp_ratio_cap": "method.cap",
        "total_training_steps": "run.rounds",
        "test_freq": "evaluation.every",
        "save_freq": "run.checkpoint_every",
        "experiment_name": "run.name",
        "project_name": "run.name",
        "grad_clip": "learner.max_grad_norm",
        "ppo_max_token_len_per_gpu": "learner.max_batch_tokens",
    },
    COMMON: {
        "lr": "learner.learning_rate",
        "clip": "method.epsilon",
        "eps": "method.epsilon",
        "steps": "run.rounds",
        "num_steps": "run.rounds",
        "iterations": "run.rounds",
        "max_tokens": "rollout.max_new_tokens",
        "max_length": "rollout.max_new_tokens",
        "scheduler": "learner.schedule",
        "dtype": "learner.precision",
        "dataset": "task.name",
        "reward_fn": "task.reward",
        "max_staleness": "swarm.max_lag",
        "timeout": "swarm.deadline_s",
    },
}

_WITH_NOTES: Final[dict[str, Foreign]] = {
    "per_device_train_batch_size": Foreign(
        TRL, "rollout.prompts_per_round", "counted in prompts, times rollout.group_size completions"
    ),
    "generation_batch_size": Foreign(
        TRL, "rollout.prompts_per_round", "counted in prompts, times rollout.group_size completions"
    ),
    "num_train_epochs": Foreign(TRL, "run.rounds", "counted in rounds, one optimiser step each"),
    "warmup_ratio": Foreign(TRL, "learner.warmup_rounds", "counted in rounds"),
    "off_policy_mask_threshold": Foreign(TRL, "method.kl_limit_nats", "a sum over the completion; see method.rule too"),
    "vllm_importance_sampling_correction": Foreign(TRL, "method.weights", 'true is "truncated", false is "none"'),
    "vllm_importance_sampling_mode": Foreign(TRL, "method.level", "with method.weights"),
    "use_peft": Foreign(TRL, "node.lora.rank", "in a table [node.lora] below its [[node]]"),
    "bf16": Foreign(TRL, "learner.precision", 'written precision = "bf16"'),
    "torch_dtype": Foreign(TRL, "learner.precision", '"fp32" or "bf16"'),
    "gradient_accumulation_steps": Foreign(TRL, "", "motet splits batches itself, by learner.max_batch_tokens"),
    "steps_per_generation": Foreign(TRL, "", "a round is one generation and one optimiser step"),
    "num_iterations": Foreign(TRL, "", "a round is one generation and one optimiser step"),
    "max_prompt_length": Foreign(TRL, "", "prompts are never cut"),
    "beta": Foreign(TRL, "", "F-TIS has no KL term to a reference model"),
    "loss_type": Foreign(TRL, "", "the loss is always the mean over completions; method.name chooses the method"),
    "logging_steps": Foreign(TRL, "", "every round is in the journal"),
    "log_completions": Foreign(TRL, "", "every round is in the journal"),
    "optim": Foreign(TRL, "", "the optimiser is always AdamW"),
    "lora_dropout": Foreign(TRL, "", "dropout is always off"),
    "dropout": Foreign(COMMON, "", "dropout is always off"),
    "top_p": Foreign(COMMON, "", "sampling is never truncated, or importance weights would be wrong"),
    "top_k": Foreign(COMMON, "", "sampling is never truncated, or importance weights would be wrong"),
    "min_p": Foreign(COMMON, "", "sampling is never truncated, or importance weights would be wrong"),
    "repetition_penalty": Foreign(COMMON, "", "sampling follows the model's own distribution"),
    "batch_size": Foreign(
        PRIME, "rollout.prompts_per_round", "counted in prompts, times rollout.group_size completions"
    ),
    "train_batch_size": Foreign(VERL, "rollout.prompts_per_round", "counted in prompts in both"),
    "n": Foreign(VERL, "rollout.group_size"),
    "ppo_mini_batch_size": Foreign(VERL, "", "a round is one optimiser step over the whole batch"),
    "ppo_micro_batch_size_per_gpu": Foreign(VERL, "learner.max_batch_tokens", "counted in tokens"),
    "kl_coef": Foreign(VERL, "", "F-TIS has no KL term to a reference model"),
    "kl_loss_coef": Foreign(VERL, "", "F-TIS has no KL term to a reference model"),
    "use_kl_loss": Foreign(VERL, "", "F-TIS has no KL term to a reference model"),
    "adv_estimator": Foreign(VERL, "", "advantages are always GRPO's"),
    "norm_adv_by_std_in_grpo": Foreign(VERL, "method.scale_rewards", 'true is "std", false is "none"'),
    "total_epochs": Foreign(VERL, "run.rounds", "counted in rounds, one optimiser step each"),
}

FOREIGN_KEYS: Final[dict[str, Foreign]] = {
    **{word: Foreign(dialect, key) for dialect, words in _TRANSLATIONS.items() for word, key in words.items()},
    **_WITH_NOTES,
}
"""Keys of other trainers by their lower-case name."""

FOREIGN_SECTIONS: Final[dict[str, str]] = {
    "loss": "[method]",
    "algorithm": "[method]",
    "grpo": "[method]",
    "trainer": "[learner]",
    "training": "[learner]",
    "train": "[learner]",
    "optim": "[learner]",
    "optimizer": "[learner]",
    "optimiser": "[learner]",
    "orchestrator": "[rollout]",
    "sampling": "[rollout]",
    "generation": "[rollout]",
    "eval": "[evaluation]",
    "data": "[task]",
    "dataset": "[task]",
    "env": "[task]",
    "environment": "[task]",
    "gate": "[admission]",
    "ckpt": "[run], checkpoint_every",
    "model": "[[node]], one for each model",
    "models": "[[node]], one for each model",
    "nodes": "[[node]], one for each node",
    "peers": "[[node]], one for each node",
    "lora": "[node.lora], below the [[node]] that it belongs to",
    "peft": "[node.lora], below the [[node]] that it belongs to",
}
"""Tables of other trainers, and the table here that holds such settings."""
