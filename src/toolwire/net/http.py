"""HTTP with pyreqwest; no other module uses it.

A transport is a pool of connections; several clients may share one. Failures are built-in exceptions: TimeoutError
for a timeout, ConnectionError for everything else. Their messages contain no secrets. Redirects are not followed:
they would send the key to another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from ..ir.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from pyreqwest.client import Client
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import Response

__all__ = ["HttpTransport", "Reply", "Transport", "load_transport"]

_RELEASE_TIMEOUT = 0.05


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
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """Send one request with a timeout of `seconds`.

        Leaving the context closes the connection, unless the response was read to its end. Cancellation returns
        immediately and closes it, too; but before the response begins, pyreqwest closes it only when the response
        begins or the timeout ends.
        """
        ...

    async def aclose(self) -> None: ...


class HttpTransport:
    """A pool of connections. `roots`: PEM certificates that are trusted beside the system's own."""

    def __init__(self, *, connections: int = 256, connect_timeout: float = 10.0, roots: Sequence[bytes] = ()) -> None:
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._roots = tuple(roots)
        self._pools: dict[bool, Client] = {}  # by whether it is plain HTTP

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        return self.send("POST", url, headers, secrets, body, seconds)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request with any method. Raise ConnectionRefusedError if there was no connection: nothing was sent."""
        try:
            builder = self._client_for(url).request(method, url)
        except ValueError as error:
            raise ConfigError(f"invalid URL: {error}") from None
        builder = builder.timeout(timedelta(seconds=max(seconds, 0.001)))
        if body:
            builder = builder.body_bytes(body)
        for name, value in headers.items():
            builder = builder.header(name, value)
        for name, value in secrets.items():
            builder = builder.header(name, value, is_sensitive=True)
        # without this the first bytes are buffered until 64 KiB have arrived
        return _PyreqwestPost(builder.streamed_read_buffer_limit(0).build_streamed())

    async def aclose(self) -> None:
        had_pools = bool(self._pools)
        while self._pools:
            await self._pools.popitem()[1].close()
        if had_pools:  # its threads release the interpreter a little later; a program that exits before that is aborted
            await asyncio.sleep(_RELEASE_TIMEOUT)

    def _client_for(self, url: str) -> Client:
        is_plain_http = url.startswith("http:")
        if is_plain_http not in self._pools:
            self._pools[is_plain_http] = self._build_client(is_plain_http)
        return self._pools[is_plain_http]

    def _build_client(self, is_plain_http: bool) -> Client:
        """Build a client of pyreqwest; plain HTTP has a client of its own, which uses no proxy."""
        try:
            from pyreqwest.client import ClientBuilder
        except ImportError:
            raise MissingExtra(
                "model clients need the package pyreqwest", hint="pip install -e '.[net]' in a checkout of toolwire"
            ) from None
        builder = (
            ClientBuilder()
            .follow_redirects(False)
            .max_connections(self._connections)
            .connect_timeout(timedelta(seconds=self._connect_timeout))
            .user_agent("toolwire")
        )
        if is_plain_http:
            builder = builder.no_proxy()  # a proxy could read unencrypted requests
        for pem in self._roots:
            builder = builder.add_root_certificate_pem(pem)
        return builder.build()


class _PyreqwestPost:
    """An in-flight request."""

    __slots__ = ("_request",)

    def __init__(self, request: StreamRequest) -> None:
        self._request = request

    async def __aenter__(self) -> Reply:
        """Send the request. `task.cancelling` is compared, because pyreqwest may lose a cancellation."""
        task = asyncio.current_task()
        initial_cancels = 0 if task is None else task.cancelling()
        try:
            response = await self._request.__aenter__()
        except Exception as error:  # noqa: BLE001  # exceptions of other packages are raised unchanged
            if task is not None and task.cancelling() > initial_cancels:
                raise asyncio.CancelledError from None
            raise _convert_error(error) from None
        if task is not None and task.cancelling() > initial_cancels:
            # pyreqwest drops the cancellation if its result or failure is ready at the same moment; the task still
            # counts it
            await self._request.__aexit__(None, None, None)
            raise asyncio.CancelledError
        return _PyreqwestReply(response)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        await self._request.__aexit__(None, None, None)


def load_transport(spec: str) -> Transport:
    """Open the transport of a vendor that has its own: `module:class`, in a package above this one."""
    module, _, name = spec.partition(":")
    transport: Transport = getattr(import_module(module), name)()
    return transport


class _PyreqwestReply:
    """A response of pyreqwest as a `Reply`."""

    __slots__ = ("_body", "headers", "status")

    def __init__(self, response: Response) -> None:
        self.status: int = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._body = response.body_reader

    async def read(self) -> bytes:
        """Return the next chunk that is not empty. As in `_PyreqwestPost`, a lost cancellation is raised again."""
        task = asyncio.current_task()
        initial_cancels = 0 if task is None else task.cancelling()
        try:
            piece = await self._body.read_chunk()
            while piece is not None and not len(piece):
                piece = await self._body.read_chunk()
        except Exception as error:  # noqa: BLE001  # exceptions of other packages are raised unchanged
            if task is not None and task.cancelling() > initial_cancels:
                raise asyncio.CancelledError from None
            raise _convert_error(error) from None
        if task is not None and task.cancelling() > initial_cancels:
            raise asyncio.CancelledError
        return b"" if piece is None else bytes(piece)


def _convert_error(error: Exception) -> Exception:
    """Convert an exception of pyreqwest to a built-in one. ConnectionRefusedError means that nothing was sent."""
    from pyreqwest.exceptions import PyreqwestError

    if not isinstance(error, PyreqwestError):
        return error
    causes = getattr(error, "details", {}).get("causes") or ()
    message = causes[-1]["message"] if causes else str(error)
    if isinstance(error, TimeoutError):
        return TimeoutError(message)
    # its ConnectError is also raised for connections that were lost later
    unsent = any(cause["message"] == "client error (Connect)" for cause in causes)
    return ConnectionRefusedError(message) if unsent else ConnectionError(message)
