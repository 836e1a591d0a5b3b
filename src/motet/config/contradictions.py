"""Settings that are fine one by one and not together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from motet.config.settings import RunFile


class Contradiction(NamedTuple):
    """Settings that are fine one by one and not together.

    Attributes:
        key: place of the setting to change, such as ("node", 1, "name").
        others: places of the settings that it contradicts.
        message: what is wrong and what to do, in one line.
    """

    key: tuple[str | int, ...]
    others: tuple[tuple[str | int, ...], ...]
    message: str


def find_contradictions(run: RunFile) -> list[Contradiction]:
    """All of them, in the order in which they are told."""
    return [
        *_repeated_names(run),
        *_terms(run),
        *_ahead(run),
        *_top_up(run),
        *_level(run),
        *_schedule(run),
        *_shares(run),
        *_nodes(run),
        *_network(run),
    ]


def _repeated_names(run: RunFile) -> list[Contradiction]:
    count = Counter(node.name for node in run.node)
    first = {node.name: index for index, node in reversed(list(enumerate(run.node)))}
    return [
        Contradiction(
            ("node", index, "name"),
            (("node", first[node.name], "name"),),
            f'"{node.name}" names {count[node.name]} nodes; every node needs a name of its own',
        )
        for index, node in enumerate(run.node)
        if index > first[node.name]
    ]


def _terms(run: RunFile) -> list[Contradiction]:
    shared = sorted(set(run.task.terms) & set(run.task.ood_terms))
    if run.task.name != "running_sums" or not shared:
        return []
    message = f"{shared[0]} is in task.terms too; out-of-distribution sums must be of lengths that are not trained on"
    return [Contradiction(("task", "ood_terms"), (("task", "terms"), ("task", "name")), message)]


def _ahead(run: RunFile) -> list[Contradiction]:
    if run.rollout.ahead == 0 or run.method.resolved_weights != "none":
        return []
    chosen = "method.name" if run.method.weights is None else "method.weights"
    value = run.method.name if run.method.weights is None else run.method.weights
    message = (
        f'got 1, but {chosen} = "{value}" gives no importance weights, and without them completions that are one step '
        'old are learned from as if they were fresh; use 0, or weights = "truncated" in [method]'
    )
    others = (("method", "name"), ("method", "weights"))
    return [Contradiction(("rollout", "ahead"), others, message)]


def _top_up(run: RunFile) -> list[Contradiction]:
    found = []
    if run.rollout.top_up and run.rollout.ahead:
        message = "got true, but rollout.ahead = 1 samples before it is known what peers send; use one of the two"
        found.append(Contradiction(("rollout", "top_up"), (("rollout", "ahead"),), message))
    if run.rollout.top_up and run.swarm.collaboration != "vertical":
        message = f'got true, but under "{run.swarm.collaboration}" no prompt is a node\'s own; use "vertical"'
        found.append(Contradiction(("rollout", "top_up"), (("swarm", "collaboration"),), message))
    return found


def _level(run: RunFile) -> list[Contradiction]:
    if run.method.level == "token" or ":" not in run.method.resolved_weights:
        return []
    message = f'got "{run.method.level}", but {run.method.weights} gives each token its weight by itself; leave it out'
    return [Contradiction(("method", "level"), (("method", "weights"),), message)]


def _schedule(run: RunFile) -> list[Contradiction]:
    learner, found = run.learner, []
    if learner.warmup_rounds > run.run.rounds:
        message = f"got {learner.warmup_rounds}, but the run has {run.run.rounds} rounds (run.rounds)"
        found.append(Contradiction(("learner", "warmup_rounds"), (("run", "rounds"),), message))
    if learner.schedule != "constant" and learner.final_learning_rate > learner.learning_rate:
        message = (
            f"got {learner.final_learning_rate:g}, above learner.learning_rate = {learner.learning_rate:g} "
            f'from which "{learner.schedule}" falls to it'
        )
        others = (("learner", "learning_rate"), ("learner", "schedule"))
        found.append(Contradiction(("learner", "final_learning_rate"), others, message))
    return found


def _nodes(run: RunFile) -> list[Contradiction]:
    found = []
    for index, node in enumerate(run.node):
        place = ("node", index)
        if node.lora is not None and node.peft is not None:
            message = "a node trains one adapter: leave out lora or peft"
            found.append(Contradiction((*place, "peft"), ((*place, "lora"),), message))
        if node.generation.engine == "vllm" and node.generation.refresh_dir is None:
            message = 'is needed with engine = "vllm": the weights of each step pass through this folder'
            found.append(
                Contradiction((*place, "generation", "refresh_dir"), ((*place, "generation", "engine"),), message)
            )
        if node.generation.engine == "vllm" and run.rollout.ahead:
            message = 'got 1, but a node that samples with engine = "vllm" samples each round when it begins; use 0'
            found.append(Contradiction(("rollout", "ahead"), ((*place, "generation", "engine"),), message))
    return found


def _network(run: RunFile) -> list[Contradiction]:
    swarm, found = run.swarm, []
    transport = ("swarm", "transport")
    for key in ("listen", "connect", "authority", "tls", "max_foreign_groups"):
        if getattr(swarm, key) and not run.is_networked:
            message = f'is for networks, but swarm.transport = "{swarm.transport}"; set transport = "zenoh" or "nats"'
            found.append(Contradiction(("swarm", key), (transport,), message))
    if swarm.transport == "nats" and not swarm.connect:
        message = 'is needed with transport = "nats": the address of a server, such as "nats://127.0.0.1:4222"'
        found.append(Contradiction(("swarm", "connect"), (transport,), message))
    if swarm.transport == "nats" and swarm.listen:
        message = "nodes do not listen where a NATS server carries their groups; leave it out"
        found.append(Contradiction(("swarm", "listen"), (transport,), message))
    if swarm.collaboration != "vertical" and swarm.authority is not None:
        message = (
            f'got "{swarm.collaboration}", but swarm.authority lets nodes join that this file does not name, and it '
            'needs all names; use "vertical"'
        )
        found.append(Contradiction(("swarm", "collaboration"), (("swarm", "authority"),), message))
    return found


def _shares(run: RunFile) -> list[Contradiction]:
    if not run.shares_groups:
        return []
    rollout, num_nodes, found = run.rollout, len(run.node), []
    group_size, max_group_size = rollout.group_size, run.admission.max_group_size
    if run.swarm.collaboration == "horizontal" and group_size < num_nodes:
        message = (
            f"got {group_size} for {num_nodes} nodes; under horizontal collaboration each node needs a share of "
            f"every group: {num_nodes} or more"
        )
        others = (("swarm", "collaboration"), ("node",))
        found.append(Contradiction(("rollout", "group_size"), others, message))
    if run.swarm.collaboration == "vertical" and rollout.prompts_per_round < num_nodes:
        message = f"got {rollout.prompts_per_round} for {num_nodes} nodes; each needs a prompt: {num_nodes} or more"
        others = (("swarm", "collaboration"), ("node",))
        found.append(Contradiction(("rollout", "prompts_per_round"), others, message))
    if run.swarm.collaboration != "horizontal" and group_size > max_group_size:
        message = f"got {group_size}, but peers' gates reject groups above admission.max_group_size = {max_group_size}"
        found.append(Contradiction(("rollout", "group_size"), (("admission", "max_group_size"),), message))
    return found
