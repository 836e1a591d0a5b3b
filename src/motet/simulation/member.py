"""One node of a swarm whose others live elsewhere: a crew of one, which follows the rounds of its swarm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
import torch

from motet.journal import RunDir
from motet.node import Seat, assemble_member, network_of, policy_of, settings_of, task_of
from motet.records import Archive
from motet.simulation.checkpoint import Position, claim_run_dir
from motet.simulation.course import Course, Outcome
from motet.simulation.crew import Facts, Identity, Kept, Report, Turn
from motet.simulation.identity import card_of, check_identities
from motet.simulation.observer import Observer
from motet.simulation.presence import Presence
from motet.simulation.schedule import BEFORE_TRAINING
from motet.simulation.station import EVALUATE, Station, identity_of, use_threads
from motet.swarm import Event, MemoryHub


def run_member(
    seat: Seat, path: Path, *, observer: Observer, should_stop: Callable[[], bool] = lambda: False
) -> Outcome:
    """Train one node in the swarm that it finds on the network; continue an interrupted run of the same settings.

    Args:
        seat: the node, by `motet.node.seat_of`.
        path: of the run's directory.
        observer: is told what happens.
        should_stop: asked after every round and while waiting to begin; True leaves a checkpoint and returns.

    Raises:
        MotetError: as `run_swarm`; SwarmUnreachable and SwarmRefused if there is no way into the swarm.
    """
    run = seat.run
    run_dir, position = claim_run_dir(run, path)
    if run_dir.summary.exists():
        return Outcome(run_dir, finished=True, rounds_done=run.run.rounds)
    with ExitStack() as stack:
        crew = MemberCrew(seat, run_dir, position, stack, observer=observer, should_stop=should_stop)
        check_identities(run, run_dir, crew.identities)
        return Course(run, run_dir, position, observer, stack, crew).run(should_stop)


class MemberCrew:
    """Implements `Crew` for a single node.

    A node that has fallen behind, or begins late, goes on with the round that its swarm has reached: what it left out
    is not made up for.

    Args:
        seat: the node.
        run_dir: the run's directory.
        position: where an interrupted run continues.
        stack: closes what this crew opens.
        observer: is told what happens before the first round.
        should_stop: ends the wait for the others.

    Raises:
        MotetError: what task, model, keys, certificates or network have to say.
    """

    def __init__(
        self,
        seat: Seat,
        run_dir: RunDir,
        position: Position | None,
        stack: ExitStack,
        *,
        observer: Observer,
        should_stop: Callable[[], bool],
    ) -> None:
        run, name = seat.run, seat.name
        self._name = name
        self._num_rounds = run.run.rounds
        self._most_behind = run.swarm.max_lag if run.swarm.pace == "free" else 0
        stack.callback(torch.set_num_threads, use_threads(run, num_processes=1))
        kept = None if position is None else position.archive_bytes.get(name)
        archive = stack.enter_context(Archive(run_dir.archive(name), keep_bytes=kept))
        task = task_of(run)
        policy = policy_of(run, settings_of(run, name))
        self._identity = identity_of(policy, task)
        network = None
        if not run.trains_alone:
            network = network_of(
                run,
                name,
                others=seat.others,
                card=card_of(run, self._identity),
                roster_file=run_dir.roster(name),
            )
        exchange = MemoryHub().join(name) if network is None else network
        member = assemble_member(run, name, task, policy, exchange=exchange, archive=archive)
        self._station = Station(run, member, task=task)
        stack.callback(self._station.close)
        if position is not None:
            self._station.restore(position, name)
        first_round = 0 if position is None else position.rounds_done
        self._has_begun = False
        self._jumped: list[Event] = []
        self._was_alone = False
        self._presence = None
        if network is not None:
            self._presence = Presence(run, name, run_dir, network, member.node)
            stack.callback(self._presence.close)
            self._presence.enter(
                first_round,
                wait_for=list(seat.others),
                tell=lambda text: observer.happened(name, Event("waiting", "", text)),
                should_stop=should_stop,
            )

    @property
    def hubs(self) -> Mapping[str, MemoryHub]:
        """None: the others are elsewhere."""
        return {}

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What the node learns from."""
        return {self._name: self._identity}

    def examine(self, report: Report) -> None:
        """Examine the node before training."""
        self._begins(EVALUATE, BEFORE_TRAINING, report)
        report.done(self._name, self._station.examine(BEFORE_TRAINING))

    def play(self, first: int, until: int, *, report: Report, go_on: Callable[[], bool]) -> int:
        """See `Crew.play`; may end later than `until`, if the swarm has gone on meanwhile."""
        round = first
        if not self._has_begun:
            round = self._begin(first)
        while round < until:
            if round > first and not go_on():
                return round
            turn = self._play(round, report)
            turn = msgspec.structs.replace(turn, events=[*self._jumped, *turn.events, *self._loneliness()])
            following = self._reach(round + 1)
            report.done(self._name, turn)
            round = following
        return round

    def _begin(self, first: int) -> int:
        """Take part: from this round on, or where the swarm is."""
        self._has_begun = True
        round = self._reach(first)
        if self._presence is not None:
            self._presence.begin(round)
        return round

    def _loneliness(self) -> list[Event]:
        """Being alone is no error; it is told once when it begins, and once when it ends."""
        is_alone = self._presence is not None and self._presence.is_alone
        if is_alone == self._was_alone:
            return []
        self._was_alone = is_alone
        if is_alone:
            return [Event("alone", "", "hears nobody of this run: trains by itself until somebody comes")]
        return [Event("not_alone", "", "is not alone any more")]

    def _play(self, round: int, report: Report) -> Turn:
        steps = self._station.play(round)
        while True:
            try:
                activity = next(steps)
            except StopIteration as end:
                turn: Turn = end.value
                return turn
            self._begins(activity, round, report)

    def _begins(self, activity: str, round: int, report: Report) -> None:
        waiting_for = self._station.waiting_for(round) if activity == "wait" else []
        if self._presence is not None:
            self._presence.phase(activity, round)
        report.begins(self._name, activity, round=round, waiting_for=waiting_for)

    def _reach(self, round: int) -> int:
        """This round, or the swarm's, if that is out of reach otherwise."""
        reached = None if self._presence is None else self._presence.swarm_round()
        self._jumped = []
        if reached is None or reached - round <= self._most_behind:
            return round
        target = max(round, min(reached, self._num_rounds - 1))
        if target > round:
            text = f"the swarm is in round {target + 1} of {self._num_rounds}; goes on there instead of {round + 1}"
            self._jumped = [Event("jumped", "", text)]
        return target

    def save(self, folder: Path) -> Mapping[str, Kept]:
        """See `Crew.save`."""
        (folder / self._name).mkdir()
        return {self._name: self._station.save(folder / self._name)}

    def finish(self, model_folder: Callable[[str], Path]) -> Mapping[str, Facts]:
        """See `Crew.finish`."""
        if self._presence is not None:
            self._presence.leave()
        return {self._name: self._station.finish(model_folder(self._name))}
