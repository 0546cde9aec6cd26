"""HTTP, by pyreqwest: the only module that knows it.

A transport is a pool of connections; several clients may share one. What goes wrong on the way is a built-in exception:
TimeoutError where the time is over, ConnectionError for everything else, with words that hold no secret. Redirects are not
followed: they would carry the key to another place.
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

__all__ = ["HttpTransport", "Reply", "Transport", "transport_to"]

_LETTING_GO = 0.05


class Reply(Protocol):
    """The head of an answer, and its body piece by piece."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    async def read(self) -> bytes:
        """The next piece; nothing at the end."""
        ...


class Transport(Protocol):
    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """One request, for at most so many seconds.

        Leaving the context closes the connection, unless the answer was read to its end. Who is cancelled leaves at once, and
        closes it, too; but where there is no answer yet, pyreqwest does so when it begins, or when the time is over.
        """
        ...

    async def aclose(self) -> None: ...


class HttpTransport:
    """A pool of connections. `roots`: certificates in PEM that are trusted besides the system's own."""

    def __init__(self, *, connections: int = 256, connect_timeout: float = 10.0, roots: Sequence[bytes] = ()) -> None:
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._roots = tuple(roots)
        self._pools: dict[bool, Client] = {}

    def post(
        self, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        return self.send("POST", url, headers, secrets, body, seconds)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], secrets: Mapping[str, str], body: bytes, seconds: float
    ) -> AbstractAsyncContextManager[Reply]:
        """`post`, by any method. ConnectionRefusedError where there was no connection, so that nothing was sent."""
        try:
            builder = self._pool(url).request(method, url)
        except ValueError as error:
            raise ConfigError(f"a URL that cannot be used: {error}") from None
        builder = builder.timeout(timedelta(seconds=max(seconds, 0.001)))
        if body:
            builder = builder.body_bytes(body)
        for name, value in headers.items():
            builder = builder.header(name, value)
        for name, value in secrets.items():
            builder = builder.header(name, value, is_sensitive=True)
        # without this the first bytes are held back until 64 KiB have come
        return _Sent(builder.streamed_read_buffer_limit(0).build_streamed())

    async def aclose(self) -> None:
        used = bool(self._pools)
        while self._pools:
            await self._pools.popitem()[1].close()
        if used:  # its threads let go of Python a moment later; a program that ends meanwhile would be aborted
            await asyncio.sleep(_LETTING_GO)

    def _pool(self, url: str) -> Client:
        clear = url.startswith("http:")
        if clear not in self._pools:
            self._pools[clear] = self._build(clear)
        return self._pools[clear]

    def _build(self, clear: bool) -> Client:
        try:
            from pyreqwest.client import ClientBuilder
        except ImportError:
            raise MissingExtra("model clients need pyreqwest", hint="pip install 'toolwire[net]'") from None
        builder = (
            ClientBuilder()
            .follow_redirects(False)
            .max_connections(self._connections)
            .connect_timeout(timedelta(seconds=self._connect_timeout))
            .user_agent("toolwire")
        )
        if clear:
            builder = builder.no_proxy()  # a proxy would read what is in the clear
        for pem in self._roots:
            builder = builder.add_root_certificate_pem(pem)
        return builder.build()


class _Sent:
    """A request on its way."""

    __slots__ = ("_request",)

    def __init__(self, request: StreamRequest) -> None:
        self._request = request

    async def __aenter__(self) -> Reply:
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            response = await self._request.__aenter__()
        except Exception as error:  # noqa: BLE001  # what is not pyreqwest's stays as it is
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from None
            raise _plain(error) from None
        if task is not None and task.cancelling() > before:
            # pyreqwest forgets that it was cancelled where its result, or its failure, is ready in the same moment; the
            # task remembers
            await self._request.__aexit__(None, None, None)
            raise asyncio.CancelledError
        return _Reply(response)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        await self._request.__aexit__(None, None, None)


def transport_to(way: str) -> Transport:
    """The way that a vendor has of its own: `module:class`, of a room above this one."""
    module, _, name = way.partition(":")
    own: Transport = getattr(import_module(module), name)()
    return own


class _Reply:
    __slots__ = ("_body", "headers", "status")

    def __init__(self, response: Response) -> None:
        self.status: int = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._body = response.body_reader

    async def read(self) -> bytes:
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            piece = await self._body.read_chunk()
            while piece is not None and not len(piece):
                piece = await self._body.read_chunk()
        except Exception as error:  # noqa: BLE001  # what is not pyreqwest's stays as it is
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from None
            raise _plain(error) from None
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return b"" if piece is None else bytes(piece)


def _plain(error: Exception) -> Exception:
    from pyreqwest.exceptions import PyreqwestError

    if not isinstance(error, PyreqwestError):
        return error
    causes = getattr(error, "details", {}).get("causes") or ()
    words = causes[-1]["message"] if causes else str(error)
    if isinstance(error, TimeoutError):
        return TimeoutError(words)
    # its ConnectError is also raised for connections that broke later on
    unsent = any(cause["message"] == "client error (Connect)" for cause in causes)
    return ConnectionRefusedError(words) if unsent else ConnectionError(words)
