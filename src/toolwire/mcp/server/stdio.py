"""MCP on standard input and output: one message per line.

The server ends when its input ends. Running requests get a short time to finish. If it is cancelled, by Ctrl-C, it cancels
them. In both cases no request runs any more when `serve_stdio` returns, so that the caller may then close the store.
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
        """Handle one line, unless the server is closing.

        A batch is answered as a whole, so it runs in a task of its own; an unreadable line fails.
        """
        if self.ended.done():
            return
        if is_batch(line):
            self.conversation.track(object(), self._answer_batch(line))
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
        """Read, or pause and check again later, because nothing signals that the conversation is idle."""
        if self._input is None or self._input.is_closing():
            return
        level = _PAUSE_LEVEL if self._input.is_reading() else _RESUME_LEVEL
        if self.conversation.busy > level or is_full(self._output):
            self._input.pause_reading()
            asyncio.get_running_loop().call_later(0.005, self._pause_if_busy)
        else:
            self._input.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for line in self._lines.close():
            self._receive_line(line)
        self._end()

    async def close(self, grace: float) -> None:
        """Stop reading, wait up to `grace` seconds for running requests, then cancel them and wait for their end."""
        self._end()
        if self._input is not None:
            self._input.close()
        await self.conversation.close(grace)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def serve_stdio(server: Server) -> None:
    """Serve until the input ends or the output is closed by its reader. No request runs any more when it returns."""
    with reserve_stdout() as output:
        sink, lost = await open_output(output)
        lines = LineServer(server, sink)
        grace = 0.0  # of a cancelled server, and of one whose client no longer reads
        try:
            try:
                await _read_input(lines)
                await asyncio.wait({lines.ended, lost}, return_when=asyncio.FIRST_COMPLETED)
                grace = 0.0 if lost.done() else _GRACE
            finally:
                try:
                    await lines.close(grace)
                finally:
                    sink.close()
            await asyncio.wait({lost}, timeout=_GRACE)
        finally:
            # The loop would write unread output to the next file that gets the number of the closed descriptor.
            if sink.get_write_buffer_size():
                sink.abort()


async def _read_input(lines: LineServer) -> None:
    """Connect standard input to `lines`. Files and devices such as /dev/null cannot be polled; they are read here."""
    number = sys.stdin.fileno()
    mode = os.fstat(number).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number):
        await asyncio.get_running_loop().connect_read_pipe(lambda: lines, sys.stdin.buffer)
        return
    while not lines.ended.done() and (data := await asyncio.to_thread(os.read, number, _READ_BYTES)):
        lines.data_received(data)
    lines.connection_lost(None)
