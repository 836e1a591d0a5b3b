"""A run without sampling: one node learns, round by round, from groups that were stored in archives."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from motet.config import RunFile, check_replayable, with_rounds
from motet.errors import RunFailed, UsageError
from motet.journal import RunDir, write_json
from motet.records import StoredGroups
from motet.simulation.checkpoint import claim_run_dir
from motet.simulation.course import Course, Outcome
from motet.simulation.crew import Identity
from motet.simulation.identity import check_identities, difference_of, recorded
from motet.simulation.observer import Observer


def run_replay(
    run: RunFile,
    archives: Sequence[Path] | StoredGroups,
    *,
    observer: Observer,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train the only node of a run file from stored groups; continue an interrupted replay of the same.

    Round r learns from what is stored of round r, all of it off-policy, the node's own old groups too. There are as
    many rounds as are stored, or fewer if `run` says so. `motet.config.replay_settings` makes a run file of a swarm's.

    Args:
        run: the settings, of one node.
        archives: where groups are stored, or those groups.
        observer: is told what happens.
        should_stop: asked after every round; True leaves a checkpoint and returns.

    Raises:
        MotetError: an archive, settings, a task or a model that cannot be used, groups of another tokenizer or of other
            prompts, a run directory that holds something else, a failed step.
    """
    check_replayable(run)
    stored = archives if isinstance(archives, StoredGroups) else StoredGroups(archives)
    run = with_rounds(run, stored.num_rounds)
    run_dir, position = claim_run_dir(run, is_replay=True)
    _claim_contents(run_dir, stored)
    if run_dir.summary.exists():
        return Outcome(run_dir, finished=True, rounds_done=run.run.rounds)
    from motet.node import assemble_replay  # these two import torch, which a mistake above can do without
    from motet.simulation.local import LocalCrew

    with ExitStack() as stack:
        crew = LocalCrew(run, run_dir, position, stack, assemble=partial(assemble_replay, stored=stored))
        (identity,) = crew.identities.values()
        _check_origin(run, stored, identity)
        check_identities(run, run_dir, crew.identities)
        return Course(run, run_dir, position, observer, stack, crew).run(should_stop)


def _claim_contents(run_dir: RunDir, stored: StoredGroups) -> None:
    """What a replay began with is what it goes on with, wherever the archives lie by now."""
    contents = stored.contents()
    if run_dir.replay.exists():
        try:
            found = json.loads(run_dir.replay.read_bytes())["archives"]
            began = [content["digest"] for content in found]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFailed(f"{run_dir.replay}: damaged ({error}); --clean begins anew", code="E-REPLAY-04") from error
        if began != [content["digest"] for content in contents]:
            files = ", ".join(str(content["file"]) for content in found)
            raise UsageError(
                f"{run_dir.path} is a replay of other archives, or of what these held then ({files}); "
                "use another name, or --clean to begin anew",
                code="E-REPLAY-04",
            )
    write_json(run_dir.replay, {"archives": contents})


def _check_origin(run: RunFile, stored: StoredGroups, here: Identity) -> None:
    """The groups are of this node's tokenizer and, where their run says so, of its prompts; rewards may differ."""
    model = run.node[0].model
    for tokenizer, path in stored.tokenizers.items():
        if tokenizer != here.tokenizer:
            raise UsageError(
                f"{path}: groups of another tokenizer (fingerprint {tokenizer}) than that of {model} "
                f"({here.tokenizer}); choose a model of theirs",
                code="E-REPLAY-03",
            )
    for path in stored.paths:
        origin = RunDir(path.parent.parent)
        if path.parent != origin.archive_dir or not origin.identity.is_file():
            continue
        for there in recorded(origin).values():
            difference = difference_of(msgspec.structs.replace(there, task=here.task), here)
            if difference is not None:
                raise UsageError(
                    f"{path}: its groups cannot teach {model}: {difference}; bring back the task and [prompt] of "
                    f"{origin.config}",
                    code="E-REPLAY-03",
                )
