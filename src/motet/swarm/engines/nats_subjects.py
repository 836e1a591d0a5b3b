"""How topics are spelt as NATS subjects. Knows nothing of the client.

Of a run with the id R, peer P and round N:

    beat/P      motet.R.beat.P      stream motet_R_beats: the latest one, for some seconds
    roll/P/N    motet.R.roll.P.N    stream motet_R: the messages of the latest rounds
    card/P      motet.R.card.P      the same stream
                motet.R.ask.P       requests that a node answers itself

The stream of heartbeats is a key-value bucket in all but its name: servers keep the subjects of buckets, $KV, from
passing leaf nodes.
"""

from __future__ import annotations

import re

from motet.swarm.engines.acl import ANY_RUN

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+")
_CODED = re.compile(r"(?:=[0-9A-F]{2})+")


def token_of(name: str) -> str:
    """The name as one token of a subject; "=2E" stands for a dot.

    Raises:
        ValueError: an empty name.

    >>> token_of("lab.gpu-1")
    'lab=2Egpu-1'
    """
    if not name:
        raise ValueError("an empty name is no token of a subject")
    return "".join(
        char if _PLAIN.fullmatch(char) else "".join(f"={byte:02X}" for byte in char.encode()) for char in name
    )


def name_of(token: str) -> str | None:
    """The name that `token_of` has spelt so; None if it never spells anything so.

    >>> name_of("lab=2Egpu-1"), name_of("=41lice")
    ('lab.gpu-1', None)
    """
    if not _ESCAPED.fullmatch(token):
        return None
    try:
        name = _CODED.sub(lambda match: bytes.fromhex(match[0].replace("=", "")).decode(), token)
    except UnicodeDecodeError:
        return None
    return name if token_of(name) == token else None


class Subjects:
    """The subjects of one run; nothing of another run is heard or written.

    Args:
        run_id_hex: the run's id, lower-case hexadecimal; `ANY_RUN` to hear heartbeats of all runs, and write nothing.

    Raises:
        ValueError: the id is not hexadecimal.

    >>> Subjects("0a").subject_of("roll/lab.gpu/12")
    'motet.0a.roll.lab=2Egpu.12'
    >>> Subjects("0a").topic_of("motet.0a.roll.lab=2Egpu.12")
    'roll/lab.gpu/12'
    >>> Subjects("*").every_beat, Subjects("*").topic_of("motet.0a.beat.ann")
    ('motet.*.beat.*', 'beat/ann')
    """

    def __init__(self, run_id_hex: str) -> None:
        if run_id_hex != ANY_RUN and not re.fullmatch(r"[0-9a-f]+", run_id_hex):
            raise ValueError(f"{run_id_hex!r} is no id of a run: it is written in lower-case hexadecimal digits")
        self.rounds_stream = f"motet_{run_id_hex}"
        self.beats_stream = f"motet_{run_id_hex}_beats"
        self._run = f"motet.{run_id_hex}."
        self._of_the_run = re.compile(r"motet\.[0-9a-f]+\." if run_id_hex == ANY_RUN else re.escape(self._run))
        self.every_beat = f"{self._run}beat.*"
        self.every_roll = f"{self._run}roll.*.*"
        self.every_card = f"{self._run}card.*"

    def subject_of(self, topic: str) -> str:
        """The subject of a topic.

        Raises:
            ValueError: a part of the topic is empty.
        """
        return self._run + ".".join(token_of(name) for name in topic.split("/"))

    def topic_of(self, subject: str) -> str | None:
        """The topic of a subject; None for a subject that `subject_of` never gives."""
        begins = self._of_the_run.match(subject)
        if begins is None:
            return None
        names = [name_of(token) for token in subject[begins.end() :].split(".")]
        return None if any(name is None or "/" in name for name in names) else "/".join(filter(None, names))

    def ask(self, peer: str) -> str:
        """Where a node answers for itself."""
        return f"{self._run}ask.{token_of(peer)}"

    def inboxes(self, peer: str) -> str:
        """Beginning of the subjects at which a node gets answers: the server can let it alone listen there."""
        return f"_INBOX.{token_of(peer)}"
