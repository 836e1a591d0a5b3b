"""Settings become objects here and nowhere else."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motet.admission import Gate, GateRules
from motet.config import NodeSettings, RunFile
from motet.generation import HFGenerator
from motet.learner import Learner, Method, OptimizerOptions
from motet.models import Policy, load_policy
from motet.models.lora import LoraOptions
from motet.node.examiner import Examiner
from motet.node.node import Node
from motet.node.production import Ahead, OnTime, Production
from motet.node.sampling import Sampler, derived_seed, prompt_encoder
from motet.records import Archive, WireLimits
from motet.swarm import Assignment, Exchange, Ledger, MemoryHub, hubs_for
from motet.tasks import Prompt, Score, Split, Task, load_task


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
        name: assemble_member(run, name, task, exchange=exchanges[name], archive=archives[name]) for name in names
    }
    return Assembly(task, members, hubs)


def assemble_member(run: RunFile, name: str, task: Task, *, exchange: Exchange, archive: Archive) -> Member:
    """Build one node of a run file.

    Args:
        run: the settings.
        name: of the node.
        task: what `task_of` returned.
        exchange: through which it meets the others.
        archive: where it keeps its groups.

    Raises:
        MotetError: whatever models or settings have to say.
    """
    (settings,) = (settings for settings in run.node if settings.name == name)
    swarm = [name] if run.trains_alone else [settings.name for settings in run.node]
    policy = policy_of(run, settings)
    assignment = Assignment(
        run.run.seed,
        swarm,
        run.rollout.prompts_per_round,
        run.rollout.group_size,
        num_train_prompts=task.num_prompts("train"),
        collaboration=run.swarm.collaboration,
    )
    if run.rollout.ahead:
        task = _OneAtATime(task)
    learner = _learner(run, policy, prompt_encoder(policy.tokenizer, task))
    node = Node(
        name,
        assignment=assignment,
        production=_production(run, name, policy, task, assignment=assignment, learner=learner),
        exchange=exchange,
        gate=_gate(run, name, policy, task, assignment=assignment, swarm=swarm),
        learner=learner,
        ledger=Ledger(),
        archive=archive,
        deadline_s=run.swarm.deadline_s,
        max_lag=_max_lag(run),
        log_probs=run.swarm.log_probs,
    )
    return Member(node, policy, examiner_of(run, policy, task))


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


def _production(
    run: RunFile, name: str, policy: Policy, task: Task, *, assignment: Assignment, learner: Learner
) -> Production:
    """Called after the learner was made: it has cast the policy to what it computes in."""

    def policy_step() -> int:
        return learner.policy_step

    if not run.rollout.ahead:
        return OnTime(_sampler(run, name, policy, task), assignment=assignment, policy_step=policy_step)
    twin = copy.deepcopy(policy)
    return Ahead(
        _sampler(run, name, twin, task),
        assignment=assignment,
        policy_step=policy_step,
        policy=policy,
        copy=twin,
        num_rounds=run.run.rounds,
    )


def _sampler(run: RunFile, name: str, policy: Policy, task: Task) -> Sampler:
    return Sampler(
        name,
        seed=run.run.seed,
        policy=policy,
        generator=HFGenerator(policy),
        task=task,
        max_new_tokens=run.rollout.max_new_tokens,
        temperature=run.rollout.temperature,
    )


def _learner(run: RunFile, policy: Policy, prompt_ids: Callable[[str], Sequence[int]]) -> Learner:
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
        prompt_ids=prompt_ids,
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


class _OneAtATime:
    """A task whose rewards two threads may ask for: functions of the user's are called by one of them at a time."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._scoring = threading.Lock()

    @property
    def name(self) -> str:
        return self._task.name

    @property
    def fingerprint(self) -> str:
        return self._task.fingerprint

    def num_prompts(self, split: Split) -> int:
        return self._task.num_prompts(split)

    def prompt(self, prompt_id: str) -> Prompt:
        return self._task.prompt(prompt_id)

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        with self._scoring:
            return self._task.score(prompt, completions)
