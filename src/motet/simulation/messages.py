"""What the process of a run and those of its nodes say to each other, as MessagePack: orders down, answers up."""

from __future__ import annotations

import msgspec

from motet.simulation.crew import Facts, Identity, Kept, Turn


class Examine(msgspec.Struct, tag="examine", frozen=True):
    """Be examined before training. Answered by `Done`."""


class Play(msgspec.Struct, tag="play", frozen=True):
    """Play a round. Answered by `Begins` at each phase, and `Done`."""

    round: int


class Save(msgspec.Struct, tag="save", frozen=True):
    """Write your part of a checkpoint into this folder, which is there. Answered by `Saved`."""

    folder: str


class Finish(msgspec.Struct, tag="finish", frozen=True):
    """Write the model into this folder and end. Answered by `Finished`."""

    folder: str


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The model is loaded, and a checkpoint restored if there was one."""

    identity: Identity


class Begins(msgspec.Struct, tag="begins", frozen=True):
    """A phase, or the examination, begins; `waiting_for` names the peers that the node still lacks."""

    activity: str
    round: int
    waiting_for: list[str]


class Done(msgspec.Struct, tag="done", frozen=True):
    """A round is over."""

    turn: Turn


class Saved(msgspec.Struct, tag="saved", frozen=True):
    """The files are written."""

    kept: Kept


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """The model is written; the process ends."""

    facts: Facts


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """An error that ends the node; the process ends.

    Attributes:
        kind: name of its class.
        message: its text; the whole traceback of an unforeseen one.
        code: of a MotetError.
        number: errno of an OSError.
        path: file of an OSError.
    """

    kind: str
    message: str
    code: str = ""
    number: int = 0
    path: str = ""


Order = Examine | Play | Save | Finish
Answer = Ready | Begins | Done | Saved | Finished | Failed

encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
