"""Several worker processes on one port: start them, forward signals, restart those that end.

SIGTERM, SIGINT    are forwarded as SIGTERM: every worker finishes its requests, then the parent ends
a second SIGINT    is forwarded: every worker ends its requests at once
SIGHUP             is forwarded: every worker reloads the settings

A worker whose event loop does not run for `server.heartbeat` seconds is killed and restarted, and so is one that needs four
times as long to start. Its heartbeats are counted against the ticks of the parent, not against a clock: a suspended
machine, or a stopped parent, has no ticks. The first start is not limited, so a slow machine gets as far as that.

The states of a worker, as its parent sees them:

    starting    a process runs, and has not reported that it accepts requests
    ready       it has reported its banner; signals are sent to it, and its heartbeats count
    ended       restarted at once if it was stable, else after a delay that doubles with each failure in a row
    stopped     for good: it is never restarted

A reload while a worker is starting is remembered until it is ready: before that, SIGHUP would end the process, or reach it
before its handler. The parent serves no requests, so no request can end or block it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from logging import getLogger
from pathlib import Path

import msgspec

from ...asgi.signal_handling import handle_signals
from ...ir.errors import ToolwireError
from .worker_process import HEARTBEAT_INTERVAL, ReadyMessage, WorkerTable, WorkerVariable

_log = getLogger("toolwire.gateway")
_STABLE = 10.0  # seconds; a worker that ends earlier fails at its start, and is restarted after a delay
_FIRST_DELAY = 0.5  # seconds; doubled after each further failure
_MAX_DELAY = 30.0  # seconds; then a start costs little of the machine, and a repaired cause is noticed soon
_STOP_GRACE = 15.0  # seconds beyond the drain time, for the last rows of usage
_START_FACTOR = 4  # a start imports everything and may load an encoder, on a machine whose other workers are busy


class _WorkerSlot:
    """One worker, and the processes that run it one after the other."""

    def __init__(
        self, number: int, listener: socket.socket, table: WorkerTable, folder: Path, *, requires_key: bool
    ) -> None:
        self.number = number
        self._requires_key = requires_key
        self._listener = listener
        self._table = table
        self._folder = folder
        self._heartbeats = 0  # at the last tick
        self._missed_heartbeats = 0  # ticks since the last heartbeat
        self._process: Process | None = None
        self._channel: asyncio.StreamWriter | None = None
        self._is_ready = False
        self._wants_reload = False
        self._is_stopped = False

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> str | None:
        """Start a process, and wait until it accepts requests. Return its banner, or None if it ended before.

        A stop or a reload that was requested in the meantime is sent to it.
        """
        ours, theirs = socket.socketpair()
        descriptors = (self._listener.fileno(), theirs.fileno(), self._table.descriptor)
        with theirs:
            variable = WorkerVariable(
                self.number, self._table.count, *descriptors, str(self._folder), self._requires_key
            )
            self._process = await create_subprocess_exec(
                *command,
                env={**environment, **variable.to_environment()},
                stdin=DEVNULL,
                pass_fds=descriptors,
                process_group=0,  # a signal of the terminal goes to the parent, which forwards it
            )
        if self._is_stopped:  # in the meantime
            self.stop()
        reader, self._channel = await asyncio.open_connection(sock=ours, limit=2**20)
        line = await reader.readline()
        if not line:
            return None
        self._is_ready = True
        if self._wants_reload:
            self.reload()
        return msgspec.json.decode(line, type=ReadyMessage).banner

    async def wait(self) -> int:
        """Wait for the end of the process, and return its exit code, which is negative for a signal.

        Its row of the table is reset, and its channel closed.
        """
        assert self._process is not None
        code = await self._process.wait()
        self._is_ready = False
        self._table.reset(self.number)
        if self._channel is not None:
            self._channel.close()
        return code

    def is_frozen(self, heartbeats: int, limit: float) -> bool:
        """Note the number of heartbeats, and return whether there was none for `limit` seconds.

        A process that is starting may take four times as long. This is called at each tick of the parent.
        """
        is_alive = not self._is_running or heartbeats != self._heartbeats
        self._heartbeats, self._missed_heartbeats = heartbeats, 0 if is_alive else self._missed_heartbeats + 1
        return self._missed_heartbeats * HEARTBEAT_INTERVAL > limit * (1 if self._is_ready else _START_FACTOR)

    def reload(self) -> None:
        """Reload the settings; a worker that is starting does it once it is ready, when the signal is handled."""
        self._wants_reload = not self._is_ready
        if self._is_ready:
            self._send(signal.SIGHUP)

    def stop(self) -> None:
        self._is_stopped = True
        self._send(signal.SIGTERM)

    def interrupt(self) -> None:
        """End the requests of a process that is stopping."""
        self._send(signal.SIGINT)

    def kill(self, reason: str) -> None:
        if self._is_running:
            _log.error("worker %d %s", self.number, reason)
            self._send(signal.SIGKILL)

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._is_running:
            self._process.send_signal(number)


class WorkerPool:
    """The workers of a gateway.

    `command` starts one of them. `listener` and `folder` are shared by them. `drain` is the number of seconds that their
    requests have at the end. `heartbeat` is the number of seconds after which a frozen worker is replaced; 0 is never.
    `on_reload` is called before the workers reload. `requires_key`: clients need a key, also after a reload without keys.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        listener: socket.socket,
        folder: Path,
        *,
        count: int,
        drain: float,
        heartbeat: float,
        on_reload: Callable[[], None],
        requires_key: bool,
    ) -> None:
        self._command = command
        self._environment = environment
        self._listener = listener
        self._table = WorkerTable.create(count)
        self._workers = [
            _WorkerSlot(number, listener, self._table, folder, requires_key=requires_key) for number in range(count)
        ]
        self._drain = drain
        self._heartbeat = heartbeat
        self._on_reload = on_reload
        self._stop_requested = asyncio.Event()

    async def run(self, on_ready: Callable[[str], None]) -> int:
        """Run and supervise the workers until a signal, and return an exit code. `on_ready` gets the banner at the start.

        The first worker starts alone: if the settings are wrong, one error is printed, not one by each worker.
        """
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._stop, signal.SIGHUP: self._reload}
        with handle_signals(handlers, ignore_afterwards=True):
            first, *others = self._workers
            banners = [await self._start(first)]
            if banners[0] is not None and not self._stop_requested.is_set():
                banners += await asyncio.gather(*(self._start(worker) for worker in others))
            if not self._stop_requested.is_set():
                if None in banners:
                    return await self._abandon_start(self._workers[: len(banners)], banners.index(None))
                on_ready(banners[0] or "")
            watching = asyncio.ensure_future(self._watch_heartbeats())
            codes = await asyncio.gather(*(self._supervise(worker) for worker in self._workers[: len(banners)]))
            watching.cancel()
        self._table.close()
        return 0 if set(codes) <= {0, -signal.SIGTERM} else 1

    async def _start(self, worker: _WorkerSlot) -> str | None:
        return await worker.start(self._command, self._environment)

    async def _abandon_start(self, workers: Sequence[_WorkerSlot], failed: int) -> int:
        """Stop all workers after worker `failed` could not start, and return its exit code, or 1 instead of 0.

        It has usually printed an error. If it ended without an exit code of its own, log that.
        """
        waiting = asyncio.ensure_future(workers[failed].wait())
        await asyncio.wait({waiting}, timeout=_STOP_GRACE)
        self._stop()
        codes = await asyncio.gather(*(worker.wait() for worker in workers))
        if codes[failed] <= 0:
            _log.error("worker %d ended %s before it was ready", failed, _describe(codes[failed]))
        return max(codes[failed], 0) or 1

    async def _supervise(self, worker: _WorkerSlot) -> int:
        """Restart a worker whenever it ends, and log that, until the stop.

        Return its last exit code, or 0 if it was not running at the stop.
        """
        failures, clock = 0, asyncio.get_running_loop().time
        while True:
            started_at = clock()
            code = await worker.wait()
            if self._stop_requested.is_set():
                return code
            failures = 0 if clock() - started_at >= _STABLE else failures + 1
            delay = 0.0 if failures == 0 else min(_FIRST_DELAY * 2 ** (failures - 1), _MAX_DELAY)
            _log.error("worker %d ended %s; restarting it in %g s", worker.number, _describe(code), delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_requested.wait(), delay)
            if self._stop_requested.is_set():  # also in the moment of the timeout: the listener is closed
                return 0
            await self._restart(worker)

    async def _watch_heartbeats(self) -> None:
        """Kill the workers that have missed too many heartbeats; `_supervise` restarts them."""
        while self._heartbeat:
            await asyncio.sleep(HEARTBEAT_INTERVAL)
            for worker, heartbeats in zip(self._workers, self._table.heartbeats(), strict=True):
                if worker.is_frozen(heartbeats, self._heartbeat):
                    worker.kill("does not respond; replacing it")

    async def _restart(self, worker: _WorkerSlot) -> None:
        """Start a worker again, and log the result. If that fails, `_supervise` tries again after a longer delay."""
        try:
            if await self._start(worker) is not None:
                _log.warning("worker %d runs again", worker.number)
        except (OSError, ToolwireError) as error:
            _log.error("cannot start worker %d: %s", worker.number, error)

    def _stop(self) -> None:
        """Stop all workers. Connections are refused once they have closed the socket, too.

        A worker that has not ended after the time for its requests is killed, also one that is frozen in its start.
        """
        self._stop_requested.set()
        self._listener.close()
        loop = asyncio.get_running_loop()
        for worker in self._workers:
            worker.stop()
            loop.call_later(self._drain + _STOP_GRACE, worker.kill, "does not stop; killing it")

    def _interrupt(self) -> None:
        """Stop the workers, and end their requests at once if they are stopping, as for a single process."""
        if not self._stop_requested.is_set():
            self._stop()
            return
        for worker in self._workers:
            worker.interrupt()

    def _reload(self) -> None:
        self._on_reload()
        for worker in self._workers:
            worker.reload()


def _describe(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"
