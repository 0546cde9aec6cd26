"""Requests over ASGI (https://asgi.readthedocs.io): types, path, headers, body and disconnect.

Ambiguous and oversized requests are refused. Work for a client that has disconnected is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeAlias

from ..net.time_limit import ContinuedCoroutine
from .access import AccessDenied

# The types of an ASGI application (https://asgi.readthedocs.io).


Scope: TypeAlias = MutableMapping[str, Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


async def serve_lifespan(lifespan: AbstractAsyncContextManager[None], receive: Receive, send: Send) -> None:
    """Enter a context at the startup of the ASGI server, and leave it at the shutdown.

    A failure at the startup is reported, because some servers would serve an application that only raises an error.
    """
    await receive()
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(lifespan)
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


SLOW_CLIENT = 30.0
"""Seconds for the body of a request."""

_UNREPEATABLE_HEADERS = frozenset({"host", "origin", "authorization", "content-type"})


def find_path(scope: Mapping[str, Any]) -> str:
    """Return the path below the prefix at which the application is mounted.

    `path` contains the prefix `root_path` (ASGI 3; Starlette since 0.33), but some servers and frameworks remove it.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path") or ""
    if not root:
        return path
    below = path.removeprefix(root.rstrip("/"))
    return (below or "/") if below[:1] in ("", "/") else path


async def read_request_body(
    headers: Mapping[str, str], receive: Receive, limit: int, seconds: float = SLOW_CLIENT
) -> bytes:
    """Read the body of a request. Raise AccessDenied if it exceeds the limit, or is incomplete after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await _read_body(headers, receive, limit)
    except TimeoutError:
        raise AccessDenied(408, f"message is incomplete after {seconds:g} seconds") from None


async def _read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """Read the whole body. Raise AccessDenied if it exceeds the limit, or the client disconnects before its end."""
    declared = headers.get("content-length", "")
    # `int` refuses thousands of digits. A body with such a length is refused while it is read.
    if declared.isdecimal() and len(declared) < 16 and int(declared) > limit:
        raise AccessDenied(413, f"message is larger than {limit} bytes")
    pieces, size = [], 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise AccessDenied(400, "message is truncated: the client disconnected")
        pieces.append(event.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise AccessDenied(413, f"message is larger than {limit} bytes")
        if not event.get("more_body"):
            return b"".join(pieces)


def parse_headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name in lower case. Raise AccessDenied for duplicates of headers that decide something."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        if key in headers and (key in _UNREPEATABLE_HEADERS or key.startswith("mcp-")):
            raise AccessDenied(400, f"duplicate header {key}")
        headers[key] = value.decode("latin-1")
    return headers


class DisconnectWatch:
    """Run work for as long as the client is connected."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def run_while_connected(self, work: Awaitable[Any]) -> Any:
        """Return the result of the work, or cancel it and return None if the client disconnects.

        Work that does not wait needs no task that watches the connection.
        """
        steps = work.__await__()
        try:
            awaited = next(steps)
        except StopIteration as done:
            return done.value
        task = asyncio.current_task()
        assert task is not None
        initial_cancels, is_running, stopped = task.cancelling(), True, False

        def stop(watched: asyncio.Future[None]) -> None:  # the client has disconnected
            nonlocal stopped
            if is_running and not watched.cancelled():
                stopped = task.cancel()

        watch_task = asyncio.ensure_future(self._wait_for_disconnect())
        watch_task.add_done_callback(stop)
        try:
            return await ContinuedCoroutine(steps, awaited)
        except asyncio.CancelledError:
            if not stopped or task.cancelling() - 1 > initial_cancels:
                raise  # the task was cancelled from outside, too
            return None
        finally:
            is_running = False
            watch_task.cancel()
            if stopped:
                task.uncancel()

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
