"""The settings of a replay: those of a run, for one node that learns from stored groups and samples nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from motet.config.dump import dump_run_file
from motet.config.load import with_overrides
from motet.config.settings import NodeSettings, RunFile
from motet.errors import UsageError


def replay_settings(
    source: RunFile, node: NodeSettings, *, name: str | None = None, overrides: Sequence[str] = ()
) -> RunFile:
    """A run file under which `node` learns as it would in `source`, from what was stored.

    How groups travel, who the others are and how much of a step one of them may have (there is nothing of the node's
    own to weigh it against, by amount or by gradient) is left out; overrides may bring settings back.

    Args:
        source: the run that sampled, or whose task, method and schedule are wanted.
        node: who learns.
        name: of the new run. Without it: <source>-replay-<node>.
        overrides: "section.key=value" each.

    Raises:
        UsageError: E-CONFIG-03 or E-CONFIG-04, as for a run file; E-REPLAY-05, settings that a replay cannot have.
    """
    plain = tomllib.loads(dump_run_file(source))
    plain["run"]["name"] = name or f"{source.run.name}-replay-{node.name}"
    plain["rollout"] |= {"ahead": 0, "top_up": False}
    joins = source.swarm.collaboration == "horizontal"  # "gaps" are those of a node's own groups, and it has none
    plain["swarm"] = {"collaboration": "horizontal" if joins else "vertical"}
    plain["admission"].pop("max_influence", None)
    plain["node"] = [node.model_dump(exclude_none=True, exclude={"key"})]
    run = with_overrides(plain, overrides)
    check_replayable(run)
    return run


def check_replayable(run: RunFile) -> None:
    """Raise UsageError (E-REPLAY-05) for settings that a replay cannot have."""
    if run.trains_alone:
        raise UsageError(
            'method.name = "on_policy" learns from fresh completions of its own only, and stored ones are neither; '
            "use --set method.name=f_tis, or another that learns from others",
            code="E-REPLAY-05",
        )
    if run.swarm.transport != "memory" or run.swarm.pace != "lockstep":
        raise UsageError(
            f'swarm.transport = "{run.swarm.transport}", swarm.pace = "{run.swarm.pace}": a replay has one process '
            'and nobody to wait for; leave them out ("memory", "lockstep")',
            code="E-REPLAY-05",
        )
    if run.admission.max_influence == "by_gradient":
        raise UsageError(
            'admission.max_influence = "by_gradient" compares with gradients of the node\'s own fresh completions, '
            "and a replay has none; leave it out",
            code="E-REPLAY-05",
        )
    if len(run.node) != 1:
        raise UsageError(f"a replay trains one node, and the run file has {len(run.node)}", code="E-REPLAY-05")


def with_rounds(run: RunFile, rounds: int) -> RunFile:
    """The same settings with at most so many rounds.

    Raises:
        UsageError: E-CONFIG-03, a setting does not fit so few rounds.
    """
    if run.run.rounds <= rounds:
        return run
    plain = tomllib.loads(dump_run_file(run))
    plain["run"]["rounds"] = rounds
    return with_overrides(plain)
