"""Settings become objects here and nowhere else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from motet.config import NodeSettings, RunFile
from motet.errors import UsageError
from motet.generation import Generator, HFGenerator, VLLMGenerator
from motet.learner import GradientTrust, Learner, Method, OptimizerOptions, load_weights
from motet.models import Policy, PromptStyle, Workload, load_policy
from motet.models.lora import LoraOptions
from motet.node.examiner import Examiner
from motet.node.gates import live_gate, max_lag_of, replay_gate
from motet.node.node import Node
from motet.node.own_method import rule_of, weights_of
from motet.node.production import Ahead, Nothing, OnTime, Production
from motet.node.sampling import Sampler, derived_seed, prompt_encoder
from motet.records import Archive, StoredGroups
from motet.swarm import Assignment, Exchange, Ledger, MemoryHub, ReplayExchange, hubs_for
from motet.tasks import Task, load_task


@dataclass(frozen=True, slots=True)
class Member:
    """A node with the parts that live beside the round: its model and its examinations."""

    node: Node
    policy: Policy
    examiner: Examiner


@dataclass(frozen=True, slots=True)
class Assembly:
    """All nodes of a run in one process.

    Attributes:
        task: what they learn.
        members: the nodes by name, in the order of the run file.
        hubs: where they meet: one hub, or one for each node where every node trains alone.
    """

    task: Task
    members: Mapping[str, Member]
    hubs: Mapping[str, MemoryHub]


def assemble_nodes(run: RunFile, *, archives: Mapping[str, Archive]) -> Assembly:
    """Build every node of a run file around an in-memory exchange.

    Under the method "on_policy" every node is a swarm of its own and generates the whole round.

    Args:
        run: the settings.
        archives: where each node keeps its groups.

    Raises:
        MotetError: whatever task, models or settings have to say.
    """
    task = task_of(run)
    names = [settings.name for settings in run.node]
    hubs = hubs_for(names, alone=run.trains_alone)
    exchanges = {name: hubs[name].join(name) for name in names}
    members = {
        settings.name: assemble_member(
            run,
            settings.name,
            task,
            policy_of(run, settings),
            exchange=exchanges[settings.name],
            archive=archives[settings.name],
        )
        for settings in run.node
    }
    return Assembly(task, members, hubs)


def assemble_member(
    run: RunFile, name: str, task: Task, policy: Policy, *, exchange: Exchange, archive: Archive
) -> Member:
    """Build one node of a run file.

    Args:
        run: the settings.
        name: of the node.
        task: what `task_of` returned.
        policy: what `policy_of` returned; its learner takes it over.
        exchange: through which it meets the others.
        archive: where it keeps its groups.

    Raises:
        MotetError: whatever models or settings have to say.
    """
    settings = settings_of(run, name)
    swarm = [name] if run.trains_alone else [settings.name for settings in run.node]
    assignment = _assignment(run, name, task, swarm)
    learner = _learner(run, settings, policy, prompt_encoder(policy.tokenizer, task))
    generator = _generator(settings, policy, learner)
    node = Node(
        name,
        assignment=assignment,
        production=_production(run, name, policy, task, generator, assignment=assignment, learner=learner),
        exchange=exchange,
        gate=live_gate(run, name, policy, task, assignment=assignment, swarm=swarm, exchange=exchange),
        learner=learner,
        ledger=Ledger(),
        archive=archive,
        deadline_s=run.swarm.deadline_s,
        max_lag=max_lag_of(run),
        log_probs=run.swarm.log_probs,
        fills_gaps=run.swarm.collaboration == "gaps",
        full_batch=run.rollout.prompts_per_round if run.rollout.top_up and run.shares_groups else 0,
    )
    return Member(node, policy, _examiner(run, policy, task, generator))


def assemble_replay(run: RunFile, stored: StoredGroups, *, archives: Mapping[str, Archive]) -> Assembly:
    """Build the only node of a run file around stored groups: it samples nothing, and they come from its peers.

    Args:
        run: the settings.
        stored: the groups.
        archives: where the node would keep groups of its own.

    Raises:
        MotetError: whatever task, models or settings have to say.
    """
    (settings,) = run.node
    task, policy = task_of(run), policy_of(run, settings)
    learner = _learner(run, settings, policy, prompt_encoder(policy.tokenizer, task))
    node = Node(
        settings.name,
        assignment=None,
        production=Nothing(),
        exchange=ReplayExchange(settings.name, peers=stored.peers, payloads=stored.payloads),
        gate=replay_gate(run, policy, task, stored),
        learner=learner,
        ledger=Ledger(),
        archive=archives[settings.name],
        deadline_s=run.swarm.deadline_s,
        max_lag=None,
    )
    examiner = _examiner(run, policy, task, _generator(settings, policy, learner))
    return Assembly(task, {settings.name: Member(node, policy, examiner)}, hubs={})


def _assignment(run: RunFile, name: str, task: Task, swarm: list[str]) -> Assignment:
    """Who generates what. Over a network each node has a fixed share, whoever else takes part."""
    prompts_per_round = run.rollout.prompts_per_round
    is_open = run.is_networked and not run.trains_alone and run.swarm.collaboration == "vertical"
    return Assignment(
        run.run.seed,
        [name] if is_open else swarm,
        max(1, prompts_per_round // len(swarm)) if is_open else prompts_per_round,
        run.rollout.group_size,
        num_train_prompts=task.num_prompts("train"),
        collaboration=run.swarm.collaboration,
        is_open=is_open,
    )


def task_of(run: RunFile) -> Task:
    """The run's task."""
    return load_task(**run.task.model_dump())


