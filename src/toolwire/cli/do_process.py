"""Run the argument vector of a confirmed or read-only command, and collect its output within limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

from msgspec.structs import replace

from .do_outcome import DoOutcome

if TYPE_CHECKING:
    from typing import Self

__all__ = ["run_process"]

_MAX_OUTPUT = 1_000_000  # bytes of each stream in a JSON document
_MAX_SECONDS = 60.0  # of a command without a confirmation
_CLOSE_TIMEOUT = 1.0  # seconds
# variables of a command without a confirmation: no pager, no options of programs, no libraries to load
_KEPT = frozenset(
    """HOME USER LOGNAME LANG LANGUAGE TERM TZ COLUMNS LINES NO_COLOR XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
    DOCKER_HOST DOCKER_CONTEXT""".split()
)
_QUIET = {"PAGER": "cat", "SYSTEMD_PAGER": "", "SYSTEMD_PAGERSECURE": "1"}


def run_process(outcome: DoOutcome, program: str, *, is_unasked: bool, captures: bool) -> DoOutcome:
    """Return the outcome of the run. Without a confirmation: no input, a short environment, and a limit of time."""
    name = outcome.vector[0]
    sys.stdout.flush()
    try:
        process = subprocess.Popen(  # noqa: S603  # a list of arguments, confirmed or read-only
            list(outcome.vector),
            executable=program,
            env=_short_environment() if is_unasked else None,
            shell=False,
            stdin=subprocess.DEVNULL if is_unasked else None,
            stdout=subprocess.PIPE if captures else None,
            stderr=subprocess.PIPE if captures else None,
        )
    except OSError as error:
        return replace(outcome, kind="failed", message=f"cannot start {name}: {error.strerror or error}")
    limit = _MAX_SECONDS if is_unasked else None
    try:
        if not captures:
            return _finish(outcome, _wait(process, limit))
        with _Capture(process) as capture:
            code = _wait(process, limit)
    except subprocess.TimeoutExpired:
        return replace(outcome, kind="failed", message=f"{name} was ended: it ran longer than {_MAX_SECONDS:g} seconds")
    finished = replace(_finish(outcome, code), stdout=capture.texts[0], stderr=capture.texts[1])
    if capture.is_truncated:
        return replace(finished, kind="failed", message=f"{name} was ended: its output exceeds {_MAX_OUTPUT} bytes")
    return finished


def _short_environment() -> dict[str, str]:
    from ..retrieve.commands.command import SYSTEM_FOLDERS

    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return {**kept, **_QUIET, "PATH": os.pathsep.join(SYSTEM_FOLDERS)}


def _wait(process: subprocess.Popen[bytes], limit: float | None) -> int:
    """Return the exit code. The program receives the first Ctrl-C, too, and decides; the second one ends it."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    except KeyboardInterrupt:
        pass
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        raise


class _Capture:
    """The output of a process, up to a limit beyond which the process is ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.texts = ["", ""]
        self.is_truncated = False
        self._process = process
        streams = (process.stdout, process.stderr)
        self._threads = [
            threading.Thread(target=self._read, args=(number, stream), daemon=True)
            for number, stream in enumerate(streams)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(_CLOSE_TIMEOUT)  # a program in the background may keep the pipe open

    def _read(self, number: int, stream: IO[bytes]) -> None:
        pieces: list[bytes] = []
        size = 0
        with stream:
            while piece := stream.read1(65_536):  # type: ignore[attr-defined]
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_OUTPUT:
                    self.is_truncated = True
                    self._process.kill()
                    break
        self.texts[number] = b"".join(pieces)[:_MAX_OUTPUT].decode("utf-8", "replace")


def _finish(outcome: DoOutcome, code: int) -> DoOutcome:
    if code == 0:
        return replace(outcome, kind="ran", exit_code=0)
    ended = f"exit code {code}" if code > 0 else f"signal {-code}"
    return replace(outcome, kind="failed", exit_code=code, message=f"{outcome.vector[0]} failed: {ended}")
