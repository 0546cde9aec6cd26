"""A server that we start: a message a line, on its standard input and output.

No shell is involved, and of our environment the process sees only what it needs to run: secrets are given to it by name.
Its standard error goes to the log, and its last lines into the error when it dies. It is the head of a process group, so that
what it has started goes away with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections import deque
from collections.abc import Mapping

from ...ir.errors import ProtocolError
from ...ir.terminal import neutralise_line
from ...stream.ndjson import NDJSONDecoder
from ...wire.mcp.errors import RpcError
from ...wire.mcp.headers import Mirrored
from ...wire.mcp.notices import Cancelled
from ...wire.mcp.rpc import LIMIT, Failure, Message, Notification, Request, RequestId, Result, is_batch, read, write
from ...wire.mcp.rpc import read_batch as read_many
from .config import ServerSpec
from .failures import ServerGone
from .greeting import Greeting
from .link import Hear, Lost

__all__ = ["StdioLink"]

_log = logging.getLogger("toolwire.mcp")
_GRACE = 2.0
_CHUNK = 256 * 1024
_INHERITED = (
    "APPDATA COMSPEC HOME HOMEDRIVE HOMEPATH LANG LC_ALL LOCALAPPDATA LOGNAME PATH PATHEXT PROGRAMFILES SHELL SYSTEMDRIVE "
    "SYSTEMROOT TEMP TERM TMP TMPDIR TZ USER USERNAME USERPROFILE"
).split()
_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,100})")')


class StdioLink:
    """A process, and the calls that wait for its answers, by their ids."""

    def __init__(self, spec: ServerSpec, hear: Hear, lost: Lost, environment: Mapping[str, str] | None = None) -> None:
        self._spec = spec
        self._hear = hear
        self._lost = lost
        self._environment = os.environ if environment is None else environment
        self._process: asyncio.subprocess.Process | None = None
        self._pending: dict[RequestId, asyncio.Future[Result | Failure]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._gone: ServerGone | None = None
        self._closing = False
        self._said: deque[str] = deque(maxlen=5)

    @property
    def is_gone(self) -> bool:
        return self._gone is not None

    async def open(self) -> None:
        spec = self._spec
        assert spec.command is not None
        inherited = {name: self._environment[name] for name in _INHERITED if name in self._environment}
        try:
            self._process = await asyncio.create_subprocess_exec(
                spec.command,
                *spec.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**inherited, **spec.env},
                cwd=spec.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise ServerGone(f"{spec.name} cannot be started: {spec.command}: {words}", sent=False) from None
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._drain())]
        if self._closing:  # meanwhile
            await self.close()
            raise ServerGone(f"{spec.name} was closed", sent=False)

    async def ask(self, request: Request, marks: Mirrored | None = None) -> Result | Failure:
        self._check()
        answer: asyncio.Future[Result | Failure] = asyncio.get_running_loop().create_future()
        self._pending[request.id] = answer
        try:
            await self._write(request)
            return await answer
        except asyncio.CancelledError:
            if request.method != "initialize" and self._gone is None:
                self._send(Cancelled(request.id, "no longer wanted").to_notification())
            raise
        finally:
            self._pending.pop(request.id, None)

    async def tell(self, message: Notification | Result | Failure) -> None:
        self._check()
        await self._write(message)

    async def agreed(self, greeting: Greeting, *, listen: bool) -> None:
        """Everything comes the same way."""

    @property
    def is_awaited(self) -> bool:
        """A process that does not answer one does not answer the others."""
        return False

    async def answered(self) -> None:
        """There is nothing to wait for."""

    def _check(self) -> None:
        if self._gone is not None:
            raise ServerGone(self._gone.message, sent=False)

    async def _write(self, message: Message) -> None:
        self._send(message)
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            await self._process.stdin.drain()
        except ConnectionError:
            await self._end("does not read any more")

    def _send(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(write(message) + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        lines = NDJSONDecoder(LIMIT)
        try:
            while data := await self._process.stdout.read(_CHUNK):
                for line in lines.feed(data):
                    self._take(line)
            for line in lines.close():
                self._take(line)
        except ProtocolError as error:
            await self._end(f"broke the protocol: {error}")
            return
        except Exception as error:  # noqa: BLE001  # whatever it was, nobody shall wait for ever
            _log.exception("reading from %s failed", self._spec.name)
            await self._end(f"cannot be read from: {error}")
            return
        await self._end("has ended")

    def _take(self, line: bytes) -> None:
        """A message. What begins like none is somebody's print, and passed over; what cannot be read fails its own call."""
        if line[:1] not in (b"{", b"["):
            _log.info("%s printed: %s", self._spec.name, neutralise_line(line[:200].decode(errors="replace")))
            return
        messages: list[Message | RpcError]
        try:
            messages = read_many(line) if is_batch(line) else [read(line)]
        except RpcError as error:
            messages = [error.of(self._salvaged(line))]
        for message in messages:
            if isinstance(message, RpcError):
                self._fail(message)
            elif isinstance(message, (Result, Failure)):
                self._answer(message)
            else:
                self._hear(message)

    def _salvaged(self, line: bytes) -> RequestId | None:
        """The id in a line that is no JSON, if it is there for all to see."""
        found = _ID.search(line[:200]) or _ID.search(line[-200:])
        if found is None:
            return None
        return int(found[1]) if found[1] else found[2].decode(errors="replace")

    def _fail(self, error: RpcError) -> None:
        waiting = self._pending.get(error.request_id) if error.request_id is not None else None
        if waiting is None:  # whose answer that was cannot be known: nobody shall wait for it
            raise ProtocolError(f"a message that cannot be read: {error.message}")
        if not waiting.done():
            waiting.set_exception(ProtocolError(f"an answer that cannot be read: {error.message}", status=502))

    def _answer(self, message: Result | Failure) -> None:
        waiting = self._pending.get(message.id) if message.id is not None else None
        if waiting is None:
            if isinstance(message, Failure) and message.id is None:
                _log.warning("%s complains: %s", self._spec.name, neutralise_line(message.message[:200]))
            return  # of a call that was given up
        if not waiting.done():
            waiting.set_result(message)

    async def _drain(self) -> None:
        """Nobody else reads it; unread it would stop the process once the pipe is full."""
        assert self._process is not None
        assert self._process.stderr is not None
        stream = self._process.stderr
        while data := await stream.read(_CHUNK):
            for line in data.decode(errors="replace").splitlines():
                if line.strip():
                    self._said.append(neutralise_line(line.strip()[:200]))
                    _log.debug("%s: %s", self._spec.name, self._said[-1])

    async def _end(self, what: str) -> None:
        """The connection is over, whoever noticed first."""
        if self._gone is not None:
            return
        self._gone = ServerGone(f"{self._spec.name} {what}")
        await asyncio.sleep(0.05)  # for its last words
        said = f"; it said: {' | '.join(self._said)}" if self._said else ""
        self._gone = ServerGone(f"{self._spec.name} {what}{said}")
        self._release(self._gone)
        if not self._closing:
            self._lost(self._gone)

    def _release(self, gone: ServerGone) -> None:
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(ServerGone(gone.message))

    async def close(self) -> None:
        """The end of its input, a signal, a stronger one; and nobody is left behind."""
        self._closing = True
        process = self._process
        if process is None:
            return
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        try:
            await _ended(process)
        finally:  # also where nobody waits for it to end
            _signal(process, signal.SIGKILL)  # and what it started and left
            for task in tasks:
                task.cancel()
            # pipes that nobody has read to their end stay open otherwise
            process._transport.close()  # type: ignore[attr-defined]
            if self._gone is None:
                self._gone = ServerGone(f"{self._spec.name} was closed")
            self._release(self._gone)  # whoever saw it end may have been stopped before telling those who wait
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """By itself at the end of its input, or by force."""
    assert process.stdin is not None
    process.stdin.close()
    for force in (None, signal.SIGTERM, signal.SIGKILL):
        if force is not None:
            _signal(process, force)
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), _GRACE)
            return
        except TimeoutError:
            continue


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """To the whole group."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # all gone already
