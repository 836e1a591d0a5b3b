"""The same prompts for all: checked when a run begins, and again when it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import takewhile

import msgspec

from motet.config import RunFile
from motet.errors import RunFailed, UsageError
from motet.journal import RunDir, write_json
from motet.records import WIRE_VERSION
from motet.simulation.crew import Identity

_SHOWN = 60


def check_identities(run: RunFile, run_dir: RunDir, identities: Mapping[str, Identity]) -> None:
    """Nodes that learn from one another see the same prompts, and those that the run began with.

    Completions travel as token ids, and rewards are computed again: of other prompts both would be wrong and nothing
    would show it.

    Raises:
        UsageError: E-SWARM-04, two nodes differ; E-RESUME-03, task, template or model are not those of the beginning.
        RunFailed: E-RESUME-02, the record of the beginning is damaged.
    """
    if run.shares_groups:
        (first, ours), *others = identities.items()
        for name, theirs in others:
            difference = difference_of(ours, theirs)
            if difference is not None:
                raise UsageError(
                    f"nodes {first} and {name} cannot learn from one another: {difference}; "
                    "choose models of one tokenizer, and set prompt.template or prompt.format for both",
                    code="E-SWARM-04",
                )
    if not run_dir.identity.exists():
        write_json(run_dir.identity, {name: msgspec.to_builtins(identity) for name, identity in identities.items()})
        return
    for name, there in recorded(run_dir).items():
        here = identities[name]
        difference = difference_of(there, here)
        if difference is None and there.commit != here.commit:
            difference = f"its model was commit {there.commit} and is {here.commit}; set node.revision"
        if difference is not None:
            raise UsageError(
                f"node {name} of {run_dir.path} began otherwise: {difference}; "
                "bring back what has changed, or use another run.name",
                code="E-RESUME-03",
            )


def card_of(run: RunFile, identity: Identity) -> dict[str, str]:
    """What must be the same for all nodes that learn from one another over a network, as lines for people.

    Methods, learning rates and models may differ: every node learns in its own way.
    """
    rollout = run.rollout
    share = rollout.prompts_per_round
    if run.swarm.collaboration == "vertical":
        share = max(1, share // len(run.node))
    return {
        "wire version": str(WIRE_VERSION),
        "run.rounds": str(run.run.rounds),
        "task": identity.task,
        "tokenizer": identity.tokenizer,
        "prompts": identity.prompts,
        "first prompt": identity.example,
        "rollout.group_size": str(rollout.group_size),
        "prompts of a node in a round": str(share),
        "rollout.max_new_tokens": str(rollout.max_new_tokens),
        "swarm.collaboration": run.swarm.collaboration,
    }


def recorded(run_dir: RunDir) -> dict[str, Identity]:
    """What each node of a run learned from when it began. Raises RunFailed (E-RESUME-02) if the record is damaged."""
    try:
        return msgspec.convert(json.loads(run_dir.identity.read_bytes()), dict[str, Identity])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise RunFailed(
            f"{run_dir.identity}: damaged ({error}); restore it, or --clean deletes the run", code="E-RESUME-02"
        ) from error


def difference_of(one: Identity, other: Identity) -> str | None:
    """In what two nodes differ that must agree, in words; None if they agree."""
    if one.task != other.task:
        return f"the task's prompts, answers or rewards differ (fingerprints {one.task[:8]} and {other.task[:8]})"
    if one.tokenizer != other.tokenizer:
        return f"their tokenizers differ (fingerprints {one.tokenizer} and {other.tokenizer})"
    if one.prompts != other.prompts:
        here, there = _around_difference(one.example, other.example)
        return f"their models see other prompts ({here!r} and {there!r})"
    return None


def _around_difference(one: str, other: str) -> tuple[str, str]:
    """Both texts from shortly before the place where they part."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    start = max(0, same - _SHOWN // 2)
    return one[start : start + _SHOWN], other[start : start + _SHOWN]
