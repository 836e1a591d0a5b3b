from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from motet import __version__
from motet.cli import explain
from motet.cli.main import VERBS, Terminated, main
from motet.errors import EnvironmentFault, MotetError, RunFailed, UsageError

CLI = Path(__file__).parents[3] / "src/motet/cli"
HEAVY = ("torch", "transformers", "pydantic", "rich", "matplotlib", "numpy")
Stub = Callable[[Callable[[], int]], None]


@pytest.fixture
def explain_does(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Lets `motet explain` do something else, to see how `main` ends."""

    def install(action: Callable[[], int]) -> None:
        def run(args: Namespace) -> int:
            return action()

        monkeypatch.setattr(explain, "run", run)

    return install


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def action() -> NoReturn:
        raise error

    return action


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-X", "importtime", "-m", "motet", *arguments]


def imported(stderr: str) -> set[str]:
    """Packages that `-X importtime` lists."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in stderr.splitlines() if "import time:" in line}


def test_each_verb_has_a_module_and_each_module_with_arguments_a_verb() -> None:
    modules = {path.stem for path in CLI.glob("*.py") if "\ndef add_parser(" in path.read_text(encoding="utf-8")}
    assert set(VERBS) == modules


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["swram"], ["explain", "E-CONFIG-01"]])
def test_what_needs_no_settings_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    packages = imported(done.stderr)
    assert "argparse" in packages
    assert packages.isdisjoint(HEAVY)


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{verb} {purpose}" in shown for verb, purpose in VERBS.items())


def test_without_a_verb_the_help_is_shown_and_the_code_says_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: motet")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"motet {__version__}\n"


@pytest.mark.parametrize("verb", ["swarm", "init", "explain"])
def test_a_verb_has_help_of_its_own(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: motet {verb}")


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["swram"], 'motet: no verb "swram"; did you mean "swarm"?', "E-CLI-01"),
        (["zzz"], 'motet: no verb "zzz"; verbs are demo, swarm,', "E-CLI-01"),
        (["--verison"], 'motet: no argument "--verison"; did you mean "--version"?', "E-CLI-02"),
        (["swarm"], "motet swarm: the following arguments are required: FILE", "E-CLI-02"),
        (["swarm", "x", "--dry-rnu"], 'no argument "--dry-rnu"; did you mean "--dry-run"?', "E-CLI-02"),
        (["swarm", "x", "--sett=a.b=1"], 'no argument "--sett=a.b=1"; did you mean "--set"?', "E-CLI-02"),
        (["swarm", "x", "--dry"], 'no argument "--dry"; did you mean "--dry-run"?', "E-CLI-02"),
        (["swarm", "x", "y"], 'no argument "y"; see', "E-CLI-02"),
        (["swarm", "x", "--set"], "argument --set: expected one argument", "E-CLI-02"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str], says: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert says in first
    assert first.endswith(f"  [{code}]")
    assert hint == f"`motet explain {code}` says more."


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("the file", code="E-CONFIG-01"), 2),
        (EnvironmentFault("the package", code="E-MODEL-04"), 3),
        (RunFailed("the numbers", code="E-LEARN-01"), 4),
    ],
)
def test_own_faults_are_one_line_and_an_exit_code(
    error: MotetError, code: int, explain_does: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_does(raising(error))
    assert main(["explain"]) == code
    assert capsys.readouterr().err == f"error: {error}  [{error.code}]\n`motet explain {error.code}` says more.\n"


def test_several_mistakes_are_a_list(explain_does: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    explain_does(raising(UsageError("a.toml:1  x: bad\na.toml:2  y: bad", code="E-CONFIG-03")))
    assert main(["explain"]) == 2
    assert capsys.readouterr().err.splitlines()[:3] == [
        "error: 2 mistakes  [E-CONFIG-03]",
        "  a.toml:1  x: bad",
        "  a.toml:2  y: bad",
    ]


@pytest.mark.parametrize(
    ("stop", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("saved; the same command resumes"), 130, "interrupted: saved; the same command resumes\n"),
        (Terminated(), 143, "terminated\n"),
        (Terminated("saved"), 143, "terminated: saved\n"),
    ],
)
def test_interruptions_are_one_line(
    stop: KeyboardInterrupt, code: int, line: str, explain_does: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_does(raising(stop))
    assert main(["explain"]) == code
    assert capsys.readouterr().err == line


def test_sigterm_raises_what_ctrl_c_raises(explain_does: Stub) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def wait_for_the_signal() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            time.sleep(0)

    explain_does(wait_for_the_signal)
    assert main(["explain"]) == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_unforeseen_fault_is_the_only_case_with_a_traceback(
    explain_does: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_does(raising(ZeroDivisionError("boom")))
    assert main(["explain"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "ZeroDivisionError: boom" in err
    assert "Please report it" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        (errno.ENOSPC, "E-DISK-01", "runs/x: the disk is full"),
        (errno.EACCES, "E-DISK-02", "runs/x: not permitted"),
        (errno.EROFS, "E-DISK-02", "runs/x: not permitted"),
    ],
)
def test_a_full_or_locked_disk_is_no_fault_of_ours(
    number: int, code: str, says: str, explain_does: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_does(raising(OSError(number, os.strerror(number), "runs/x")))
    assert main(["explain"]) == 4
    err = capsys.readouterr().err
    assert err.startswith(f"error: {says}")
    assert f"[{code}]" in err
    assert "Traceback" not in err


def test_a_full_disk_is_known_from_safetensors_words_too(
    tmp_path: Path, explain_does: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with pytest.raises(SafetensorError, match=rf"\(os error {errno.EISDIR}\)"):  # how it tells of the system's errors
        save_file({}, tmp_path)
    explain_does(raising(SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")))
    assert main(["explain"]) == 4
    err = capsys.readouterr().err
    assert err.startswith("error: the disk is full")
    assert "Traceback" not in err


def test_other_errors_of_the_system_stay_faults(explain_does: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    explain_does(raising(OSError(errno.EBADF, "bad")))
    assert main(["explain"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = "import sys; from motet.cli.main import main; sys.stdin.readline(); sys.exit(main(['explain']))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_python_m_motet_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "motet", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"motet {__version__}\n")
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["explain", "E-ARCHIVE-03"], 0),
        (["swarm", "absent.toml"], 2),
        (["bench", "wire", "--help"], 0),
    ],
)
def test_what_needs_no_torch_does_not_load_it(arguments, code, tmp_path):
    program = (
        "import sys\n"
        "from motet.cli.main import main\n"
        "try:\n"
        f"    code = main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    code = end.code or 0\n"
        "heavy = {'torch', 'transformers', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(100 if heavy else code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
