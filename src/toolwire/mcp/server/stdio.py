"""MCP on standard input and output: one message per line.

The server ends when its input ends. Running requests get a short time to finish.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys

from ...ir.errors import ProtocolError
from ...stream.framing import NDJSONDecoder
from ..protocol.rpc import LIMIT, PARSE_ERROR, RpcError, RpcMessage, failure_from, is_batch, read
from .conversation import Conversation
from .output import OutputStream, is_full, open_output, reserve_stdout, write_line
from .server import Server

_GRACE = 5.0  # seconds for requests in progress, and for the rest of the output, after the client closed its side
_READ_BYTES = 1024 * 1024  # the input is a file here, such as recorded messages
_PAUSE_LEVEL, _RESUME_LEVEL = 1024, 512


class LineServer(asyncio.Protocol):
    """One conversation over two byte streams. Reads no faster than it can serve and write (back-pressure)."""

    def __init__(self, server: Server, output: OutputStream) -> None:
        self._output = output
        self._lines = NDJSONDecoder(LIMIT)
        self._input: asyncio.ReadTransport | None = None
        self._batches: set[asyncio.Task[None]] = set()
        self.conversation = Conversation(server, self.emit)
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._input = transport

    def data_received(self, data: bytes) -> None:
        """Handle the complete lines in `data`, then pause reading if requests or output accumulate."""
        try:
            lines = self._lines.feed(data)
        except ProtocolError as error:  # the line is too long, so the start of the next message is unknown
            self.emit(failure_from(RpcError(PARSE_ERROR, error.message)))
            self._end()
            return
        for line in lines:
            self._receive_line(line)
        self._pause_if_busy()

    def _receive_line(self, line: bytes) -> None:
        """Handle one line.

        A batch is answered as a whole, so it runs in a task of its own; an unreadable line fails.
        """
        if is_batch(line):
            task = asyncio.create_task(self._answer_batch(line))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)
            return
        try:
            message = read(line)
        except RpcError as error:
            self.emit(failure_from(error))
            return
        self.conversation.receive(message)

    async def _answer_batch(self, line: bytes) -> None:
        answer = await self.conversation.handle(line)
        if answer is not None:
            self._output.write(answer + b"\n")

    def emit(self, message: RpcMessage) -> None:
        write_line(self._output, message)

    def _pause_if_busy(self) -> None:
        if self._input is not None and self._is_busy(_PAUSE_LEVEL):
            self._input.pause_reading()
            asyncio.get_running_loop().call_later(0.005, self._resume_if_idle)

    def _resume_if_idle(self) -> None:
        """Resume reading, or check again later, because nothing signals that the conversation is idle."""
        if self._input is None or self._input.is_closing():
            return
        if self._is_busy(_RESUME_LEVEL):
            asyncio.get_running_loop().call_later(0.005, self._resume_if_idle)
        else:
            self._input.resume_reading()

    def _is_busy(self, limit: int) -> bool:
        return self.conversation.busy > limit or is_full(self._output)

    def connection_lost(self, exc: Exception | None) -> None:
        for line in self._lines.close():
            self._receive_line(line)
        self._end()

    async def close(self, grace: float) -> None:
        """Wait up to `grace` seconds for running requests, then close."""
        if self._batches and grace:
            await asyncio.wait(self._batches, timeout=grace)
        await self.conversation.close(grace)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def serve_stdio(server: Server) -> None:
    """Serve until the input ends or the output is closed by its reader."""
    with reserve_stdout() as output:
        sink, lost = await open_output(output)
        lines = await _open_input(server, sink)
        await asyncio.wait({lines.ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        await lines.close(0.0 if lost.done() else _GRACE)
        sink.close()
        await asyncio.wait({lost}, timeout=_GRACE)


async def _open_input(server: Server, sink: OutputStream) -> LineServer:
    """Connect standard input to a LineServer. Files and devices such as /dev/null cannot be polled; they are read here."""
    loop = asyncio.get_running_loop()
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)):
        lines = LineServer(server, sink)
        while not lines.ended.done() and (data := await asyncio.to_thread(os.read, 0, _READ_BYTES)):
            lines.data_received(data)
        lines.connection_lost(None)
        return lines
    _, lines = await loop.connect_read_pipe(lambda: LineServer(server, sink), sys.stdin.buffer)
    return lines
