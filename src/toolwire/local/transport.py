"""A `Transport` that connects a `ModelClient` to the model in this process, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing, asynccontextmanager

from ..ir.losses import Losses
from ..ir.response import Fault, UpstreamError
from ..ir.text import to_bytes
from ..net.http.transport import Reply, RequestBody, read_request_body
from ..net.model.replies import loss_headers
from ..stream.strict import parse_object
from ..wire import get
from .model import open_model

_EVENTS = {"content-type": "text/event-stream"}
_DOCUMENT = {"content-type": "application/json"}


class LocalTransport:
    """A transport to local models. Several clients may share it, as they share the model. It needs no closing."""

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: RequestBody, seconds: float
    ) -> AsyncIterator[Reply]:
        """Run the request and yield the reply.

        The first chunk is awaited before, because an error before it becomes an HTTP status. The URL, headers and
        secrets are not used. Raises `TimeoutError` after `seconds`.
        """
        data = await read_request_body(body)
        document = parse_object(data)
        model = open_model(document.get("model") or "smollm2")
        deadline = asyncio.get_running_loop().time() + max(seconds, 0.001)
        losses = Losses()
        answer = model.stream(data, losses) if document.get("stream") else _yield_once(model.complete(data, losses))
        async with aclosing(answer):
            try:
                async with asyncio.timeout_at(deadline):
                    first = await anext(answer)
            except UpstreamError as error:
                yield _LocalReply(error.status, _DOCUMENT, _encode_fault(error.fault), None, deadline)
                return
            kind = _EVENTS if document.get("stream") else _DOCUMENT
            yield _LocalReply(200, {**kind, **loss_headers(losses)}, first, answer, deadline)

    async def aclose(self) -> None: ...


class _LocalReply:
    """The first chunk of a response and the generator of the others."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        first: bytes,
        chunks: AsyncGenerator[bytes, None] | None,
        deadline: float,
    ) -> None:
        self.status = status
        self.headers = headers
        self._first = first
        self._chunks = chunks  # None after an error
        self._deadline = deadline  # in the time of the event loop

    async def read(self) -> bytes:
        """Return the first chunk, then the others; empty bytes at the end.

        An error is returned as an event, because the status is already sent. Raises `TimeoutError` after the deadline.
        """
        first, self._first = self._first, b""
        if first or self._chunks is None:
            return first
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(self._chunks, b"")
        except UpstreamError as error:  # the headers are already sent: report the error in the stream
            self._chunks = None
            return b"data: " + _encode_fault(error.fault) + b"\n\n"


def _encode_fault(fault: Fault) -> bytes:
    return to_bytes(get("openai_chat").encode_error(fault).body)


async def _yield_once(whole: Awaitable[bytes]) -> AsyncGenerator[bytes, None]:
    yield await whole
