"""Run the user's command as a child process that behaves as it would without toolwire.

The child is in toolwire's own process group, so that the terminal treats both as one job: Ctrl-C, Ctrl-Z and the signals
of a closed terminal reach the child directly. toolwire itself must outlive the child, because it serves it:

SIGINT, SIGQUIT            left to the child, which may handle them. Forwarded only if toolwire is not in the foreground
                           of a terminal: then they were sent to toolwire alone.
SIGTERM, SIGHUP, SIGUSR1, SIGUSR2   forwarded
SIGTSTP, SIGTTIN, SIGTTOU  ignored until the child has stopped. Then toolwire stops itself by the same signal, which the
                           shell reports. If both stopped by the terminal's signal, the shell could continue the job
                           after toolwire had stopped and before the child had; toolwire would then see a stopped child
                           and stop again, forever. With one order (first the child, then toolwire) a job that the
                           shell sees as stopped is stopped.
SIGCHLD                    the child has stopped or ended

Signals that are ignored at the start (`nohup`, a job in the background of a script) stay ignored in both.

A child of a killed toolwire would wait for a gateway that is gone: on Linux the kernel sends it SIGTERM then
(`PR_SET_PDEATHSIG`, prctl(2)), which wrapper scripts such as Codex's pass on to their own children.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

_FROM_TERMINAL = ("SIGINT", "SIGQUIT")
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_STOPS = ("SIGTSTP", "SIGTTIN", "SIGTTOU")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GRACE = 5.0  # seconds for a child to end after SIGTERM, if toolwire fails; then it is killed
_SIGNAL_BASE = 128  # a shell's exit code of a process that a signal has ended, minus the signal


class ChildProcess:
    """A running command. `wait` returns its exit code, 128 + N after signal N."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the command in the running event loop. Raise OSError if that is impossible."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._terminal = _open_terminal()
        self._is_running = False
        # Before the start: a signal in between would end toolwire and leave the child.
        self._handlers = {name: handler for name, handler in self._make_handlers().items() if not _is_ignored(name)}
        for name, handler in self._handlers.items():
            self._loop.add_signal_handler(getattr(signal, name), handler)
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command
                command,
                env=environment,
                preexec_fn=_make_death_signal(),  # noqa: PLW1509  # it takes no lock, so other threads do not matter
            )
        except BaseException:
            self._close()
            raise
        self._is_running = True
        self._reap()

    def _make_handlers(self) -> dict[str, Callable[[], None]]:
        handlers: dict[str, Callable[[], None]] = {"SIGCHLD": self._reap}
        handlers |= {name: partial(self._forward_alone, getattr(signal, name)) for name in _FROM_TERMINAL}
        handlers |= {name: partial(self._send, getattr(signal, name)) for name in _FORWARDED}
        return handlers | dict.fromkeys(_STOPS, _do_nothing)

    async def wait(self) -> int:
        """Wait for the end of the command. If this is cancelled, end the command first."""
        try:
            return await asyncio.shield(self._ended)
        finally:
            if self._is_running:
                self._send(signal.SIGTERM)
                await asyncio.wait([self._ended], timeout=_GRACE)
                self._send(signal.SIGKILL)
                await self._ended
            self._close()

    def _close(self) -> None:
        """Restore the default handling of signals: the end of toolwire is short, and a signal may interrupt it."""
        for name in self._handlers:
            self._loop.remove_signal_handler(getattr(signal, name))
        if self._terminal is not None:
            os.close(self._terminal)

    def _send(self, number: int) -> None:
        if self._is_running:  # not reaped yet, so the process id is still the child's
            os.kill(self._process.pid, number)

    def _forward_alone(self, number: int) -> None:
        """Forward a signal that the terminal has not sent."""
        if not self._is_in_foreground():
            self._send(number)

    def _is_in_foreground(self) -> bool:
        try:
            return self._terminal is not None and os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:  # the terminal was closed
            return False

    def _reap(self) -> None:
        """Note the end of the child, or stop with it.

        A shell continues the whole process group. A child that is still stopped after toolwire was continued has left the
        group, as an interactive shell does, or only toolwire was continued: then the child is continued here. If it has
        been continued, and perhaps stopped again, there is a new status, and another SIGCONT would undo the new stop.
        """
        has_stopped = False
        while self._is_running:
            process_id, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if process_id == 0:
                if has_stopped:
                    self._send(signal.SIGCONT)
                return
            has_stopped = False
            if os.WIFCONTINUED(status):
                continue
            if os.WIFSTOPPED(status):
                has_stopped = self._stop(os.WSTOPSIG(status))
                continue
            code = os.waitstatus_to_exitcode(status)
            self._is_running, self._process.returncode = False, code
            self._ended.set_result(code if code >= 0 else _SIGNAL_BASE - code)

    def _stop(self, number: int) -> bool:
        """Stop as the child has, until a shell continues the job; without a terminal there is no shell, so return False."""
        if self._terminal is None:
            return False
        name = signal.Signals(number).name
        if name in self._handlers:
            self._loop.remove_signal_handler(number)
        os.kill(os.getpid(), number)
        if name in self._handlers:
            self._loop.add_signal_handler(number, self._handlers[name])
        return True


def _do_nothing() -> None:
    pass


def _is_ignored(name: str) -> bool:
    return signal.getsignal(getattr(signal, name)) == signal.SIG_IGN and name != "SIGCHLD"


def _open_terminal() -> int | None:
    """Open the controlling terminal, or return None without one."""
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _make_death_signal() -> Callable[[], None] | None:
    """Return a function that the child calls before it runs the command, so that it ends with toolwire; Linux only."""
    if sys.platform != "linux":
        return None
    try:
        prctl = ctypes.CDLL(None).prctl  # looked up here: the child may not wait for a lock of another thread
    except (AttributeError, OSError):
        return None
    parent = os.getpid()

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended before
            os.kill(os.getpid(), signal.SIGTERM)

    return end_with_parent
