"""A `Transport` that connects a `ModelClient` to the model in this process, without a network.

`InProcessTransport` is the base for models of other packages, such as toolkens of `toolwire.learn`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from ..ir.errors import ConfigError
from ..ir.losses import Losses
from ..ir.response import Fault, UpstreamError
from ..ir.text import to_bytes
from ..net.http.transport import Reply, RequestBody, read_request_body
from ..net.model.replies import loss_headers
from ..stream.strict import parse_object
from ..wire import get
from .model import open_model

_log = logging.getLogger("toolwire.local")
_EVENTS = {"content-type": "text/event-stream"}
_DOCUMENT = {"content-type": "application/json"}


class InProcessModel(Protocol):
    """A model in this process. Bodies and answers are bytes of OpenAI's chat protocol."""

    def stream(self, body: bytes, losses: Losses | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a stream. Leaving the loop stops the generation.

        `losses` is filled before the first piece. Raises UpstreamError for a request that cannot be answered.
        """
        ...

    async def complete(self, body: bytes, losses: Losses | None = None) -> bytes:
        """Return a complete response."""
        ...


class InProcessTransport:
    """A transport to models in this process.

    Several clients may share it, as they share the models. It needs no closing.
    """

    def __init__(self, open_model: Callable[[str], InProcessModel]) -> None:
        """`open_model` returns the model with a name, which is empty for a request without a model."""
        self._open_model = open_model

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: RequestBody, seconds: float
    ) -> AsyncIterator[Reply]:
        """Run the request and yield the reply.

        The first chunk is awaited before, because an error before it becomes an HTTP status. The URL, headers and
        secrets are not used. Raises `TimeoutError` after `seconds`. The reply to an unknown model has the status 404;
        the names of other models are only logged, because the reply may be for a client of a gateway.
        """
        data = await read_request_body(body)
        document = parse_object(data)
        name = document.get("model") or ""
        deadline = asyncio.get_running_loop().time() + max(seconds, 0.001)
        try:
            model = self._open_model(name)
        except ConfigError as error:
            _log.warning("cannot open a model: %s", error)
            fault = Fault("not_found", f"unknown model {str(name)[:100]!r}", 404, "model_not_found")
            yield _LocalReply(404, _DOCUMENT, _encode_fault(fault), None, deadline)
            return
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


class LocalTransport(InProcessTransport):
    """A transport to the models of llama.cpp."""

    def __init__(self) -> None:
        super().__init__(lambda name: open_model(name or "smollm2"))


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
