"""What runs in the process of one node: it carries out orders until the process that gave them ends.

Everything heavy is imported late: first the process learns whom to obey.
"""

from __future__ import annotations

import os
import signal
import threading
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Final

from motet.config import RunFile
from motet.errors import MotetError
from motet.journal import RunDir
from motet.simulation.checkpoint import read_position
from motet.simulation.messages import (
    Answer,
    Begins,
    Done,
    Examine,
    Failed,
    Finish,
    Finished,
    Order,
    Play,
    Ready,
    Save,
    Saved,
    decode_order,
    encode,
)
from motet.simulation.schedule import BEFORE_TRAINING
from motet.swarm import PipeExchange

if TYPE_CHECKING:
    from motet.records import Archive
    from motet.simulation.presence import Presence
    from motet.simulation.station import Station

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that people and systems send to a whole group of processes; only the one that gives orders heeds them."""

_EXIT_ABANDONED = 4


@dataclass(frozen=True, slots=True)
class Job:
    """What a node's process is told at its start.

    Attributes:
        run_file: the settings, as TOML.
        name: of the node.
        run_dir: the run's directory.
        checkpoint: folder of the checkpoint to continue from.
        orders: orders and answers.
        exchange: to a `serve_exchange`; None: the nodes meet over a network.
    """

    run_file: str
    name: str
    run_dir: Path
    checkpoint: Path | None
    orders: Connection
    exchange: Connection | None


def work(job: Job) -> None:
    """Be the node until it is finished or fails. When the other end of `orders` goes, the process ends at once."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # they were held back while the process began
    orders: SimpleQueue[Order] = SimpleQueue()
    threading.Thread(target=_listen, args=(job.orders, orders), daemon=True).start()
    try:
        for answer in _answers(job, orders):
            job.orders.send_bytes(encode(answer))
    except BrokenPipeError:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told where people will see it
        job.orders.send_bytes(encode(_failure(error)))


def _listen(connection: Connection, orders: SimpleQueue[Order]) -> None:
    try:
        while True:
            orders.put(decode_order(connection.recv_bytes()))
    except (EOFError, OSError):
        os._exit(_EXIT_ABANDONED)  # in the middle of whatever it is: a checkpoint is whole or absent


def _answers(job: Job, orders: SimpleQueue[Order]) -> Iterator[Answer]:
    from motet.records import Archive

    run = RunFile.model_validate(tomllib.loads(job.run_file))
    position = read_position(job.checkpoint) if job.checkpoint is not None else None
    keep_bytes = position.archive_bytes.get(job.name) if position is not None else None
    with Archive(RunDir(job.run_dir).archive(job.name), keep_bytes=keep_bytes) as archive:
        station, presence = _station(job, run, archive)
        if position is not None:
            station.restore(position, job.name)
        if presence is not None:
            from motet.node import others_of

            first_round = 0 if position is None else position.rounds_done
            presence.enter(first_round, wait_for=list(others_of(run, job.name)))
            presence.begin(first_round)
        yield Ready(station.identity())
        held_since = perf_counter()
        while True:
            match orders.get():
                case Examine():
                    yield Done(station.examine(BEFORE_TRAINING))
                case Play(round):
                    yield from _play(station, presence, round, held_since)
                case Save(folder):
                    yield Saved(station.save(Path(folder)))
                case Finish(folder):
                    if presence is not None:
                        presence.leave()
                    yield Finished(station.finish(Path(folder)))
                    station.close()
                    if presence is not None:
                        presence.close()
                    return
            held_since = perf_counter()


def _station(job: Job, run: RunFile, archive: Archive) -> tuple[Station, Presence | None]:
    from motet.node import assemble_member, network_of, others_of, policy_of, settings_of, task_of
    from motet.simulation.identity import card_of
    from motet.simulation.presence import Presence
    from motet.simulation.station import Station, identity_of, use_threads

    use_threads(run, num_processes=len(run.node))
    task = task_of(run)
    policy = policy_of(run, settings_of(run, job.name))
    if job.exchange is not None:
        exchange = PipeExchange(job.name, job.exchange)
        member = assemble_member(run, job.name, task, policy, exchange=exchange, archive=archive)
        return Station(run, member, task=task), None
    card = card_of(run, identity_of(policy, task))
    network = network_of(
        run, job.name, others=others_of(run, job.name), card=card, roster_file=RunDir(job.run_dir).roster(job.name)
    )
    member = assemble_member(run, job.name, task, policy, exchange=network, archive=archive)
    return Station(run, member, task=task), Presence(run, job.name, RunDir(job.run_dir), network, member.node)


def _play(station: Station, presence: Presence | None, round: int, held_since: float) -> Iterator[Answer]:
    steps = station.play(round, held_since=held_since)
    while True:
        try:
            activity = next(steps)
        except StopIteration as end:
            yield Done(end.value)
            return
        if presence is not None:
            presence.phase(activity, round)
        yield Begins(str(activity), round, station.waiting_for(round) if activity == "wait" else [])


def _failure(error: Exception) -> Failed:
    kind = type(error).__name__
    if isinstance(error, MotetError):
        return Failed(kind, str(error), code=error.code)
    if isinstance(error, OSError) and error.errno is not None:
        return Failed("OSError", error.strerror or str(error), number=error.errno, path=str(error.filename or ""))
    if kind == "SafetensorError":  # how a full disk shows while weights are written
        return Failed(kind, str(error))
    return Failed("", "".join(traceback.format_exception(error)).rstrip())
