"""The error model, in one place.

    MotetError                    an own fault: stops the command with one line and an exit code
      UsageError        exit 2    the command line, the run file, a task file: the user can mend it
      EnvironmentFault  exit 3    this machine lacks something: a package, memory, a file of a model
      RunFailed         exit 4    the run broke down here: non-finite numbers, disk full, a damaged checkpoint
      SwarmUnreachable  exit 5    nobody answers at the addresses of the swarm
      SwarmRefused      exit 6    the swarm does not take this node: version, task, key, invitation
      WireError                   bytes that are no group; never leaves `admission`, where it becomes a Verdict

Own faults raise. Faults of peers are data: the gate turns them into a `Verdict` with a reason code that the
ledger counts; no exception of a peer's making leaves `admission`. Only `cli` catches MotetError.
Each error carries a stable code (`E-CONFIG-01`) that `motet explain CODE` describes.
"""

from __future__ import annotations


class MotetError(Exception):
    """A fault that its reader can act on.

    Args:
        message: one line: what is wrong, where (file, key or peer), and what to do.
        code: stable code of the catalogue in `motet.cli.catalogue`, such as "E-CONFIG-01".
    """

    exit_code = 1

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class UsageError(MotetError):
    """The command line or a file of the user's is wrong."""

    exit_code = 2


class EnvironmentFault(MotetError):
    """This machine lacks something that the run needs."""

    exit_code = 3


class RunFailed(MotetError):
    """The run itself broke down."""

    exit_code = 4


class SwarmUnreachable(MotetError):
    """No way into the swarm: nobody answers at any of its addresses."""

    exit_code = 5


class SwarmRefused(MotetError):
    """The swarm, or this node by its own check, says that the two do not belong together."""

    exit_code = 6


class WireError(MotetError):
    """Bytes that are not a valid group. Raised by `records.wire`, caught by `admission.gate`."""

    exit_code = 4