def settings_of(run: RunFile, name: str) -> NodeSettings:
    """The settings of the node of this name."""
    (settings,) = (settings for settings in run.node if settings.name == name)
    return settings


def policy_at(run: RunFile, settings: NodeSettings, folder: Path) -> Policy:
    """A node's model with the weights of a checkpoint, to be asked.

    Args:
        run: the settings.
        settings: the node's.
        folder: of the checkpoint.

    Raises:
        MotetError: whatever model or checkpoint have to say.
    """
    policy = policy_of(run, settings, trains=False)
    load_weights(folder / settings.name, policy)
    return policy


def policy_of(run: RunFile, settings: NodeSettings, *, trains: bool = True) -> Policy:
    """A node's model in fp32, with its adapter if it trains one.

    Args:
        run: the settings.
        settings: the node's.
        trains: False for a policy that is only asked; memory for training is not needed then.

    Raises:
        MotetError: whatever the model or the method's own functions have to say.
    """
    if trains:
        _method(run)  # an own function that does not work is told before a model takes its time
    lora = settings.lora
    return load_policy(
        settings.model,
        device=settings.device,
        lora=None if lora is None else LoraOptions(lora.rank, lora.alpha, lora.target_modules),
        peft=settings.peft,
        freeze=settings.freeze,
        seed=derived_seed(run.run.seed, "adapter", settings.name),
        style=_prompt_style(run),
        revision=settings.revision,
        attention=settings.attention,
        gradient_checkpointing=run.learner.gradient_checkpointing,
        workload=workload_of(run, settings) if trains else None,
    )


