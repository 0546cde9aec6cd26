"""Learn about a command that the user names: run it with `--help`, restricted, and read the text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from ...ir.errors import ConfigError
from ...retrieve.commands.command import COMMAND_NAME, SystemCommand, find_program
from ..terminal.output import print_note

_TIMEOUT = 5.0  # seconds; help is printed at once, and a program that waits for input must end
_MAX_OUTPUT = 262_144  # bytes; of a longer help text, the beginning has the options
# bytes of data segments; enough for interpreters that reserve a heap at their start. Not measured
_MAX_MEMORY = 2 << 30
_MAX_FILES = 1 << 18  # bytes of a file that the program writes, such as its own cache or log
# beyond the user's present ones, which RLIMIT_NPROC also counts; stops a fork bomb, allows shell wrappers
_MAX_PROCESSES = 64
_MAX_WORDS = 2  # a third one could be an operand: `docker run IMAGE` starts a container


def learn_command(text: str) -> list[SystemCommand]:
    """Return the command that the user named, such as `kubectl` or `docker ps`, and its subcommands.

    The program gets no standard input, an empty home, a short environment, and limits of time, output, memory, files
    and processes. Where the kernel has Landlock, it can write only to the temporary folder and open no connection.
    Raises `ConfigError` for a name that is invalid, refused or not installed, and for an empty or late help text.
    """
    from ...retrieve.commands.effects import refusal_reason
    from ...retrieve.commands.manuals import read_help

    words = text.split()
    if not words or len(words) > _MAX_WORDS or not all(COMMAND_NAME.fullmatch(word) for word in words):
        raise ConfigError(f"--learn takes the name of a command, not {text!r}", hint="--learn docker")
    reason = refusal_reason(words[0])
    if reason is not None:
        raise ConfigError(f"{words[0]} is refused: {reason}")
    program = find_program(words[0])
    if program is None:
        raise ConfigError(f"{words[0]} was not found in PATH", hint="--learn takes the name of an installed command")
    _warn_without_landlock(words[0])
    output = _run_help(program, words)
    if not output.strip():
        raise ConfigError(f"{text} --help printed nothing", hint="leave out --learn if it has a man page")
    return read_help(output, words, origin=f"{text} --help")


def _warn_without_landlock(name: str) -> None:
    from ...testing.tool_tests.landlock import landlock_version

    if not landlock_version():
        text = f"this system has no Landlock: {name} --help runs with limits of time and memory, but can write files"
        print_note(text)


def _run_help(program: str, words: list[str]) -> str:
    """Return the output of `--help`, up to `_MAX_OUTPUT` bytes, and end all processes that it started."""
    with tempfile.TemporaryDirectory(prefix="toolwire-help-") as folder, tempfile.TemporaryFile() as output:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": folder,
            "TMPDIR": folder,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PAGER": "cat",
            "COLUMNS": "120",
        }
        with _Descendants():
            _wait_for_help([*words, "--help"], program, environment, folder, output)
        output.seek(0)
        return output.read(_MAX_OUTPUT).decode("utf-8", "replace")


def _wait_for_help(
    vector: list[str], program: str, environment: dict[str, str], folder: str, output: IO[bytes]
) -> None:
    """Run a command's help in a restricted process, with its output in `output`, and kill its process group at the end.

    Raises `ConfigError` after `_TIMEOUT` seconds.
    """
    process = subprocess.Popen(  # noqa: S603  # a list of arguments; the user named the program
        vector,
        executable=program,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_make_restriction(folder),  # noqa: PLW1509  # no other thread has started yet
    )
    try:
        process.wait(_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{' '.join(vector)} did not end within {_TIMEOUT:g} seconds") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Descendants:
    """End all processes that the program started, also those in a session of their own.

    On Linux, this process adopts them when their parent ends (PR_SET_CHILD_SUBREAPER). Children that this process had
    before are left alone. Other systems have only the process group.
    """

    _SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h; Python has no name for it
    _MAX_ROUNDS = 100  # a program that starts processes faster than this is beyond the limit of processes

    def __enter__(self) -> None:
        self._is_supported = sys.platform == "linux" and self._adopt(True)
        self._before = _child_processes() if self._is_supported else frozenset()

    def __exit__(self, *problem: object) -> None:
        """Kill the child processes that have appeared since `__enter__`, also orphans, and stop adopting orphans.

        Several rounds, because a killed process may leave children of its own.
        """
        if not self._is_supported:
            return
        for _ in range(self._MAX_ROUNDS):
            started = _child_processes() - self._before
            if not started:
                break
            for number in started:
                with suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    os.kill(number, signal.SIGKILL)
                    os.waitpid(number, 0)
        self._adopt(False)

    def _adopt(self, is_wanted: bool) -> bool:
        import ctypes

        try:
            return bool(ctypes.CDLL(None).prctl(self._SUBREAPER, int(is_wanted), 0, 0, 0) == 0)
        except (OSError, AttributeError):
            return False


def _child_processes() -> frozenset[int]:
    """Return the direct children of this process; orphans of the program become direct children."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return frozenset(found)


def _make_restriction(folder: str) -> Callable[[], None] | None:
    """Return the function that limits the child's resources and, with Landlock, files and network; None on Windows.

    It runs between fork and exec. The number of processes cannot be limited for root.
    """
    if sys.platform == "win32":
        return None
    import resource

    from ...testing.tool_tests.landlock import landlock_version, restrict_process

    limits = [
        (resource.RLIMIT_CPU, int(_TIMEOUT)),
        (resource.RLIMIT_FSIZE, _MAX_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, _MAX_MEMORY),
    ]
    if hasattr(resource, "RLIMIT_NPROC") and os.geteuid() != 0:
        limits.append((resource.RLIMIT_NPROC, _count_processes() + _MAX_PROCESSES))
    has_landlock = landlock_version() > 0

    def restrict() -> None:
        for kind, limit in limits:
            with suppress(ValueError, OSError):  # a lower limit is set already
                resource.setrlimit(kind, (limit, limit))
        if has_landlock:
            restrict_process([folder], allow_network=False)

    return restrict


def _count_processes() -> int:
    """Return the number of tasks of this user: the limit of the kernel counts them all."""
    own = os.geteuid()
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry.stat().st_uid == own:
                count += sum(1 for _ in (entry / "task").iterdir())
    return count
