"""The interface of HTTP clients: a request returns the head of its response, and its body in chunks.

`HttpTransport` is the client; a model in this process and a recorder have the same interface. Failures are built-in
exceptions: TimeoutError for a timeout, ConnectionRefusedError if nothing was sent, ConnectionError for everything
else. Their messages contain no secrets. Redirects are not followed: they would send the key to another server.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import NamedTuple, Protocol, TypeAlias


class PoolExhausted(ConnectionRefusedError, TimeoutError):
    """All connections to the server stayed in use: nothing was sent, and the server itself may be well."""


class StreamedBody(NamedTuple):
    """A request body that is sent while it is produced, so that it is never held whole.

    `length` is its number of bytes; without it, the body is sent with the chunked transfer coding. A streamed body is
    sent at most once.
    """

    chunks: AsyncIterable[bytes]
    length: int | None = None


RequestBody: TypeAlias = bytes | StreamedBody


class Reply(Protocol):
    """The head of a response, and its body in chunks."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Headers; their names are in lower case."""
        ...

    async def read(self) -> bytes:
        """Return the next chunk; b"" at the end."""
        ...


class Transport(Protocol):
    """A way to send requests, such as a pool of connections."""

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: RequestBody, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """Send one request with a timeout of `seconds`.

        Leaving the context closes the connection, unless the response was read to its end. Cancellation closes it, too.
        """
        ...

    async def aclose(self) -> None: ...


async def read_request_body(body: RequestBody) -> bytes:
    """Return the whole body, for a transport that cannot stream it."""
    return body if isinstance(body, bytes) else b"".join([chunk async for chunk in body.chunks])


def load_transport(spec: str) -> Transport:
    """Open the transport of a vendor that has its own: `module:class`, in a package above this one."""
    module, _, name = spec.partition(":")
    transport: Transport = getattr(import_module(module), name)()
    return transport
