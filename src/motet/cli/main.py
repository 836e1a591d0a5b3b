"""`motet VERB`: finds the verb, runs it, and turns every way in which that can end into an exit code.

0 done, 1 a fault of motet's own (the only case with a traceback), 2 the command line or the run file, 3 this machine,
4 the run broke down, 130 and 143 interrupted and terminated.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import Final, NoReturn, cast

from motet import __version__
from motet.errors import MotetError, RunFailed, UsageError

VERBS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "demo": "watch two different models learn together, and compare with each alone",
        "swarm": "run all nodes of a run file on this machine",
        "node": "run one node of a run file; the others run here or on other machines",
        "invite": "let a guest's node into a swarm: prints one line for them to run",
        "join": "take part in a swarm by an invitation",
        "relay": "carry messages between nodes that cannot reach each other",
        "watch": "see how a swarm is doing, from its run directory or at an address",
        "doctor": "check a run file and this machine before anything heavy starts",
        "keys": "keys and certificates of a swarm",
        "eval": "measure the accuracy of a model on held-out prompts",
        "choose": "say which run's model to keep, so that a node leaves no worse than alone",
        "export": "write a node's model as a Hugging Face folder with a model card",
        "replay": "train one model from the stored groups of a run, without sampling",
        "study": "train a matrix of pairs, methods and seeds, and judge the paper's claims by it",
        "bench": "measure motet beside the alternative: learner, sampler, wire, overlap, growth",
        "report": "write the HTML page of one run or several",
        "init": "write a commented run file to start from",
        "explain": "say what an error code means and what to do",
    }
)
"""Each verb and what it does; its module is `motet.cli.<verb>` with `add_parser(subparsers)` and `run(args) -> int`."""

EXIT_FAULT, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, EXIT_TERMINATED = 1, 2, 130, 141, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM has come, or the terminal was closed (SIGHUP). What leaves a resumable run on Ctrl-C does so here too."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """Report a mistake on the command line."""
        raise UsageError(f"{self.prog}: {message}; see `{self.prog} --help`", code="E-CLI-02")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or pipe without our signs gets "?" for them
    try:
        with _sigterm_raises():
            code = _run(arguments)
            sys.stdout.flush()
            return code
    except MotetError as error:
        return _complain(error)
    except Terminated as stop:
        return _say_stopped("terminated", stop, EXIT_TERMINATED)
    except KeyboardInterrupt as stop:
        return _say_stopped("interrupted", stop, EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone. What is left in the buffer must not raise again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the one place where an unforeseen fault ends, with all that is known
        known = _disk_fault(error)
        if known is not None:
            return _complain(known)
        traceback.print_exc()
        print(
            "error: this is a fault in motet, not a mistake of yours. Please report it with the lines above, the run "
            f"file and the version ({__version__}).",
            file=sys.stderr,
        )
        return EXIT_FAULT


def _run(arguments: list[str]) -> int:
    verb = next((argument for argument in arguments if not argument.startswith("-")), None)
    if verb is not None and verb not in VERBS:
        raise UsageError(f"motet: no verb {_near(verb, VERBS)}; verbs are {', '.join(VERBS)}", code="E-CLI-01")
    module = None if verb is None else importlib.import_module(f"motet.cli.{verb}")
    parser = Parser(prog="motet", description="Collaborative GRPO for language models that differ.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"motet {__version__}")
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    for name, purpose in VERBS.items():
        if name == verb and module is not None:
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=purpose)
        subparsers.choices[name].allow_abbrev = False
    try:
        parsed, unknown = parser.parse_known_args(arguments)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    if unknown:
        chosen = parser if verb is None else subparsers.choices[verb]
        flags = [flag for action in chosen._actions for flag in action.option_strings]
        raise UsageError(
            f"{chosen.prog}: no argument {_near(unknown[0], flags)}; see `{chosen.prog} --help`", code="E-CLI-02"
        )
    if module is None:
        parser.print_help()
        return EXIT_USAGE
    run = cast("Callable[[argparse.Namespace], int]", module.run)
    return run(parsed)


def _near(word: str, known: Sequence[str] | Mapping[str, str]) -> str:
    """The word in quotes, with the nearest known one."""
    import difflib

    nearest = difflib.get_close_matches(word.partition("=")[0], list(known), n=1)
    return f'"{word}"' + (f'; did you mean "{nearest[0]}"?' if nearest else "")


def _complain(error: MotetError) -> int:
    lines = str(error).splitlines() or [""]
    if len(lines) > 1:
        lines = [f"{len(lines)} mistakes", *(f"  {line}" for line in lines)]
    lines[0] = f"error: {lines[0]}  [{error.code}]"
    print("\n".join([*lines, f"`motet explain {error.code}` says more."]), file=sys.stderr)
    return error.exit_code


def _say_stopped(how: str, stop: KeyboardInterrupt, code: int) -> int:
    """One line; a verb that has saved something raises again with a text that says so."""
    print(": ".join([how, *map(str, stop.args)]), file=sys.stderr)
    return code


def _disk_fault(error: Exception) -> MotetError | None:
    """A full or locked disk is no fault of motet's. Safetensors tells of one in an error of its own."""
    if isinstance(error, OSError):
        number, where = error.errno, f"{error.filename}: " if error.filename else ""
    elif type(error).__name__ == "SafetensorError" and (told := re.search(r"\(os error (\d+)\)", str(error))):
        number, where = int(told[1]), ""
    else:
        return None
    if number in {errno.ENOSPC, errno.EDQUOT}:
        return RunFailed(f"{where}the disk is full; free some space and start again", code="E-DISK-01")
    if number in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return RunFailed(f"{where}not permitted; choose another folder, or change who may write here", code="E-DISK-02")
    return None


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> NoReturn:
        del signum, frame
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    numbers = [signal.SIGTERM] if nohup else [signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