def workload_of(run: RunFile, settings: NodeSettings) -> Workload:
    """What the memory of a node is used for, for the estimate before its model is loaded."""
    rollout, learner = run.rollout, run.learner
    num_nodes = len(run.node) if run.shares_groups else 1
    return Workload(
        precision=_precision(run, settings),
        batch_tokens=learner.max_batch_tokens,
        rows=max(1, rollout.prompts_per_round * rollout.group_size // num_nodes),
        gradient_checkpointing=learner.gradient_checkpointing,
        weighs_gradients=run.shares_groups and run.resolved_max_influence == "by_gradient",
    )


def _precision(run: RunFile, settings: NodeSettings) -> Literal["fp32", "bf16", "fp16"]:
    return settings.precision or run.learner.precision


def _prompt_style(run: RunFile) -> PromptStyle:
    prompt = run.prompt
    template = None
    if prompt.template is not None:
        try:
            template = Path(prompt.template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "is not UTF-8 text"
            raise UsageError(f"prompt.template: cannot read {prompt.template}: {why}", code="E-MODEL-12") from error
    return PromptStyle(
        format=prompt.format, system=prompt.system, template=template, template_arguments=prompt.template_arguments
    )


def _generator(settings: NodeSettings, policy: Policy, learner: Learner) -> Generator:
    generation = settings.generation
    if generation.engine == "hf":
        return HFGenerator(policy)
    return VLLMGenerator(
        policy,
        generation.url,
        refresh_dir=None if generation.refresh_dir is None else Path(generation.refresh_dir),
        policy_step=lambda: learner.policy_step,
        timeout_s=generation.timeout_s,
    )


def _examiner(run: RunFile, policy: Policy, task: Task, generator: Generator) -> Examiner:
    """The held-out examinations of a node."""
    return Examiner(
        seed=run.run.seed,
        generator=generator,
        tokenizer=policy.tokenizer,
        task=task,
        max_new_tokens=run.rollout.max_new_tokens,
        temperature=_exam_temperature(run),
    )


def _exam_temperature(run: RunFile) -> float:
    return run.rollout.temperature if run.evaluation.temperature is None else run.evaluation.temperature


def _production(
    run: RunFile,
    name: str,
    policy: Policy,
    task: Task,
    generator: Generator,
    *,
    assignment: Assignment,
    learner: Learner,
) -> Production:
    """Called after the learner was made: it has cast the policy to what it computes in."""

    def policy_step() -> int:
        return learner.policy_step

    if not run.rollout.ahead:
        return OnTime(_sampler(run, name, policy, task, generator), assignment=assignment, policy_step=policy_step)
    twin = copy.deepcopy(policy)
    return Ahead(
        _sampler(run, name, twin, task, HFGenerator(twin)),
        assignment=assignment,
        policy_step=policy_step,
        policy=policy,
        copy=twin,
        num_rounds=run.run.rounds,
    )


def _sampler(run: RunFile, name: str, policy: Policy, task: Task, generator: Generator) -> Sampler:
    return Sampler(
        name,
        seed=run.run.seed,
        policy=policy,
        generator=generator,
        task=task,
        max_new_tokens=run.rollout.max_new_tokens,
        temperature=run.rollout.temperature,
    )


def _learner(
    run: RunFile, settings: NodeSettings, policy: Policy, prompt_ids: Callable[[str], Sequence[int]]
) -> Learner:
    learner = run.learner
    learning_rate = settings.learning_rate or learner.learning_rate
    limit = run.resolved_max_influence
    return Learner(
        policy,
        method=_method(run),
        optimizer=OptimizerOptions(
            learning_rate=learning_rate,
            num_steps=run.run.rounds,
            schedule=learner.schedule,
            final_learning_rate=learner.final_learning_rate * learning_rate / learner.learning_rate,
            warmup_steps=learner.warmup_rounds,
            weight_decay=learner.weight_decay,
            max_grad_norm=learner.max_grad_norm,
        ),
        precision=_precision(run, settings),
        prompt_ids=prompt_ids,
        joined=run.swarm.collaboration == "horizontal",
        max_batch_tokens=learner.max_batch_tokens,
        max_influence=None if limit == "by_gradient" else limit,
        trust=GradientTrust() if limit == "by_gradient" else None,
    )


def _method(run: RunFile) -> Method:
    method = run.method
    return Method(
        weights=weights_of(method.resolved_weights),
        rule=rule_of(method.resolved_rule),
        cap=method.cap,
        level=method.level,
        epsilon=method.epsilon,
        epsilon_high=method.epsilon_high,
        kl_limit_nats=method.kl_limit_nats,
        kl_estimator=method.kl_estimator,
        kl_reduction=method.kl_reduction,
        scale_rewards=method.scale_rewards,
        truncated=run.rollout.truncated,
    )
