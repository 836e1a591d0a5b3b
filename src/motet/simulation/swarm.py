"""The run of a whole swarm on this machine, from its first round or from its last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from motet.config import RunFile
from motet.journal import RunDir
from motet.simulation.checkpoint import Position, claim_run_dir
from motet.simulation.course import Course, Outcome
from motet.simulation.crew import Crew
from motet.simulation.identity import check_identities
from motet.simulation.observer import Observer


def run_swarm(run: RunFile, *, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Train all nodes of a run file; continue an interrupted run of the same settings.

    Unless `swarm.transport = "memory"` this starts processes: a script that calls it needs
    `if __name__ == "__main__":`.

    Args:
        run: the settings.
        observer: is told what happens.
        should_stop: asked after every round; True leaves a checkpoint and returns.

    Raises:
        MotetError: settings, task or model that cannot be used, a run directory that holds another run, a failed step,
            a node whose process has ended.
    """
    run_dir, position = claim_run_dir(run)
    if run_dir.summary.exists():
        return Outcome(run_dir, finished=True, rounds_done=run.run.rounds)
    with ExitStack() as stack:
        crew = _make_crew(run, run_dir, position, stack)
        check_identities(run, run_dir, crew.identities)
        return Course(run, run_dir, position, observer, stack, crew).run(should_stop)


def _make_crew(run: RunFile, run_dir: RunDir, position: Position | None, stack: ExitStack) -> Crew:
    if run.swarm.transport != "memory":
        from motet.simulation.processes import ProcessCrew

        return ProcessCrew(run, run_dir, position, stack)
    from motet.simulation.local import LocalCrew  # imports torch, which the process above can do without

    return LocalCrew(run, run_dir, position, stack)
