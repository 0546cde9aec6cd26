"""Send a streamed request body while the response is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..ir.errors import ConfigError
from .http import StreamedBody
from .http_connection import HttpConnection

__all__ = ["BodyUpload", "body_header"]


def body_header(body: StreamedBody) -> bytes:
    """Return the header that describes the body, and the end of the head."""
    if body.length is None:
        return b"transfer-encoding: chunked\r\n\r\n"
    return b"content-length: %d\r\n\r\n" % body.length


class BodyUpload:
    """A task that writes the body piece by piece, as fast as the server reads.

    A task of its own, because a server may respond, or close the connection, while the source of the body is silent.
    An error of the source becomes the error of the response.
    """

    def __init__(self, connection: HttpConnection, body: StreamedBody, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._body = body
        self._is_complete = False
        self._is_closing = False
        self._task = loop.create_task(self._run())

    async def aclose(self) -> None:
        """Stop the upload. A connection on which a part of the body was sent cannot be reused."""
        if self._is_complete:
            return
        self._is_closing = True
        self._connection.refuse_reuse()
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            await self._send_chunks()
        except asyncio.CancelledError:
            if not self._is_closing:  # the source was cancelled, and not this task
                self._connection.fail(ConnectionError("the request body was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001  # the source may raise anything, and the caller shall see it
            self._connection.fail(error)

    async def _send_chunks(self) -> None:
        remaining = self._body.length
        async for chunk in self._body.chunks:
            if remaining is not None:
                remaining -= len(chunk)
                if remaining < 0:
                    raise ConfigError(f"the request body is longer than its length of {self._body.length} bytes")
            if chunk:
                await self._connection.write_chunk(_frame(chunk) if remaining is None else (chunk,))
        if remaining:
            raise ConfigError(f"the request body is {remaining} bytes shorter than its length of {self._body.length}")
        if remaining is None:
            await self._connection.write_chunk((b"0\r\n\r\n",))
        self._is_complete = True


def _frame(chunk: bytes) -> Sequence[bytes]:
    return b"%x\r\n" % len(chunk), chunk, b"\r\n"
