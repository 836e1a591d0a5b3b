"""What a run file says about when: examinations, checkpoints, and how far one node may run ahead of another."""

from __future__ import annotations

from motet.config import RunFile

BEFORE_TRAINING = -1
"""The "round" of the examination before the first one."""


def is_first_or_last(run: RunFile, round: int) -> bool:
    """True for the examinations before training and after the last round."""
    return round in (BEFORE_TRAINING, run.run.rounds - 1)


def exam_prompts(run: RunFile, round: int) -> int:
    """Prompts of each split that a node is asked after a round; 0 means no examination."""
    evaluation = run.evaluation
    if is_first_or_last(run, round):
        return evaluation.final_num_prompts
    return evaluation.num_prompts if evaluation.every and (round + 1) % evaluation.every == 0 else 0


def has_checkpoint(run: RunFile, rounds_done: int) -> bool:
    """True if a checkpoint is due after so many rounds."""
    return rounds_done == run.run.rounds or rounds_done % run.run.checkpoint_every == 0


def next_gathering(run: RunFile, rounds_done: int) -> int:
    """After how many rounds all nodes next wait for each other: for a checkpoint, or after an examination.

    Examinations of large models take long; peers wait for them here, outside of any round's deadline.
    """
    later = range(rounds_done + 1, run.run.rounds + 1)
    return next(done for done in later if has_checkpoint(run, done) or exam_prompts(run, done - 1))


def most_rounds_ahead(run: RunFile) -> int:
    """Rounds by which a node may be ahead of the slowest: what is farther off would not be learned from."""
    return run.swarm.max_lag if run.swarm.pace == "free" else 1
