"""Standard output as a sink for messages, one per line. Writing never waits for the reader: unread messages are
buffered.

Any other output would corrupt the messages. So standard output is reserved, and everything else that is printed goes
to standard error.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from ..protocol.notifications import DISCARDABLE
from ..protocol.rpc import Notification, RpcMessage, write

# Bytes; a few large results, after which a client that does not read stops its own requests.
_HIGH_WATER = 4 * 1024 * 1024


def write_line(sink: OutputStream, message: RpcMessage) -> None:
    """Write a message. Drop progress and log messages while the buffer is full, because they are useless later."""
    is_discardable = isinstance(message, Notification) and message.method in DISCARDABLE
    if not (sink.is_closing() or (is_discardable and is_full(sink))):
        sink.write(write(message) + b"\n")


def is_full(sink: OutputStream) -> bool:
    """Return True if so much output is unread that no more input should be read."""
    return sink.get_write_buffer_size() > _HIGH_WATER


async def open_output(output: Any) -> tuple[OutputStream, asyncio.Future[None]]:
    """Return the sink, and a future that completes when it is closed."""
    loop = asyncio.get_running_loop()
    if stat.S_ISREG(os.fstat(output.fileno()).st_mode):
        file = _FileOutput(output)
        return file, file.lost
    transport, written = await loop.connect_write_pipe(_PipeProtocol, output)
    return transport, written.lost


class _PipeProtocol(asyncio.Protocol):
    """Report when the reader has closed the pipe."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class _FileOutput:
    """A regular file as a sink: writing to it never blocks."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def is_closing(self) -> bool:
        return self.lost.done()

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    abort = close


OutputStream: TypeAlias = asyncio.WriteTransport | _FileOutput
"""A destination for lines: a transport, or a file."""


@contextmanager
def reserve_stdout() -> Iterator[Any]:
    """Yield standard output, reserved for messages; until the end, redirect all other output to standard error."""
    reserved = os.fdopen(os.dup(1), "wb", buffering=0)
    saved_stdout = sys.stdout
    sys.stdout.flush()
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield reserved
    finally:
        sys.stdout = saved_stdout
        if not reserved.closed:
            os.dup2(reserved.fileno(), 1)
            reserved.close()
