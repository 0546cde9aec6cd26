"""A link to a process that the client starts: one message per line, on its standard input and output.

No shell is involved. The process only inherits the environment variables that it needs to run; secrets are passed by
name. Its standard error goes to the log, and the last lines become part of the error when it exits. The process leads
a process group, so that its child processes end with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from ...ir.errors import ProtocolError
from ...ir.terminal import neutralise_line
from ...stream.framing import NDJSONDecoder
from ..protocol.headers import HeaderArguments
from ..protocol.notifications import Cancelled
from ..protocol.rpc import (
    LIMIT,
    Failure,
    Notification,
    RequestId,
    Result,
    RpcError,
    RpcMessage,
    RpcRequest,
    is_batch,
    read,
    write,
)
from ..protocol.rpc import read_batch as read_many
from .config import ServerSpec
from .failures import ServerGone
from .link import LinkTraffic, LostHandler, MessageHandler, TrafficEvent, subscription_request
from .negotiation import ClientIdentity, NegotiatedProtocol

_log = logging.getLogger("toolwire.mcp")
_GRACE = 2.0  # seconds for each step of the shutdown: closed input, SIGTERM, SIGKILL (MCP, lifecycle, stdio)
_EXIT_GRACE = 0.5  # seconds between the end of the output and the exit of the process, whose code explains it
_ENDED = "has ended"
_ENDED_HINT = "run the command in a terminal: a server must keep running while its standard input is open"
_CHUNK = 256 * 1024  # bytes; asyncio buffers at most 128 KiB by default, so a read takes all that has arrived
_INHERITED = (
    "APPDATA COMSPEC HOME HOMEDRIVE HOMEPATH LANG LC_ALL LOCALAPPDATA LOGNAME PATH PATHEXT PROGRAMFILES SHELL SYSTEMDRIVE "
    "SYSTEMROOT TEMP TERM TMP TMPDIR TZ USER USERNAME USERPROFILE"
).split()
_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,100})")')


class StdioLink:
    """A process, and the requests that wait for its answers, by id."""

    def __init__(
        self,
        spec: ServerSpec,
        on_message: MessageHandler,
        on_lost: LostHandler,
        environment: Mapping[str, str] | None = None,
        *,
        identity: ClientIdentity | None = None,
        on_traffic: LinkTraffic | None = None,
    ) -> None:
        self._spec = spec
        self._identity = identity or ClientIdentity({})
        self._on_traffic = on_traffic
        self._on_message = on_message
        self._on_lost = on_lost
        self._environment = os.environ if environment is None else environment
        self._process: asyncio.subprocess.Process | None = None
        self._pending: dict[RequestId, asyncio.Future[Result | Failure]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._gone: ServerGone | None = None  # why the process cannot be used any more
        self._explained = asyncio.Event()  # set when `_gone` is complete: with the exit code, if there is one
        self._closing = False
        self._stderr_lines: deque[str] = deque(maxlen=5)

    @property
    def is_gone(self) -> bool:
        return self._gone is not None

    async def open(self) -> None:
        """Start the process, with few inherited environment variables, and the tasks that read its output.

        ServerGone if it cannot be started, or was closed meanwhile.
        """
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
            reason = getattr(error, "strerror", None) or str(error)
            hint = "check that the command is installed and on PATH"
            raise ServerGone(f"cannot start {spec.name}: {spec.command}: {reason}", sent=False, hint=hint) from None
        self._tasks = [asyncio.create_task(self._read_messages()), asyncio.create_task(self._read_stderr())]
        if self._closing:  # `close` was called while the process started
            await self.close()
            raise ServerGone(f"{spec.name} was closed", sent=False)

    async def send_request(
        self, request: RpcRequest, header_arguments: HeaderArguments | None = None
    ) -> Result | Failure:
        """Write a request and wait for its answer. On cancellation notify the server, except for `initialize`."""
        await self._check_running()
        answer: asyncio.Future[Result | Failure] = asyncio.get_running_loop().create_future()
        self._pending[request.id] = answer
        try:
            await self._write(request)
            return await answer
        except asyncio.CancelledError:
            if request.method != "initialize" and self._gone is None:
                self._write_line(Cancelled(request.id, "no longer wanted").to_notification())
            raise
        finally:
            self._pending.pop(request.id, None)

    async def send(self, message: Notification | Result | Failure) -> None:
        await self._check_running()
        await self._write(message)

    async def set_protocol(self, greeting: NegotiatedProtocol, *, listen: bool) -> None:
        """Subscribe to changes, which the stateless era requires. All messages share one stream.

        The answer arrives when the subscription ends, so nothing waits for it.
        """
        if listen and greeting.is_stateless:
            await self._write(subscription_request(1, self._identity.meta(greeting.version)))

    @property
    def has_pending(self) -> bool:
        """Always False: a process that fails to answer one request answers no other."""
        return False

    async def wait_pending(self) -> None:
        """Return at once: there is nothing to wait for."""

    async def _check_running(self) -> None:
        if self._gone is not None:
            await self._explained.wait()
            raise ServerGone(self._gone.message, sent=False, hint=self._gone.hint)

    async def _write(self, message: RpcMessage) -> None:
        """Write a message and wait while the pipe is full."""
        self._write_line(message)
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            await self._process.stdin.drain()
        except ConnectionError:
            await self._mark_gone("closed its standard input")

    def _write_line(self, message: RpcMessage) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(write(message) + b"\n")
        if self._on_traffic is not None:
            self._on_traffic(TrafficEvent("sent", message))

    async def _read_messages(self) -> None:
        """Handle lines until the output of the process ends. Then mark it as gone, which fails pending requests."""
        assert self._process is not None
        assert self._process.stdout is not None
        lines = NDJSONDecoder(LIMIT)
        try:
            while data := await self._process.stdout.read(_CHUNK):
                for line in lines.feed(data):
                    self._handle_line(line)
            for line in lines.close():
                self._handle_line(line)
        except ProtocolError as error:
            await self._mark_gone(f"broke the protocol: {error}")
            return
        except Exception as error:  # noqa: BLE001  # on any failure the pending requests must be released
            _log.exception("reading from %s failed", self._spec.name)
            await self._mark_gone(f"cannot be read: {error}")
            return
        await self._mark_gone(_ENDED)

    def _handle_line(self, line: bytes) -> None:
        """Process a line. Log and ignore text that is not JSON. An unreadable answer only fails its own request."""
        if line[:1] not in (b"{", b"["):
            _log.info("%s printed: %s", self._spec.name, neutralise_line(line[:200].decode(errors="replace")))
            return
        messages: list[RpcMessage | RpcError]
        try:
            messages = read_many(line) if is_batch(line) else [read(line)]
        except RpcError as error:
            messages = [error.with_request_id(self._find_id(line))]
        for message in messages:
            if isinstance(message, RpcError):
                self._fail_request(message)
                continue
            if self._on_traffic is not None:
                self._on_traffic(TrafficEvent("received", message))
            if isinstance(message, (Result, Failure)):
                self._resolve_request(message)
            else:
                self._on_message(message)

    def _find_id(self, line: bytes) -> RequestId | None:
        """Search for the id in a line that is not valid JSON."""
        found = _ID.search(line[:200]) or _ID.search(line[-200:])
        if found is None:
            return None
        return int(found[1]) if found[1] else found[2].decode(errors="replace")

    def _fail_request(self, error: RpcError) -> None:
        future = self._pending.get(error.request_id) if error.request_id is not None else None
        if future is None:  # the request is unknown, so every pending request must fail
            raise ProtocolError(f"cannot read a message: {error.message}")
        if not future.done():
            future.set_exception(ProtocolError(f"cannot read the answer: {error.message}", status=502))

    def _resolve_request(self, message: Result | Failure) -> None:
        """Pass an answer to the request that waits for it. Ignore answers to requests that were given up."""
        future = self._pending.get(message.id) if message.id is not None else None
        if future is None:
            if isinstance(message, Failure) and message.id is None:
                _log.warning("%s reported an error: %s", self._spec.name, neutralise_line(message.message[:200]))
            return  # the request was given up
        if not future.done():
            future.set_result(message)

    async def _read_stderr(self) -> None:
        """Read and log standard error, because a full pipe would block the process.

        Its last lines explain a failure.
        """
        assert self._process is not None
        assert self._process.stderr is not None
        stream = self._process.stderr
        while data := await stream.read(_CHUNK):
            for line in data.decode(errors="replace").splitlines():
                if line.strip():
                    self._stderr_lines.append(neutralise_line(line.strip()[:200]))
                    _log.debug("%s: %s", self._spec.name, self._stderr_lines[-1])

    async def _mark_gone(self, event: str) -> None:
        """Mark the connection as over, fail the pending requests, and report the loss unless it is being closed.

        Only the first call has an effect.
        """
        if self._gone is not None:
            return
        label = self._spec.label
        self._gone = ServerGone(f"{label} {event}", hint=_ENDED_HINT)
        try:
            await asyncio.sleep(0.05)  # time for its last output
            code = await self._wait_exit_code() if event == _ENDED else None
            code_text = "" if code is None else f" with exit code {code}"
            stderr_text = f"; its standard error: {' | '.join(self._stderr_lines)}" if self._stderr_lines else ""
            hint = "" if code and stderr_text else _ENDED_HINT  # an error of its own is the explanation
            self._gone = ServerGone(f"{label} {event}{code_text}{stderr_text}", hint=hint)
        finally:
            self._explained.set()
        self._fail_pending(self._gone)
        if not self._closing:
            self._on_lost(self._gone)

    async def _wait_exit_code(self) -> int | None:
        """Return the exit code; None if the process closed its output and is still running."""
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_GRACE):
                return await self._process.wait()
        return None

    def _fail_pending(self, gone: ServerGone) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ServerGone(gone.message, hint=gone.hint))

    async def close(self) -> None:
        """Close standard input, then send SIGTERM and SIGKILL if needed. Finally release all pending requests."""
        self._closing = True
        process = self._process
        if process is None:
            return
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        try:
            await _stop_process(process)
        finally:  # also if the wait was cancelled
            _signal_group(process, signal.SIGKILL)  # also for child processes that are still running
            for task in tasks:
                task.cancel()
            # pipes that were not read to the end would stay open
            process._transport.close()  # type: ignore[attr-defined]
            if self._gone is None:
                self._gone = ServerGone(f"{self._spec.name} was closed")
            self._explained.set()
            self._fail_pending(self._gone)  # the task that detected the end may have been cancelled before it did so
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """Wait for the process to exit after the end of its input, or force it."""
    assert process.stdin is not None
    process.stdin.close()
    for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
        if signal_number is not None:
            _signal_group(process, signal_number)
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), _GRACE)
            return
        except TimeoutError:
            continue


def _signal_group(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to the whole process group."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # the group is already gone
