"""Settings become objects here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.admission import Gate, GateRules
from motet.config import NodeSettings, RunFile
from motet.generation import HFGenerator
from motet.learner import Learner, Method, OptimizerOptions
from motet.models import Policy, load_policy
from motet.models.lora import LoraOptions
from motet.node.examiner import Examiner
from motet.node.node import Node
from motet.node.sampling import Sampler, derived_seed
from motet.records import Archive, WireLimits
from motet.swarm import Assignment, Exchange, Ledger, MemoryHub
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
    alone = run.method.name == "on_policy"
    names = [settings.name for settings in run.node]
    shared = MemoryHub()
    hubs = {name: MemoryHub() if alone else shared for name in names}
    exchanges = {name: hubs[name].join(name) for name in names}
    members: dict[str, Member] = {}
    for settings in run.node:
        swarm = [settings.name] if alone else names
        members[settings.name] = _member(
            run, settings, task, swarm=swarm, exchange=exchanges[settings.name], archive=archives[settings.name]
        )
    return Assembly(task, members, hubs)


def task_of(run: RunFile) -> Task:
    """The run's task."""
    return load_task(**run.task.model_dump())


def policy_of(run: RunFile, settings: NodeSettings) -> Policy:
    """A node's model in fp32, with its adapter if it trains one."""
    lora = settings.lora
    return load_policy(
        settings.model,
        device=settings.device,
        lora=None if lora is None else LoraOptions(lora.rank, lora.alpha, lora.target_modules),
        seed=derived_seed(run.run.seed, "adapter", settings.name),
    )


def examiner_of(run: RunFile, policy: Policy, task: Task) -> Examiner:
    """The held-out examinations of a node."""
    return Examiner(
        seed=run.run.seed,
        generator=HFGenerator(policy),
        tokenizer=policy.tokenizer,
        task=task,
        max_new_tokens=run.rollout.max_new_tokens,
        temperature=run.rollout.temperature,
    )


def _member(
    run: RunFile, settings: NodeSettings, task: Task, *, swarm: list[str], exchange: Exchange, archive: Archive
) -> Member:
    policy = policy_of(run, settings)
    assignment = Assignment(
        run.run.seed,
        swarm,
        run.rollout.prompts_per_round,
        run.rollout.group_size,
        num_train_prompts=task.num_prompts("train"),
        collaboration=run.swarm.collaboration,
    )
    sampler = Sampler(
        settings.name,
        seed=run.run.seed,
        policy=policy,
        generator=HFGenerator(policy),
        task=task,
        max_new_tokens=run.rollout.max_new_tokens,
        temperature=run.rollout.temperature,
    )
    node = Node(
        settings.name,
        assignment=assignment,
        sampler=sampler,
        exchange=exchange,
        gate=_gate(run, settings.name, policy, task, assignment=assignment, swarm=swarm),
        learner=_learner(run, policy, sampler),
        ledger=Ledger(),
        archive=archive,
        deadline_s=run.swarm.deadline_s,
        max_lag=_max_lag(run),
    )
    return Member(node, policy, examiner_of(run, policy, task))


def _learner(run: RunFile, policy: Policy, sampler: Sampler) -> Learner:
    method, learner = run.method, run.learner
    return Learner(
        policy,
        method=Method(
            weights=method.resolved_weights,
            rule=method.resolved_rule,
            cap=method.cap,
            level=method.level,
            epsilon=method.epsilon,
            epsilon_high=method.epsilon_high,
            kl_limit_nats=method.kl_limit_nats,
            kl_estimator=method.kl_estimator,
            kl_reduction=method.kl_reduction,
            scale_rewards=method.scale_rewards,
        ),
        optimizer=OptimizerOptions(
            learning_rate=learner.learning_rate,
            num_steps=run.run.rounds,
            schedule=learner.schedule,
            final_learning_rate=learner.final_learning_rate,
            warmup_steps=learner.warmup_rounds,
            weight_decay=learner.weight_decay,
            max_grad_norm=learner.max_grad_norm,
        ),
        precision=learner.precision,
        prompt_ids=sampler.prompt_ids,
        joined=run.swarm.collaboration == "horizontal",
        max_batch_tokens=learner.max_batch_tokens,
    )


def _gate(run: RunFile, name: str, policy: Policy, task: Task, *, assignment: Assignment, swarm: list[str]) -> Gate:
    tokenizer = policy.tokenizer
    rules = GateRules(
        name=name,
        members=frozenset(swarm),
        tokenizer=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        end_token_ids=frozenset(tokenizer.end_token_ids),
        max_new_tokens=run.rollout.max_new_tokens,
        collaboration=run.swarm.collaboration,
        max_group_size=run.admission.max_group_size,
        max_lag=_max_lag(run),
        # The parser's own bounds stay looser than the rules', which give the clearer reasons.
        limits=WireLimits(
            max_payload_bytes=run.admission.max_payload_bytes, max_group_size=16 * run.admission.max_group_size
        ),
    )
    return Gate(rules, task=task, decode=tokenizer.decode_completion, expected=assignment.expected)


def _max_lag(run: RunFile) -> int | None:
    return run.swarm.max_lag if run.swarm.pace == "free" else None
